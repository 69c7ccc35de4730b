"""An arbiter whose policy recalls what it is told to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from arbiter_driver import CONFIG, M0, Driver, gpus, report

from themis_ray.core import events as ev
from themis_ray.core.bids import BidTable
from themis_ray.core.cluster import NOTHING, Allocation, Machine
from themis_ray.core.commands import (
    Command,
    LeasesChanged,
    LeaseView,
)
from themis_ray.core.explain import Recalled
from themis_ray.core.policies import Outcome, Policy, RoundView
from themis_ray.core.policies.base import Recall
from themis_ray.core.rounds import Phase
from themis_ray.core.settings import ArbiterConfig
from themis_ray.testing.policies import FirstCome


class Recalling(Policy):
    """Serves who comes last first (or else the other way round) and recalls what it is told to."""

    name: ClassVar[str] = "recalling"
    wants_bids: ClassVar[bool] = True
    recalls: ClassVar[bool] = True

    def __init__(
        self, take: Mapping[str, Allocation] | None = None, *, last_first: bool = True
    ) -> None:
        self.take = take or {}
        self.last_first = last_first
        self.views: list[RoundView] = []

    def recall(self, view: RoundView) -> Mapping[str, Recall]:
        self.views.append(view)
        return {app: Recall(some, why(some)) for app, some in self.take.items()}

    def allocate(self, view: RoundView, bids: Mapping[str, BidTable]) -> Outcome:
        if self.last_first:
            apps = {n: replace(app, joined_s=-app.joined_s) for n, app in view.apps.items()}
            view = replace(view, apps=apps)
        return FirstCome().allocate(view, bids)


class Halving(Recalling):
    """Recalls half of what everybody has."""

    def recall(self, view: RoundView) -> Mapping[str, Recall]:
        out = {}
        for name, app in view.apps.items():
            half = Allocation({machine: (count + 1) // 2 for machine, count in app.kept.items()})
            if half:
                out[name] = Recall(half, why(half))
        return out


class NotRecalling(Recalling):
    """The same, never asked what to put up early."""

    recalls: ClassVar[bool] = False


def why(some: Allocation) -> Recalled:
    return Recalled(some, "b", 5.0, 1.5)


class World(Driver):
    """Apps that report and bid as soon as they are asked to, and all that is said."""

    def __init__(
        self,
        policy: Recalling,
        machines: tuple[Machine, ...] = M0,
        config: ArbiterConfig = CONFIG,
    ) -> None:
        self.history: list[Command] = []
        self.policy = policy
        super().__init__(policy, config, machines)

    def do(self, now: float, *events: ev.Event) -> list[Command]:
        said = super().do(now, *events)
        self.history += said
        return said

    def run(self, now: float, *events: ev.Event) -> list[Command]:
        """Hand over events and answer all that is asked by them; returns all that is said."""
        begin = len(self.history)
        self.do(now, *events)
        self.report_all(now)
        while self.arbiter.round and self.arbiter.phase is Phase.BIDDING:
            current = self.arbiter.round
            app = min(current.waiting)
            self.do(now, ev.BidReceived(current.id, BidTable(app, math.inf)))
        return self.history[begin:]

    def report_all(self, now: float) -> None:
        while self.arbiter.round and self.arbiter.phase is Phase.REPORTING:
            current = self.arbiter.round
            app = min(current.waiting)
            last = self.arbiter.state.apps[app].report
            self.do(now, ev.Reported(app, last, current.id))

    def comes(self, now: float, app: str, wants: int, **more: Any) -> list[Command]:
        return self.run(now, ev.AppJoined(app, report(wants, **more)))

    def runs(self, now: float, app: str, **groups: Allocation) -> None:
        """Groups are asked for, created and ready."""
        for name, on in groups.items():
            self.group(now, app, name, on)

    def leases(self, app: str) -> list[tuple[Allocation, Allocation, float, bool]]:
        """What is held, what is awaited, until when, and whether that is final; by their end."""
        views = sorted(self.views(app), key=lambda v: (v.expires_s, not v.final))
        return [(v.held, v.pending, v.expires_s, v.final) for v in views]

    def told(self, app: str) -> list[LeaseView]:
        """All leases of an app, as it was last told."""
        last = [c for c in only(LeasesChanged, self.history) if c.app == app][-1]
        return list(last.leases)

    def close(self) -> None:
        """Once everybody has left and every group is gone, the whole cluster is free."""
        now = self.arbiter._now
        for app in sorted(self.arbiter.state.apps):
            self.run(now, ev.AppLeft(app))
        for group in sorted(self.arbiter.state.groups):
            self.do(now, ev.GroupGone(group))
        while (wakeup_s := self.arbiter.wakeup_s()) is not None:
            self.run(wakeup_s)
        assert not self.arbiter.state.groups
        assert self.arbiter.state.ledger.free() == self.arbiter.state.cluster.capacity


def only(kind: type[Any], said: Iterable[Command]) -> list[Any]:
    return [command for command in said if isinstance(command, kind)]


def full(policy: Recalling | None = None, **take: Allocation) -> World:
    """App ``a`` has run on all four GPUs since 0, in groups of one, two and one."""
    world = World(policy or Recalling(take))
    world.comes(0, "a", 4)
    world.runs(0, "a", g1=gpus(m0=1), g2=gpus(m0=2), g3=gpus(m0=1))
    assert world.leases("a") == [(gpus(m0=4), NOTHING, 100, False)]
    return world
