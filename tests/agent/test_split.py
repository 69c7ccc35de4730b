from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis_ray.agent.split import place, shares_of, staying, total
from themis_ray.core.cluster import NOTHING, Allocation
from themis_ray.testing.strategies import allocations


@given(st.lists(allocations(3, 3), max_size=6), allocations(3, 8))
def test_who_stays_fits_and_none_that_is_passed_over_would_have(
    groups: list[Allocation], room: Allocation
) -> None:
    named = [(str(i), a) for i, a in enumerate(groups)]
    keep, idle = staying(named, room)
    kept = total([a for i, a in named if i in keep])
    assert kept + idle == room
    taken = NOTHING
    for name, allocation in named:
        assert (name in keep) == (taken + allocation <= room)
        if name in keep:
            taken = taken + allocation


@given(st.integers(0, 40), st.integers(0, 10), st.integers(1, 4), st.integers(0, 4))
def test_shares(idle: int, waiting: int, smallest: int, more: int) -> None:
    largest = smallest + more
    shares = shares_of(idle, waiting, smallest, largest)
    assert len(shares) == min(waiting, idle // smallest)  # as many trials as possible
    assert all(smallest <= share <= largest for share in shares)
    assert sum(shares) <= idle
    assert max(shares, default=0) - min(shares, default=0) <= 1
    if shares and more:
        assert sum(shares) == min(idle, largest * len(shares))  # nothing idles that could be used


@given(
    allocations(4, 8),
    st.integers(0, 6),
    st.sampled_from([(1, 1), (1, 4), (2, 2), (2, 4), (4, 4)]),
)
def test_placing(idle: Allocation, waiting: int, limits: tuple[int, int]) -> None:
    names = [f"t{i}" for i in range(waiting)]
    placed = place(names, idle, *limits, {"m0": "r0", "m1": "r1"})
    assert total(list(placed.values())) <= idle
    assert list(placed) == names[: len(placed)]  # in order
    assert all(limits[0] <= a.size <= limits[1] for a in placed.values())
    assert len(placed) == min(waiting, idle.size // limits[0])
    if len(placed) == 1 and max(idle.values()) >= placed["t0"].size:
        assert len(placed["t0"]) == 1


def test_trials_lie_together_where_they_can() -> None:
    idle = Allocation({"m0": 2, "m1": 4, "m2": 3})
    placed = place(["a", "b"], idle, 1, 4, {"m0": "r0", "m1": "r0", "m2": "r0"})
    assert placed == {"a": Allocation({"m1": 4}), "b": Allocation({"m0": 2, "m2": 2})} or (
        placed["a"] == Allocation({"m1": 4}) and placed["b"].size == 4
    )


def test_gangs_leave_the_large_gaps() -> None:
    idle = Allocation({"m0": 8, "m1": 2, "m2": 3})
    placed = place(["a", "b"], idle, 2, 2, {})
    assert placed == {"a": Allocation({"m1": 2}), "b": Allocation({"m2": 2})}


@pytest.mark.parametrize("waiting", [0, 3])
def test_nothing_to_place(waiting: int) -> None:
    assert place([f"t{i}" for i in range(waiting)], NOTHING, 1, 2, {}) == {}
