"""Drives an arbiter by hand, with its books checked after every event."""

from __future__ import annotations

import math
from typing import Any, TypeVar

from themis_ray.core import events as ev
from themis_ray.core.arbiter import Arbiter
from themis_ray.core.bids import BidRow, BidTable
from themis_ray.core.cluster import NOTHING, Allocation, Machine
from themis_ray.core.commands import (
    Command,
    CreateGroup,
    LeaseView,
    RequestReport,
)
from themis_ray.core.policies import Policy
from themis_ray.core.rounds import Phase
from themis_ray.core.settings import ArbiterConfig
from themis_ray.testing.invariants import check_arbiter
from themis_ray.testing.policies import FirstCome

CONFIG = ArbiterConfig(
    lease_s=100, notice_s=10, grace_s=4, report_timeout_s=3, bid_timeout_s=2, min_lease_s=0
)
M0 = (Machine("m0", 4),)
AnyCommand = TypeVar("AnyCommand", bound=Command)


def gpus(**counts: int) -> Allocation:
    return Allocation(counts)


def report(wants: int, r: float = math.inf, **more: Any) -> ev.AppReport:
    return ev.AppReport(r, r * 100, 100.0, wants, **more)


class Driver:
    """Feeds an arbiter, checks its books after every event and keeps what it says."""

    def __init__(
        self,
        policy: Policy | None = None,
        config: ArbiterConfig = CONFIG,
        machines: tuple[Machine, ...] = M0,
    ) -> None:
        self.arbiter = Arbiter(policy or FirstCome(), config)
        self.said: list[Command] = []
        self.wants: dict[str, int] = {}
        self.do(0, ev.ClusterChanged(machines))

    def do(self, now: float, *events: ev.Event) -> list[Command]:
        """Hand over events (a tick when none is given); returns what is said to the last."""
        for event in events or (ev.Tick(),):
            self.said = self.arbiter.handle(event, now)
            check_arbiter(self.arbiter)
        return self.said

    def join(self, now: float, app: str, wants: int, answer: bool = True, **more: Any) -> None:
        self.wants[app] = wants
        self.do(now, ev.AppJoined(app, report(wants, **more)))
        if answer:
            self.answer(now)

    def gather(self, *apps: str, wants: int = 4, machines: tuple[Machine, ...] = M0) -> int:
        """All join before there is a GPU, so that the first round, at 0, is everybody's."""
        self.do(0, ev.ClusterChanged(()))
        for app in apps:
            self.wants[app] = wants
            self.do(0, ev.AppJoined(app, report(wants)))
        self.do(0, ev.ClusterChanged(machines))
        assert {c.app for c in self.heard(RequestReport)} == set(apps)
        return self.arbiter.rounds

    def answer(self, now: float, *but: str, **reports: ev.AppReport) -> list[Command]:
        """All apps report that are asked to, and then those that are not named in ``but``."""
        while self.arbiter.round and self.arbiter.phase is Phase.REPORTING:
            waiting = sorted(self.arbiter.round.waiting - set(but))
            if not waiting:
                break
            current = self.arbiter.round.id
            for app in waiting:
                told = reports.get(app) or report(
                    self.wants[app], pinned=self.arbiter.state.apps[app].report.pinned
                )
                self.do(now, ev.Reported(app, told, current))
        return self.said

    def heard(self, kind: type[AnyCommand]) -> list[AnyCommand]:
        return [c for c in self.said if isinstance(c, kind)]

    def held(self, app: str) -> Allocation:
        return self.arbiter.state.ledger.entitled(app)

    def views(self, app: str) -> list[LeaseView]:
        return [x.view() for x in self.arbiter.state.apps[app].leases.values()]

    def group(self, now: float, app: str, name: str, on: Allocation) -> None:
        """A group is asked for, created and ready."""
        self.do(now, ev.GroupRequested(app, name, on))
        assert self.said == [CreateGroup(app, name, on)]
        self.do(now, ev.GroupReady(name))


def bid(app: str, rows: dict[int, float], r_nothing: float = math.inf) -> BidTable:
    """A table of one-GPU parts."""
    return BidTable(
        app, r_nothing, tuple(BidRow(r, parts=(1,) * n) for n, r in sorted(rows.items()))
    )


def handed_over() -> Driver:
    """App b has won, at 90, the four GPUs that a holds until 100."""
    d = Driver()
    d.join(0, "a", 4)
    d.group(0, "a", "g1", gpus(m0=2))
    d.group(0, "a", "g2", gpus(m0=2))
    d.join(1, "b", 4)
    d.wants["a"] = 0
    d.do(90)
    d.answer(90)
    assert [(v.held, v.final, v.expires_s) for v in d.views("a")] == [(gpus(m0=4), True, 100)]
    assert [(v.held, v.pending, v.expires_s) for v in d.views("b")] == [(NOTHING, gpus(m0=4), 200)]
    return d
