from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis_ray.core.cluster import Allocation
from themis_ray.core.leases import GROUP_TRANSITIONS, Group, GroupState, Ledger
from themis_ray.testing.strategies import allocations

CAPACITY = {"m0": 8, "m1": 4, "m2": 0}
steps = st.lists(
    st.tuples(
        st.sampled_from(["entitle", "occupy"]),
        st.sampled_from(["a", "b"]),
        allocations(3, 3),
        st.sampled_from([1, -1]),
    ),
    max_size=30,
)


@given(steps)
def test_the_ledger_is_what_counting_gives(
    steps: list[tuple[str, str, Allocation, int]],
) -> None:
    ledger = Ledger(dict(CAPACITY))
    naive: dict[str, Counter[tuple[str, str]]] = {"entitle": Counter(), "occupy": Counter()}
    for what, app, change, sign in steps:
        counts = naive[what]
        if sign < 0 and any(counts[app, m] < c for m, c in change.items()):
            continue
        getattr(ledger, what)(app, change, sign)
        for machine, count in change.items():
            counts[app, machine] += sign * count
        _compare(ledger, naive["entitle"], naive["occupy"])


def _compare(
    ledger: Ledger, entitled: Counter[tuple[str, str]], physical: Counter[tuple[str, str]]
) -> None:
    for app in ("a", "b"):
        for machine in CAPACITY:
            may, has = entitled[app, machine], physical[app, machine]
            assert ledger.entitled(app).on(machine) == may
            assert ledger.physical(app).on(machine) == has
            assert ledger.excess(app).on(machine) == max(0, has - may)
            assert ledger.idle(app).on(machine) == max(0, may - has)
    for machine, capacity in CAPACITY.items():
        used = sum(max(entitled[app, machine], physical[app, machine]) for app in ("a", "b"))
        assert ledger.free_on(machine) == capacity - used
        assert ledger.free().on(machine) == max(0, capacity - used)
        all_ = sum(entitled[app, machine] for app in ("a", "b"))
        assert ledger.entitled_to_all().on(machine) == all_


def test_more_than_there_is_cannot_be_taken_away() -> None:
    ledger = Ledger({"m0": 2})
    ledger.entitle("a", Allocation({"m0": 1}))
    with pytest.raises(AssertionError, match="a: -1 GPUs on m0"):
        ledger.entitle("a", Allocation({"m0": 2}), -1)


def test_a_group_takes_up_gpus_from_its_creation_until_it_is_gone() -> None:
    group = Group("g", "a", Allocation({"m0": 1}), 0.0)
    occupies = {}
    for state in GroupState:
        group.state = state
        occupies[state.value] = group.occupies
    assert occupies == {
        "waiting": False,
        "creating": True,
        "live": True,
        "ending": True,
        "gone": False,
    }


def test_every_group_can_end_and_nothing_comes_back() -> None:
    reach = {s: {t for (a, _), t in GROUP_TRANSITIONS.items() if a is s} for s in GroupState}
    assert not reach[GroupState.GONE]
    for state in set(GroupState) - {GroupState.GONE}:
        seen, todo = {state}, [state]
        while todo:
            for target in reach[todo.pop()] - seen:
                seen.add(target)
                todo.append(target)
        assert GroupState.GONE in seen
    assert GroupState.LIVE not in reach[GroupState.ENDING]


def test_what_is_free_follows_a_new_capacity() -> None:
    ledger = Ledger({"m0": 2, "m1": 3})
    ledger.entitle("a", Allocation({"m0": 2}))
    assert ledger.free() == Allocation({"m1": 3})
    ledger.capacity = {"m0": 4, "m2": 1}
    assert ledger.free() == Allocation({"m0": 2, "m2": 1})
    ledger.entitle("a", Allocation({"m0": 1}), -1)
    assert ledger.free() == Allocation({"m0": 3, "m2": 1})
    assert list(ledger.free()) == ["m0", "m2"]
