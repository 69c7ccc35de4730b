from __future__ import annotations

import pytest

from themis_ray.core.cluster import NOTHING, Allocation, Cluster, Machine
from themis_ray.core.commands import CreateGroup, GroupRefused, LeasesChanged, RemoveGroup
from themis_ray.core.events import AppReport
from themis_ray.core.explain import GaveBack, Handover, LeaseEnded, NotHeld, Waiting
from themis_ray.core.leases import GROUP_TRANSITIONS, Group, GroupState, Lease
from themis_ray.core.state import App, State

REPORT = AppReport(1.0, 1.0, 1.0, 1)


def gpus(**counts: int) -> Allocation:
    return Allocation(counts)


def make(*apps: str, **machines: int) -> State:
    state = State()
    state.set_cluster(Cluster(tuple(Machine(m, c) for m, c in machines.items())), 0)
    for app in apps:
        integral = state.contention.change(0, 1)
        state.apps[app] = App(app, 1.0, 0, integral, REPORT, Waiting(0))
    return state


def lease(state: State, app: str, on: Allocation, expires_s: float = 100) -> Lease:
    made = state.new_lease(state.apps[app], on, 0, expires_s)
    state.settle(0)
    return made


def group(state: State, app: str, name: str, on: Allocation, requested_s: float = 0) -> Group:
    made = Group(name, app, on, requested_s)
    state.groups[name] = state.apps[app].groups[name] = state.waiting[name] = made
    state.start_waiting()
    return made


def test_service_is_the_integral_of_what_is_held() -> None:
    state = make("a", m0=4)
    first = lease(state, "a", gpus(m0=3))
    state.unhold(first, gpus(m0=2), 10)
    state.touch(state.apps["a"], 15)
    state.touch(state.apps["a"], 15)
    assert state.apps["a"].attained_gpu_s == 3 * 10 + 1 * 5


def test_renewal_moves_gpus_without_giving_them_up() -> None:
    state = make("a", m0=4)
    old = lease(state, "a", gpus(m0=4))
    new = state.new_lease(state.apps["a"], gpus(m0=3), 5, 200)
    state.move(old, new, old.held & new.pending)
    assert (old.held, new.held, new.pending) == (gpus(m0=1), gpus(m0=3), NOTHING)
    assert state.ledger.entitled("a") == gpus(m0=4)
    assert not state.pending


def test_settling_serves_the_older_decision_first() -> None:
    state = make("a", "b", "c", m0=2)
    held = lease(state, "c", gpus(m0=2))
    first = lease(state, "a", gpus(m0=1))
    second = lease(state, "b", gpus(m0=1))
    state.flush()
    state.unhold(held, gpus(m0=1), 1)
    state.settle(1)
    assert (first.held, second.held) == (gpus(m0=1), NOTHING)
    assert state.changed == {"a": Handover(gpus(m0=1))}


def test_unclaimed_is_what_nobody_holds_or_awaits() -> None:
    state = make("a", "b", m0=4, m1=4)
    lease(state, "a", gpus(m0=3))
    lease(state, "b", gpus(m0=2, m1=1))
    assert state.ledger.free() == gpus(m1=3)
    assert state.apps["b"].pending == gpus(m0=1)
    assert state.unclaimed() == gpus(m1=3)


def test_the_newest_group_is_forced_out_first_and_no_more_than_needed() -> None:
    state = make("a", m0=6)
    short = lease(state, "a", gpus(m0=2), expires_s=50)
    lease(state, "a", gpus(m0=4))
    for i in range(3):
        group(state, "a", f"g{i}", gpus(m0=2), requested_s=i)
    state.flush()
    state.end_lease(short, 50, 5)
    assert state.apps["a"].force_s == 55
    state.force(state.apps["a"], 54.9)
    assert not state.commands
    state.force(state.apps["a"], 55)
    removed = [c.group for c in state.flush() if isinstance(c, RemoveGroup)]
    assert removed == ["g2"]
    assert state.apps["a"].force_s is None


def test_what_is_leaving_already_counts_for_the_force() -> None:
    state = make("a", m0=4)
    short = lease(state, "a", gpus(m0=4), expires_s=50)
    groups = [group(state, "a", f"g{i}", gpus(m0=2)) for i in range(2)]
    state.end_lease(short, 50, 5)
    state.end_group(groups[0], GaveBack(gpus(m0=2)))
    state.flush()
    state.force(state.apps["a"], 55)
    assert [c.group for c in state.flush() if isinstance(c, RemoveGroup)] == ["g1"]


def test_waiting_groups_start_or_are_refused() -> None:
    state = make("a", m0=2)
    held = lease(state, "a", gpus(m0=2))
    first = group(state, "a", "g1", gpus(m0=2))
    second = group(state, "a", "g2", gpus(m0=1))
    assert (first.state, second.state) == (GroupState.CREATING, GroupState.WAITING)
    assert state.flush()[0] == CreateGroup("a", "g1", gpus(m0=2))
    state.unhold(held, gpus(m0=2), 1)
    state.start_waiting()
    refused = [c for c in state.flush() if isinstance(c, GroupRefused)]
    assert refused == [GroupRefused("a", "g2", NotHeld(gpus(m0=1), NOTHING))]
    assert second.state is GroupState.GONE
    assert set(state.groups) == {"g1"}


@pytest.mark.parametrize("at", [s for s in GroupState if s is not GroupState.GONE])
@pytest.mark.parametrize("what", ["fits", "ready", "failed", "end", "gone"])
def test_groups_move_by_their_table_only(at: GroupState, what: str) -> None:
    state = make("a", m0=2)
    lease(state, "a", gpus(m0=2))
    made = Group("g", "a", gpus(m0=2), 0)
    state.groups["g"] = state.apps["a"].groups["g"] = state.waiting["g"] = made
    path = {
        GroupState.WAITING: [],
        GroupState.CREATING: ["fits"],
        GroupState.LIVE: ["fits", "ready"],
        GroupState.ENDING: ["fits", "end"],
    }
    assert all(state.shift(made, step) for step in path[at])
    target = GROUP_TRANSITIONS.get((at, what))
    assert state.shift(made, what) == (target is not None)
    assert made.state is (target or at)
    assert state.ledger.physical("a") == (gpus(m0=2) if made.occupies else NOTHING)
    assert ("g" in state.groups) == (made.state is not GroupState.GONE)


def test_an_app_is_told_once_in_an_event_and_remembers_the_decision() -> None:
    state = make("a", m0=2)
    ending = lease(state, "a", gpus(m0=2), expires_s=10)
    state.flush()
    state.apps["a"].reason = GaveBack(gpus(m0=1))
    state.end_lease(ending, 10, 0)
    commands = state.flush()
    assert commands == [LeasesChanged("a", (), LeaseEnded("L1", gpus(m0=2)))]
    assert state.apps["a"].reason == GaveBack(gpus(m0=1))  # the decision, not what followed
    assert state.flush() == []


def test_lost_capacity_is_taken_from_what_ends_anyway_then_from_the_newest() -> None:
    state = make("old", "new", "ending", m0=6)
    for granted_s, name in enumerate(("ending", "old", "new")):
        made = state.new_lease(state.apps[name], gpus(m0=2), granted_s, 100)
        made.final = name == "ending"
        state.settle(granted_s)
        group(state, name, f"g-{name}", gpus(m0=2))
    state.flush()
    state.set_cluster(Cluster((Machine("m0", 3),)), 5)
    assert [state.ledger.entitled(a).size for a in ("ending", "new", "old")] == [0, 1, 2]
    assert set(state.changed) == {"ending", "new"}
