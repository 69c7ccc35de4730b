"""The public testing tools find what they are there to find."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from themis_ray.core import events as ev
from themis_ray.core.arbiter import Arbiter
from themis_ray.core.bids import BidTable
from themis_ray.core.cluster import NOTHING, Allocation, Machine
from themis_ray.core.leases import GroupState
from themis_ray.core.policies.base import Award, Outcome, RoundView
from themis_ray.core.settings import ArbiterConfig
from themis_ray.testing import JobSpec, Loop, PolicyContract, SimpleAgent, check_arbiter, snapshot
from themis_ray.testing.policies import (
    FirstCome,
    KeepingFirstCome,
    PreemptiveFirstCome,
    whole_gangs,
)


class TestFirstCome(PolicyContract):
    policy = FirstCome()


class TestPreemptiveFirstCome(PolicyContract):
    policy = PreemptiveFirstCome()


class TestKeepingFirstCome(PolicyContract):
    policy = KeepingFirstCome()


class _Mutant(FirstCome):
    def allocate(self, view: RoundView, bids: Mapping[str, BidTable]) -> Outcome:
        return self.spoil(view, super().allocate(view, bids))

    def spoil(self, view: RoundView, outcome: Outcome) -> Outcome:
        raise NotImplementedError


class GivesTooMuch(_Mutant):
    def spoil(self, view: RoundView, outcome: Outcome) -> Outcome:
        return replace(outcome, awards={a: Award(view.pool) for a in view.apps})


class ForgetsGangs(_Mutant):
    def spoil(self, view: RoundView, outcome: Outcome) -> Outcome:
        free, awards = view.pool, {}
        for app in view.apps.values():
            gpus = whole_gangs(free, app.needs, 1)
            free, awards[app.id] = free - gpus, Award(gpus)
        return replace(outcome, awards=awards)


class Hoards(_Mutant):
    def spoil(self, view: RoundView, outcome: Outcome) -> Outcome:
        first = sorted(outcome.awards)[:1]
        return replace(outcome, awards={a: outcome.awards[a] for a in first})


class SaysNothing(_Mutant):
    def spoil(self, view: RoundView, outcome: Outcome) -> Outcome:
        return replace(outcome, reasons={})


class Forgets(_Mutant):
    def spoil(self, view: RoundView, outcome: Outcome) -> Outcome:
        awards = {a: x for a, x in outcome.awards.items() if a != "last"}
        return replace(outcome, awards=awards)


class Remembers(_Mutant):
    calls = 0

    def spoil(self, view: RoundView, outcome: Outcome) -> Outcome:
        object.__setattr__(self, "calls", self.calls + 1)
        return outcome if self.calls % 2 else replace(outcome, awards={})


@pytest.mark.parametrize(
    ("mutant", "caught_by"),
    [
        (GivesTooMuch, "test_awards_fit_into_the_pool"),
        (GivesTooMuch, "test_nobody_gets_more_than_it_can_use"),
        (ForgetsGangs, "test_gangs_get_whole_gangs"),
        (Hoards, "test_no_gpu_idles_while_an_app_could_use_it"),
        (SaysNothing, "test_every_app_is_told_why"),
        (Forgets, "test_the_last_app_is_not_starved"),
        (Remembers, "test_the_same_round_is_decided_alike"),
    ],
)
def test_the_contract_catches_faulty_policies(mutant: type[FirstCome], caught_by: str) -> None:
    class Suite(PolicyContract):
        policy = mutant()
        reference_s = 3000

    Suite.__test__ = False  # type: ignore[attr-defined]
    with pytest.raises((AssertionError, ValueError)):
        getattr(Suite(), caught_by)()


def _arbiter() -> Arbiter:
    """Two apps with two of four GPUs each, one of them with a group."""
    arbiter = Arbiter(FirstCome(), ArbiterConfig(lease_s=100))
    agents = [SimpleAgent("a", [JobSpec(1e6, gpus=2)]), SimpleAgent("b", [JobSpec(1e6, gpus=2)])]
    Loop(arbiter, agents, machines=[Machine("m0", 4)]).run(1)
    arbiter.handle(ev.GroupReleased("b", "b-g1"), 1)
    arbiter.handle(ev.GroupGone("b-g1"), 1)
    check_arbiter(arbiter)
    return arbiter


def _lease(arbiter: Arbiter) -> object:
    return next(iter(arbiter.state.apps["a"].leases.values()))


def _hold_twice(arbiter: Arbiter) -> None:
    app = arbiter.state.apps["b"]
    lease = arbiter.state.new_lease(app, NOTHING, 1, 100)
    arbiter.state.hold(lease, Allocation({"m0": 2}), 1)
    arbiter.state.forget_if_empty(lease)


DAMAGE: dict[str, Callable[[Arbiter], object]] = {
    "are leased of": _hold_twice,
    "a may use": lambda x: x.state.ledger.entitle("a", Allocation({"m0": 1})),
    "groups of a occupy": lambda x: x.state.ledger.occupy("a", Allocation({"m0": 2}), -1),
    "yet in the books": lambda x: setattr(x.state.groups["a-g1"], "state", GroupState.GONE),
    "has outlived its app": lambda x: x.state.apps.pop("a") and x.state.contention.change(1, -1),
    "does not know it": lambda x: x.state.apps["a"].groups.clear(),
    "for ever": lambda x: x.state.unhold(_lease(x), Allocation({"m0": 2}), 1),  # type: ignore[arg-type]
    "nobody wakes up": lambda x: x.state.timers.clear(),
    "but the next look is": lambda x: setattr(_lease(x), "expires_s", 2.0),
    "has no reason": lambda x: setattr(x.state.apps["a"], "reason", None),
    "were not handed out": lambda x: x.state.commands.append(None),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("says", DAMAGE)
def test_damaged_books_are_noticed(says: str) -> None:
    arbiter = _arbiter()
    DAMAGE[says](arbiter)
    with pytest.raises(AssertionError, match=says):
        check_arbiter(arbiter)


def test_snapshots_tell_states_apart() -> None:
    arbiter = _arbiter()
    before = snapshot(arbiter)
    assert snapshot(arbiter) == before
    arbiter.handle(ev.Reported("a", ev.AppReport(1.0, 1.0, 1.0, 1)), 1)
    assert snapshot(arbiter) != before


def test_events_without_end_are_noticed() -> None:
    class Restless(SimpleAgent):
        def wakeup_s(self) -> float | None:
            return 0.0

        def wake(self, now: float) -> list[ev.Event]:
            return []

    loop = Loop(Arbiter(FirstCome()), [Restless("a", [JobSpec(10.0)])], machines=[])
    with pytest.raises(AssertionError, match="events go on without end at 0"):
        loop.run(10)
