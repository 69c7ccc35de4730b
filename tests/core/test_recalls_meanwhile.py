"""Apps that leave, fail or are silent while GPUs are being recalled."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from arbiter_driver import gpus, report
from hypothesis import given
from hypothesis import strategies as st
from recalling_world import Halving, Recalling, World, full, only

from themis_ray.core import events as ev
from themis_ray.core.bids import BidTable
from themis_ray.core.cluster import NOTHING, Machine
from themis_ray.core.commands import (
    CreateGroup,
    Decided,
    RemoveGroup,
)
from themis_ray.core.policies import Outcome, RoundView
from themis_ray.core.policies.base import Recall
from themis_ray.core.rounds import Phase

# -- who leaves, dies or is silent meanwhile ---------------------------------------------------


def asked(world: World, now: float, phase: Phase) -> None:
    """App ``b`` has come, and its round has got as far as this."""
    world.do(now, ev.AppJoined("b", report(1)))
    if phase is Phase.BIDDING:
        world.report_all(now)
    assert world.arbiter.phase is phase


@pytest.mark.parametrize("phase", [Phase.REPORTING, Phase.BIDDING])
def test_the_holder_may_leave_while_the_round_asks(phase: Phase) -> None:
    world = full(a=gpus(m0=1))
    asked(world, 30, phase)
    if phase is Phase.REPORTING:
        world.policy.take = {}
    world.run(31, ev.AppLeft("a"))
    for group in sorted(world.arbiter.state.groups):
        world.run(32, ev.GroupGone(group))
    assert world.held("b") == gpus(m0=1)
    world.close()


def test_who_needs_the_gpus_may_leave_before_any_are_recalled() -> None:
    world = full()
    asked(world, 30, Phase.REPORTING)
    before = world.arbiter.reason("a")
    said = world.run(31, ev.AppLeft("b"))
    assert not only(Decided, said)
    assert world.arbiter.reason("a") == before
    assert world.leases("a") == [(gpus(m0=4), NOTHING, 100, False)]
    world.close()


def test_who_needs_the_gpus_may_leave_when_they_have_been_recalled() -> None:
    """The holder wins them again."""
    world = full(a=gpus(m0=1))
    asked(world, 30, Phase.BIDDING)
    said = world.run(31, ev.AppLeft("b"))
    assert world.held("a") == gpus(m0=4)
    assert not any(lease[3] for lease in world.leases("a"))
    assert not only(RemoveGroup, said)
    assert world.arbiter.reason("a").kind == "Assigned"
    world.close()


def test_a_holder_that_does_not_bid_loses_what_was_recalled_and_no_more() -> None:
    world = full(a=gpus(m0=1))
    asked(world, 30, Phase.BIDDING)
    current = world.arbiter.round
    assert current is not None
    world.do(31, ev.BidReceived(current.id, BidTable("b", math.inf)))
    world.do(32)  # the bid timeout
    assert world.arbiter.phase is Phase.IDLE
    assert world.leases("a") == [
        (gpus(m0=1), NOTHING, 42, True),  # the notice begins with the decision
        (gpus(m0=3), NOTHING, 100, False),
    ]
    world.close()


def test_a_holder_knows_all_its_leases_while_it_bids() -> None:
    """Its lease has been divided."""
    world = full(a=gpus(m0=1))
    asked(world, 30, Phase.BIDDING)
    assert world.told("a") == world.views("a")
    world.close()


def test_gpus_that_are_lost_while_the_round_asks_are_not_given_out() -> None:
    world = full(a=gpus(m0=4))
    asked(world, 30, Phase.BIDDING)
    world.run(31, ev.ClusterChanged(()))
    assert world.leases("a") == []
    assert world.leases("b") == []
    world.close()


def test_a_policy_that_fails_leaves_the_holders_their_gpus() -> None:
    """The round is over, and all leases end when they would have ended."""

    class Failing(Recalling):
        def allocate(self, view: RoundView, bids: Mapping[str, BidTable]) -> Outcome:
            if self.take:
                raise ValueError("out of luck")
            return super().allocate(view, bids)

    world = full(Failing())
    world.policy.take = {"a": gpus(m0=1)}
    with pytest.raises(ValueError, match="out of luck"):
        world.comes(30, "b", 1)
    world.policy.take = {}
    assert world.arbiter.phase is Phase.IDLE
    assert world.held("a") == gpus(m0=4)
    assert [(v[2], v[3]) for v in world.leases("a")] == [(100, False)] * 2
    # What has been split off is renewed by itself, also when the rest has been given back.
    world.run(40, ev.Reported("a", report(1)))
    for group in ("g1", "g2"):
        world.run(40, ev.GroupReleased("a", group), ev.GroupGone(group))
    world.run(40, ev.GpusReturned("a", gpus(m0=3)))
    assert world.leases("a") == [(gpus(m0=1), NOTHING, 100, False)]
    world.run(90)
    assert world.leases("a") == [(gpus(m0=1), NOTHING, 200, False)]
    world.close()


def test_a_policy_that_fails_to_say_what_to_recall_holds_nobody_up() -> None:
    """The round is over, and the next one is held as ever."""

    class Failing(Recalling):
        def recall(self, view: RoundView) -> Mapping[str, Recall]:
            raise ValueError("out of luck")

    world = full(Failing())
    world.do(30, ev.AppJoined("b", report(1)))
    with pytest.raises(ValueError, match="out of luck"):
        world.report_all(30)
    assert world.arbiter.phase is Phase.IDLE
    world.run(90)
    assert world.leases("b") == [(NOTHING, gpus(m0=1), 200, False)]
    world.close()


# -- any history -------------------------------------------------------------------------------

STEPS = st.sampled_from(["join", "more", "leave", "group", "gone", "time", "shrink"])


@given(st.lists(st.tuples(STEPS, st.integers(0, 5), st.integers(1, 4)), max_size=25), st.booleans())
def test_the_books_are_right_whatever_is_recalled(
    steps: list[tuple[str, int, int]], last_first: bool
) -> None:
    """Half of all that is held is recalled whenever somebody comes to want more."""
    policy = Halving(last_first=last_first)
    world = World(policy, (Machine("m0", 4), Machine("m1", 2)))
    now = 0.0
    for names, (what, which, count) in enumerate(steps):
        apps, state = sorted(world.arbiter.state.apps), world.arbiter.state
        groups = sorted(state.groups)
        app = apps[which % len(apps)] if apps else ""
        if what == "join" and len(apps) < 5:
            world.comes(now, f"a{names}", count)
        elif what == "more" and app:
            world.run(now, ev.Reported(app, report(count + 1)))
        elif what == "leave" and app:
            world.run(now, ev.AppLeft(app))
        elif what == "group" and app:
            idle = state.ledger.idle(app)
            for machine in list(idle)[:1]:
                said = world.run(now, ev.GroupRequested(app, f"g{names}", gpus(**{machine: 1})))
                assert only(CreateGroup, said)
                world.run(now, ev.GroupReady(f"g{names}"))
        elif what == "gone" and groups:
            world.run(now, ev.GroupGone(groups[which % len(groups)]))
        elif what == "shrink":
            world.run(now, ev.ClusterChanged((Machine("m0", count), Machine("m1", 2))))
        else:
            due_s = world.arbiter.wakeup_s()
            now = now + 7.0 * count if due_s is None else min(due_s, now + 7.0 * count)
            world.run(now)
    world.close()
