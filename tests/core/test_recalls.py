"""Leases that are put up before their end, for a demand that cannot wait for it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from arbiter_driver import CONFIG, gpus, report
from recalling_world import NotRecalling, Recalling, World, full, only, why

from themis_ray.core import events as ev
from themis_ray.core.cluster import NOTHING
from themis_ray.core.commands import (
    Command,
    Decided,
    LeasesChanged,
    RemoveGroup,
    RequestReport,
    SendOffer,
)
from themis_ray.core.explain import LeaseEnded
from themis_ray.core.leases import GroupState
from themis_ray.core.policies.base import AppView
from themis_ray.core.rounds import Phase

# -- what is recalled ------------------------------------------------------------------------


def test_what_is_recalled_is_split_off_and_the_rest_goes_on() -> None:
    world = full(a=gpus(m0=1))
    said = world.comes(30, "b", 1)
    assert world.leases("a") == [
        (gpus(m0=1), NOTHING, 40, True),  # it ends with the notice
        (gpus(m0=3), NOTHING, 100, False),
    ]
    # The lease of the winner begins when the GPU is due.
    assert world.leases("b") == [(NOTHING, gpus(m0=1), 140, False)]
    assert not only(RemoveGroup, said)
    world.close()


def test_all_apps_report_and_what_is_recalled_is_offered_besides_what_is_kept() -> None:
    world = full(a=gpus(m0=1))
    said = world.comes(30, "b", 1)
    asked = {c.app: c.kept for c in only(RequestReport, said)}
    assert asked == {"a": gpus(m0=4), "b": NOTHING}
    offers = {c.app: (c.offer, c.kept, c.expiring) for c in only(SendOffer, said)}
    assert offers == {
        "a": (gpus(m0=1), gpus(m0=3), gpus(m0=1)),
        "b": (gpus(m0=1), NOTHING, NOTHING),
    }
    world.close()


def test_a_policy_sees_what_there_is_to_be_had_without_a_recall() -> None:
    world = full()
    world.comes(30, "b", 1)
    (view,) = world.policy.views
    assert view.pool == NOTHING
    a: AppView = view.apps["a"]
    assert (a.kept, a.expiring, a.kept_until_s) == (gpus(m0=4), NOTHING, 100)
    assert (view.apps["b"].kept, view.apps["b"].kept_until_s) == (NOTHING, math.inf)
    world.close()


def test_who_loses_is_told_why_and_who_wins_gets_the_gpus_when_they_have_been_left() -> None:
    world = full(a=gpus(m0=1))
    said = world.comes(30, "b", 1)
    assert world.arbiter.reason("a") == why(gpus(m0=1))
    told = [c.reason for c in only(LeasesChanged, said) if c.app == "a"]
    assert told[-1] == why(gpus(m0=1))
    (decided,) = only(Decided, said)
    assert decided.reasons["a"] == why(gpus(m0=1))
    assert decided.reasons["b"].kind == "Assigned"
    world.do(35, ev.GroupReleased("a", "g3"))
    assert world.held("b") == NOTHING  # a group that is asked to go is not gone
    world.do(36, ev.GroupGone("g3"))
    assert world.leases("a") == [(gpus(m0=3), NOTHING, 100, False)]
    assert world.leases("b") == [(gpus(m0=1), NOTHING, 140, False)]
    assert world.arbiter.reason("a") == why(gpus(m0=1))
    world.close()


def test_what_is_recalled_and_not_left_is_taken_by_force_after_the_grace() -> None:
    world = full(a=gpus(m0=1))
    world.comes(30, "b", 1)
    world.run(39)
    assert world.held("a") == gpus(m0=4)
    said = world.run(40)
    assert world.held("a") == gpus(m0=3)
    assert [type(c.reason) for c in only(LeasesChanged, said)] == [LeaseEnded]
    assert world.arbiter.reason("a") == why(gpus(m0=1))
    assert not only(RemoveGroup, world.run(43))
    (removed,) = only(RemoveGroup, world.run(44))
    freed = world.arbiter.state.groups[removed.group].allocation.size
    world.do(45, ev.GroupGone(removed.group))
    assert world.held("b") == gpus(m0=1)
    left = world.arbiter.state.ledger.physical("a")
    assert left.size == 4 - freed
    world.close()


def test_what_is_recalled_and_in_use_by_nobody_changes_hands_in_the_round() -> None:
    world = World(Recalling({"a": gpus(m0=3)}))
    world.comes(0, "a", 4)
    world.runs(0, "a", g1=gpus(m0=1))
    world.comes(30, "b", 3)
    assert world.leases("a") == [(gpus(m0=1), NOTHING, 100, False)]
    assert world.leases("b") == [(gpus(m0=3), NOTHING, 140, False)]
    assert world.arbiter.reason("a") == why(gpus(m0=3))
    world.close()


def test_a_lease_that_is_recalled_whole_is_not_split() -> None:
    world = full(a=gpus(m0=4))
    world.comes(30, "b", 4)
    assert world.leases("a") == [(gpus(m0=4), NOTHING, 40, True)]
    assert [v.id for v in world.views("a")] == ["L1"]
    assert world.leases("b") == [(NOTHING, gpus(m0=4), 140, False)]
    world.close()


def test_what_is_recalled_and_won_again_goes_on_without_a_break() -> None:
    world = full(Recalling({"a": gpus(m0=2)}, last_first=False))
    said = world.comes(30, "b", 1)
    assert world.held("a") == gpus(m0=4)
    assert world.leases("a") == [
        (gpus(m0=2), NOTHING, 100, False),
        (gpus(m0=2), NOTHING, 140, False),
    ]
    assert world.leases("b") == []
    (decided,) = only(Decided, said)
    assert {app: reason.kind for app, reason in decided.reasons.items()} == {
        "a": "Assigned",
        "b": "Outbid",
    }
    assert world.arbiter.reason("a").kind == "Assigned"
    for now in (40, 44, 90, 100, 104, 130, 140, 144):
        said = world.run(now)
        assert not only(RemoveGroup, said)
        assert world.held("a") == gpus(m0=4)
    assert {g.state for g in world.arbiter.state.groups.values()} == {GroupState.LIVE}
    world.close()


def test_who_wins_a_part_again_is_told_why_it_has_lost_the_other() -> None:
    world = full(a=gpus(m0=2))
    world.comes(30, "b", 1)
    assert world.leases("a") == [
        (gpus(m0=1), NOTHING, 40, True),
        (gpus(m0=2), NOTHING, 100, False),
        (gpus(m0=1), NOTHING, 140, False),
    ]
    assert world.arbiter.reason("a") == why(gpus(m0=2))
    world.close()


def test_what_an_app_does_not_hold_is_passed_over() -> None:
    """Of the six GPUs of one machine and the two of another that are named, it has four."""
    world = full(a=gpus(m0=6, m9=2), b=gpus(m0=1))
    world.comes(30, "b", 4)
    assert world.leases("a") == [(gpus(m0=4), NOTHING, 40, True)]
    assert world.leases("b") == [(NOTHING, gpus(m0=4), 140, False)]
    world.close()


def test_gpus_of_several_leases_are_recalled_one_lease_after_the_other() -> None:
    """Leases on two and two GPUs of a machine; of three recalled, one goes on."""
    world = World(Recalling())
    world.comes(0, "a", 2)
    world.run(20, ev.Reported("a", report(4)))
    world.runs(20, "a", g1=gpus(m0=1), g2=gpus(m0=1), g3=gpus(m0=1), g4=gpus(m0=1))
    assert [v[2] for v in world.leases("a")] == [100, 120]
    world.policy.take = {"a": gpus(m0=3)}
    world.comes(30, "b", 3)
    assert world.leases("a") == [
        (gpus(m0=2), NOTHING, 40, True),
        (gpus(m0=1), NOTHING, 40, True),
        (gpus(m0=1), NOTHING, 120, False),
    ]
    world.close()


def test_of_a_lease_that_awaits_gpus_what_it_has_is_recalled_and_it_awaits_the_rest() -> None:
    """At 92, ``b`` has two of four GPUs that it has won, and ``a`` is about to leave the others."""
    world = World(Recalling(last_first=False))
    world.comes(0, "a", 4)
    world.runs(0, "a", g1=gpus(m0=2), g2=gpus(m0=2))
    world.comes(1, "b", 4)
    world.do(50, ev.Reported("a", report(0)))
    world.run(90)
    world.do(92, ev.GroupReleased("a", "g1"), ev.GroupGone("g1"))
    world.runs(92, "b", h1=gpus(m0=2))
    assert world.leases("b") == [(gpus(m0=2), gpus(m0=2), 200, False)]
    world.policy.take = {"b": gpus(m0=4)}
    world.policy.last_first = True
    world.comes(95, "c", 1)
    assert world.leases("b") == [
        (gpus(m0=1), NOTHING, 105, True),
        (NOTHING, gpus(m0=2), 200, False),  # what it awaits is not recalled
        (gpus(m0=1), NOTHING, 205, False),
    ]
    assert world.leases("c") == [(NOTHING, gpus(m0=1), 205, False)]
    assert world.arbiter.reason("b") == why(gpus(m0=4))
    world.do(96, ev.GroupReleased("a", "g2"), ev.GroupGone("g2"))
    assert (gpus(m0=2), NOTHING, 200, False) in world.leases("b")
    world.close()


def test_leases_near_their_end_are_put_up_as_ever_beside_what_is_recalled() -> None:
    """At 110 the lease of ``b`` is within its notice; that of ``a`` would go on until 200."""
    world = World(Recalling())
    world.comes(0, "a", 2)
    world.comes(20, "b", 2)
    world.runs(20, "a", g1=gpus(m0=1), g2=gpus(m0=1))
    world.runs(20, "b", h1=gpus(m0=1), h2=gpus(m0=1))
    world.run(90)  # renewed, as nobody wants more
    assert [v[2] for v in world.leases("a")] == [200]
    world.policy.take = {"a": gpus(m0=2)}
    world.comes(110, "c", 4)
    assert world.leases("a") == [(gpus(m0=2), NOTHING, 120, True)]
    assert world.leases("b") == [(gpus(m0=2), NOTHING, 120, True)]
    assert world.arbiter.reason("a") == why(gpus(m0=2))
    assert world.arbiter.reason("b").kind == "Outbid"
    assert world.leases("c") == [(NOTHING, gpus(m0=4), 220, False)]
    world.close()


# -- when nothing is recalled ----------------------------------------------------------------


def test_with_no_recall_and_nothing_to_give_out_nothing_is_decided() -> None:
    world = full()
    before = {"a": world.arbiter.reason("a")}
    said = world.do(30, ev.AppJoined("b", report(1)))
    before["b"] = world.arbiter.reason("b")
    begin = len(world.history)
    assert {c.app for c in said if isinstance(c, RequestReport)} == {"a", "b"}
    world.report_all(30)
    assert world.history[begin:] == []
    assert world.arbiter.phase is Phase.IDLE
    assert {app: world.arbiter.reason(app) for app in "ab"} == before
    assert world.leases("a") == [(gpus(m0=4), NOTHING, 100, False)]
    # The next round is one as ever.
    assert world.arbiter.wakeup_s() == 90
    said = world.run(90)
    assert {c.app for c in only(RequestReport, said)} == {"a", "b"}
    assert [set(c.reasons) for c in only(Decided, said)] == [{"a", "b"}]
    assert world.leases("b") == [(NOTHING, gpus(m0=1), 200, False)]
    assert world.arbiter.reason("a").kind != "Recalled"
    world.close()


def test_with_no_recall_what_is_free_is_given_out() -> None:
    world = World(Recalling())
    world.comes(0, "a", 3)
    said = world.comes(30, "b", 2)
    assert {c.app for c in only(RequestReport, said)} == {"a", "b"}
    assert world.leases("a") == [(gpus(m0=3), NOTHING, 100, False)]
    assert world.leases("b") == [(gpus(m0=1), NOTHING, 130, False)]
    assert len(only(Decided, said)) == 1
    world.close()


def recalled_nothing(world: World, said: Iterable[Command], *asked: str) -> None:
    """The policy was not asked, and of the apps only these were."""
    assert not world.policy.views
    assert {c.app for c in only(RequestReport, said)} == set(asked)
    assert not any(lease[3] for lease in world.leases("a"))
    world.close()


def test_a_policy_that_does_not_recall_is_not_asked() -> None:
    world = full(NotRecalling({"a": gpus(m0=1)}))
    recalled_nothing(world, world.comes(30, "b", 1))


def test_with_enough_free_gpus_nobody_is_asked_whose_to_recall() -> None:
    world = World(Recalling({"a": gpus(m0=1)}))
    world.comes(0, "a", 2)
    said = world.comes(30, "b", 2)
    assert world.leases("b") == [(gpus(m0=2), NOTHING, 130, False)]
    recalled_nothing(world, said, "b")


def test_gpus_that_come_free_recall_no_others() -> None:
    """``b`` still wants more than is free, but not more than it has wanted all along."""
    world = full()
    world.comes(30, "b", 3)
    policy = world.policy
    policy.views.clear()
    policy.take = {"a": gpus(m0=1)}
    world.do(50, ev.GroupReleased("a", "g1"), ev.GroupGone("g1"))
    said = world.run(51, ev.GpusReturned("a", gpus(m0=1)))
    assert world.leases("b") == [(gpus(m0=1), NOTHING, 151, False)]
    assert {c.app for c in only(RequestReport, said)} >= {"b"}
    assert not policy.views
    assert world.leases("a") == [(gpus(m0=3), NOTHING, 100, False)]
    world.close()


def test_a_demand_is_looked_at_once() -> None:
    world = full()
    policy = world.policy
    world.comes(30, "b", 1)
    assert len(policy.views) == 1
    world.run(31, ev.Reported("b", report(1, r=3.0)))
    world.run(32)
    assert len(policy.views) == 1
    world.run(33, ev.Reported("b", report(2)))  # a new demand
    assert len(policy.views) == 2
    world.close()


def test_an_app_that_comes_to_want_more_may_have_others_gpus_recalled() -> None:
    world = World(Recalling({"a": gpus(m0=1)}))
    world.comes(0, "a", 3)
    world.comes(1, "b", 1)
    world.runs(1, "a", g1=gpus(m0=3))
    world.run(40, ev.Reported("b", report(2)))
    assert world.leases("b") == [
        (gpus(m0=1), NOTHING, 101, False),
        (NOTHING, gpus(m0=1), 150, False),
    ]
    world.close()


def test_a_demand_waits_for_what_comes_with_it() -> None:
    """Rounds are held 5 s after a change; the demand of both is looked at together."""
    delay = replace(CONFIG, round_delay_s=5)
    world = World(Recalling(), config=delay)
    world.comes(0, "a", 4)
    world.run(5)
    world.runs(5, "a", g1=gpus(m0=4))
    assert world.held("a") == gpus(m0=4)
    world.policy.take = {"a": gpus(m0=2)}
    assert not only(RequestReport, world.comes(30, "b", 1) + world.comes(32, "c", 1))
    said = world.run(35)
    assert {c.app for c in only(RequestReport, said)} == {"a", "b", "c"}
    assert [world.arbiter.state.apps[app].pending for app in "bc"] == [gpus(m0=1)] * 2
    world.close()
