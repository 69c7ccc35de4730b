"""Leases that are renewed as they are, without a question."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import ClassVar

import pytest
from arbiter_driver import Driver, report

from themis_ray.core import events as ev
from themis_ray.core.bids import BidRow, BidTable
from themis_ray.core.cluster import Allocation, Machine
from themis_ray.core.commands import Decided, LeasesChanged, RequestReport
from themis_ray.core.explain import Assigned
from themis_ray.core.policies import (
    Drf,
    Gandiva,
    MaxMinR,
    Outcome,
    Policy,
    RoundView,
    Srtf,
    Themis,
    ThemisPaper,
    TiresiasL,
)
from themis_ray.core.rounds import Phase

M8 = (Machine("m0", 4), Machine("m1", 4))


def gang(size: int, *, steady: bool = False, spans: bool = True) -> ev.AppReport:
    """The report of an app that is one gang."""
    job = ev.JobReport("0", 100, 1.0, size, size, spans=spans)
    return report(size, gang=size, jobs=(job,), steady=steady)


def joined(policy: Policy, *sizes: int, steady: bool = True) -> Driver:
    """Apps ``a``, ``b``, ... of one gang each have joined at 0 and have their GPUs."""
    d = Driver(policy, machines=M8)
    for name, size in zip("abcd", sizes, strict=False):
        join(d, 0, name, gang(size, steady=steady))
    return d


def join(d: Driver, now: float, name: str, told: ev.AppReport) -> None:
    d.do(now, ev.AppJoined(name, told))
    answer(d, now, **{name: told})


def answer(d: Driver, now: float, /, **told: ev.AppReport) -> set[str]:
    """Everybody who is asked repeats its last report, or says what is given; who was asked."""
    asked: set[str] = set()
    while d.arbiter.round is not None and d.arbiter.phase is Phase.REPORTING:
        current = d.arbiter.round
        app = min(current.waiting)
        asked.add(app)
        last = d.arbiter.state.apps[app].report
        d.do(now, ev.Reported(app, told.get(app, last), current.id))
    return asked


@pytest.mark.parametrize("make", [Drf, Gandiva, Srtf, TiresiasL, MaxMinR])
def test_a_gang_that_has_all_it_wants_is_renewed_without_a_question(
    make: Callable[[], Policy],
) -> None:
    d = Driver(make(), machines=M8)
    d.do(0, ev.AppJoined("a", gang(3, steady=True)))
    answer(d, 0)
    if d.arbiter.policy.wants_bids:
        d.do(2)  # nobody bids in time
        return
    held, rounds = d.held("a"), d.arbiter.rounds
    why = d.arbiter.reason("a")
    assert held.size == 3
    for number, now in enumerate((90, 190, 290), 1):
        d.do(now)
        assert not d.heard(RequestReport)
        assert d.arbiter.phase is Phase.IDLE
        assert [(c.app, c.reason) for c in d.heard(LeasesChanged)] == [("a", why)]
        assert [c.round_id for c in d.heard(Decided)] == [rounds + number]
        assert [(v.held, v.final) for v in d.views("a")] == [(held, False)]
        assert [v.expires_s for v in d.views("a")] == [now + 110]
    assert isinstance(why, Assigned)
    assert d.arbiter.reason("a") == why
    app = d.arbiter.state.apps["a"]
    d.arbiter.state.touch(app, 290)
    assert app.attained_gpu_s == 3 * 290


def test_others_are_asked() -> None:
    d = joined(Drf(), 3, steady=False)
    d.do(90)
    assert [c.app for c in d.heard(RequestReport)] == ["a"]


def test_an_auction_that_may_move_gangs_asks_everybody() -> None:
    assert Themis().renews
    assert not Themis(anew=False).renews
    assert not ThemisPaper.renews


def bid(d: Driver, now: float) -> set[str]:
    """Everybody who is made an offer bids for its gang; who was."""
    current = d.arbiter.round
    assert current is not None
    assert current.phase is Phase.BIDDING
    asked = set(current.asked)
    for app in sorted(asked):
        size = d.arbiter.state.apps[app].report.wants
        table = BidTable(app, math.inf, (BidRow(2.0, parts=(1,) * size),))
        d.do(now, ev.BidReceived(current.id, table))
    return asked


def test_with_gpus_for_all_only_the_new_one_is_asked_for_a_bid() -> None:
    d = Driver(Themis(), machines=M8)
    for now, app in enumerate("ab"):
        d.do(now, ev.AppJoined(app, gang(2, steady=True)))
        assert answer(d, now) == {app}
        assert bid(d, now) == {app}
        assert d.held(app).size == 2
    # The clock went on for the one that was not asked.
    assert d.arbiter._memory["clock"].lives["a"].joined_s == 0
    assert set(d.arbiter._memory["clock"].lives) == {"a", "b"}


def test_when_gpus_are_scarce_everybody_is_asked_for_a_bid() -> None:
    d = Driver(Themis(), machines=M8)
    d.do(0, ev.AppJoined("a", gang(5, steady=True)))
    answer(d, 0)
    bid(d, 0)
    d.do(90, ev.AppJoined("b", gang(2, steady=True)))
    assert answer(d, 90) == {"b"}
    d.do(90, ev.Reported("a", gang(7)))  # it was set apart, and wants something else
    assert bid(d, 90) == {"b"}
    assert answer(d, 90) == {"a"}
    assert bid(d, 90) == {"a", "b"}


FAR = tuple(Machine(f"m{i}", 2, f"r{i // 2}") for i in range(4))


def lying(policy: Policy, machines: tuple[Machine, ...], **on: int) -> set[str]:
    """An app with one gang on these GPUs since 0 comes up for renewal; who is asked to report."""
    d = Driver(policy, machines=machines)
    held = Allocation(on)
    told = gang(held.size, steady=True)
    d.do(0, ev.AppJoined("a", told, groups=(ev.HeldGroup("g", held),)))
    assert d.held("a") == held
    d.do(90)
    asked = {c.app for c in d.heard(RequestReport)}
    assert bool(asked) != bool(d.heard(Decided))
    return asked


@pytest.mark.parametrize(
    "on", [{"m0": 1, "m1": 1}, {"m0": 1, "m2": 1}, {"m0": 2, "m2": 1}, {"m1": 2, "m2": 2}]
)
def test_a_gang_that_could_lie_nearer_together_is_not_renewed_by_an_auction_unasked(
    on: dict[str, int],
) -> None:
    assert lying(Themis(), FAR, **on) == {"a"}


@pytest.mark.parametrize(
    "on",
    [{"m0": 2}, {"m0": 1}, {"m0": 2, "m1": 1}, {"m0": 2, "m1": 2}, {"m0": 2, "m1": 2, "m2": 1}],
)
def test_a_gang_that_lies_as_near_as_it_can_is_renewed_by_an_auction_unasked(
    on: dict[str, int],
) -> None:
    assert lying(Themis(), FAR, **on) == set()


@pytest.mark.parametrize("on", [{"m0": 1, "m1": 1}, {"m0": 2, "m2": 1}, {"m0": 2}])
def test_without_an_auction_a_gang_is_renewed_unasked_wherever_it_lies(on: dict[str, int]) -> None:
    assert lying(Drf(), FAR, **on) == set()


@pytest.mark.parametrize("make", [Srtf, TiresiasL])
def test_with_gpus_for_all_only_the_new_one_is_asked(make: Callable[[], Policy]) -> None:
    d = joined(make(), 2, 3)
    before = d.views("a")
    d.do(1, ev.AppJoined("c", gang(3)))
    assert answer(d, 1) == {"c"}
    assert d.held("c").size == 3
    assert d.views("a") == before  # more than half of the lease is left


def test_leases_of_which_less_than_half_is_left_are_renewed_by_the_way() -> None:
    d = joined(Srtf(), 2)
    held = d.held("a")
    d.do(60, ev.AppJoined("b", gang(3)))
    assert answer(d, 60) == {"b"}
    assert [(v.held, v.expires_s) for v in d.views("a")] == [(held, 170)]
    # All leases of a round end together.
    assert [v.expires_s for v in d.views("b")] == [170]


def test_when_gpus_are_scarce_everybody_is_asked() -> None:
    d = joined(Srtf(), 2, 3)
    d.do(1, ev.AppJoined("c", gang(4)))
    assert answer(d, 1) == {"a", "b", "c"}


def test_a_round_is_widened_when_somebody_wants_more_than_it_had_said() -> None:
    d = joined(Srtf(), 2, 3)
    short = ev.JobReport("0", 1, 1.0, 4, 4, spans=True)
    d.do(1, ev.AppJoined("c", gang(2)))
    current = d.arbiter.round
    assert current is not None
    assert current.waiting == {"c"}
    assert current.pool.size == 3
    d.do(1, ev.Reported("c", report(4, gang=4, jobs=(short,)), current.id))
    assert {c.app for c in d.heard(RequestReport)} == {"a", "b"}
    assert current.pool.size == 8
    assert answer(d, 1) == {"a", "b"}
    # The shortest job gets what it wants, and one of the others has to make room.
    promised = sum(
        lease.held.size + lease.pending.size for lease in d.arbiter.state.apps["c"].leases.values()
    )
    assert promised == 4


def test_a_round_is_widened_when_the_free_gpus_lie_too_far_apart() -> None:
    d = joined(Srtf(), 2, 3)
    d.do(1, ev.AppJoined("c", gang(3, spans=False)))
    assert answer(d, 1) == {"a", "b", "c"}


def test_a_round_is_widened_when_somebody_set_apart_wants_something_else() -> None:
    d = joined(Srtf(), 2, 3)
    d.do(1, ev.AppJoined("c", gang(2)))
    d.do(1, ev.Reported("a", gang(1)))
    assert d.arbiter.round is not None
    d.do(1, ev.Reported("c", gang(2), d.arbiter.round.id))
    assert {c.app for c in d.heard(RequestReport)} == {"a", "b"}
    answer(d, 1)
    assert sum(not v.final for v in d.views("a")) == 1
    kept = sum(lease.held.size for lease in d.arbiter.state.apps["a"].leases.values())
    assert kept == 1  # no group is on the other one, so it is free at once


def test_an_app_that_was_set_apart_may_leave_meanwhile() -> None:
    d = joined(Srtf(), 2, 3)
    d.do(60, ev.AppJoined("c", gang(2)))
    d.do(60, ev.AppLeft("a"))
    answer(d, 60)
    assert d.held("c").size == 2
    assert d.held("b").size == 3


def test_what_a_policy_remembers_of_all_is_not_lost() -> None:
    class Remembering(Srtf):
        """Notes whom it has seen."""

        def allocate(self, view: RoundView, bids: Mapping[str, BidTable]) -> Outcome:
            outcome = super().allocate(view, bids)
            return Outcome(outcome.awards, outcome.reasons, {"seen": sorted(view.apps)})

    d = joined(Remembering(), 2)
    d.do(90)
    assert [c.app for c in d.heard(RequestReport)] == ["a"]


def test_a_cluster_that_grows_asks_everybody() -> None:
    d = joined(Srtf(), 2)
    d.do(1, ev.ClusterChanged((*M8, Machine("m2", 4))))
    assert answer(d, 1) == {"a"}


@pytest.mark.parametrize("steady", [True, False])
def test_the_same_is_decided_as_when_all_are_asked(steady: bool) -> None:
    d = Driver(Drf(), machines=M8)
    for now, name, size in ((0, "a", 1), (0, "b", 3), (1, "c", 2), (30, "d", 1)):
        join(d, now, name, gang(size, steady=steady))
    for now in (90, 91, 120, 190, 200):
        d.do(now)
        answer(d, now)
    assert {name: (d.held(name).size, d.views(name)[0].expires_s) for name in "abcd"} == {
        "a": (1, 300),
        "b": (3, 300),
        "c": (2, 310),
        "d": (1, 230),
    }


class Watching(Srtf):
    """Notes which apps it sees, and which there are."""

    def __init__(self) -> None:
        self.seen: list[tuple[list[str], list[str]]] = []

    def allocate(self, view: RoundView, bids: Mapping[str, BidTable]) -> Outcome:
        self.seen.append((sorted(view.apps), sorted(view.everybody)))
        return super().allocate(view, bids)


def test_with_gpus_for_all_a_policy_sees_those_whom_the_round_concerns() -> None:
    policy = Watching()
    d = joined(policy, 2, 3)
    policy.seen.clear()
    join(d, 1, "c", gang(3))
    assert policy.seen == [(["c"], ["a", "b", "c"])]
    join(d, 2, "d", gang(2))  # one too many
    assert policy.seen[1:] == [(["a", "b", "c", "d"], ["a", "b", "c", "d"])]


def test_nothing_apart_is_found_out_to_be_scarce_before_anything_is_decided() -> None:
    """No lease could be set apart, but the policy was to see only the new one."""
    policy = Watching()
    d = Driver(policy, machines=M8)
    d.do(0, ev.AppJoined("a", gang(3)))
    current = d.arbiter.round
    assert current is not None
    assert current.apart
    assert not current.calm
    d.do(0, ev.Reported("a", gang(9), current.id))  # more than there is
    assert policy.seen == [(["a"], ["a"])]
    assert not current.apart


class Looking(Themis):
    """Notes the rounds that it is shown."""

    seen: ClassVar[list[RoundView]] = []

    def bidders(self, view: RoundView) -> tuple[str, ...]:
        self.seen.append(view)
        return super().bidders(view)

    def allocate(self, view: RoundView, bids: Mapping[str, BidTable]) -> Outcome:
        self.seen.append(view)
        return super().allocate(view, bids)


@pytest.mark.parametrize("meanwhile", ["nothing", "a report", "time"])
def test_a_policy_decides_on_what_it_saw_unless_that_has_changed(meanwhile: str) -> None:
    Looking.seen.clear()
    d = Driver(Looking(), machines=M8)
    d.do(0, ev.AppJoined("a", gang(2)))
    d.do(0, ev.AppJoined("b", gang(2)))
    answer(d, 0)
    if meanwhile == "a report":
        d.do(0, ev.Reported("b", gang(1)))
    bid(d, 1 if meanwhile == "time" else 0)
    offered, decided = Looking.seen[0], Looking.seen[-1]
    assert (decided is offered) is (meanwhile == "nothing")
    assert decided.now_s == (1 if meanwhile == "time" else 0)
    assert decided.apps["b"].report.wants == (1 if meanwhile == "a report" else 2)
