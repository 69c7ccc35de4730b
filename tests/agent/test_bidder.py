from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis_ray.agent.bidder import ALL_SIZES_UP_TO, Outlook, bid_table, sizes
from themis_ray.core.bids import check_against_offer
from themis_ray.core.cluster import NOTHING, Allocation, Level
from themis_ray.core.commands import SendOffer
from themis_ray.core.valuation import single_job_t_shared_s
from themis_ray.testing.strategies import allocations, within

jobs = st.lists(st.tuples(st.floats(1, 100), st.floats(0.1, 10)), min_size=1, max_size=6)
limits = st.sampled_from([(1, 1), (1, 2), (1, 4), (2, 2), (2, 8), (4, 4)])
PRIOR = {Level.MACHINE: 1.0, Level.RACK: 1.1, Level.CLUSTER: 1.3}


def no_slowdown(gpus: int, level: Level) -> float:
    return 1.0


def by_level(gpus: int, level: Level) -> float:
    return 1.0 if gpus <= 1 else PRIOR.get(level, 1.0)


def outlook(
    work: list[tuple[float, float]],
    least: int = 1,
    most: int = 1,
    slowdown: Callable[[int, Level], float] = no_slowdown,
    restart_s: float = 0.0,
    elapsed_s: float = 0.0,
) -> Outlook:
    return Outlook(work, least, most, elapsed_s, 100.0, slowdown, restart_s)


def offer(
    whole: Allocation, kept: Allocation = NOTHING, expiring: Allocation = NOTHING
) -> SendOffer:
    return SendOffer("a", 1, whole, kept, expiring, {}, 1.0, 64, 600.0)


@given(
    st.floats(1, 1e4),
    st.floats(0.01, 100),
    st.integers(1, 16),
    st.integers(1, 8),
    st.floats(0, 1e4),
    st.sampled_from([Level.MACHINE, Level.RACK, Level.CLUSTER]),
)
def test_one_trial_is_equation_1(
    left: float, serial: float, gpus: int, most: int, elapsed_s: float, level: Level
) -> None:
    view = outlook([(left, serial)], 1, most, by_level, elapsed_s=elapsed_s)
    usable = min(gpus, most)
    exact = elapsed_s + left * serial * by_level(usable, level) / usable
    assert view.r(gpus, level) == pytest.approx(exact / 100.0, rel=1e-12)
    assert exact == pytest.approx(
        single_job_t_shared_s(
            left,
            serial,
            gpus=gpus,
            demand_max=most,
            elapsed_s=elapsed_s,
            slowdown=by_level(usable, level),
        )
    )


@given(jobs, limits, st.integers(1, 40))
def test_more_gpus_are_never_worse_without_slowdown(
    work: list[tuple[float, float]], limits: tuple[int, int], gpus: int
) -> None:
    view = outlook(work, *limits)
    assert view.r(gpus + 1) <= view.r(gpus) * (1 + 1e-12)


@given(jobs, limits, st.integers(1, 40))
def test_no_promise_is_better_than_what_the_work_takes(
    work: list[tuple[float, float]], limits: tuple[int, int], gpus: int
) -> None:
    view = outlook(work, *limits)
    if gpus < limits[0]:
        assert view.r(gpus) == math.inf
        return
    least_s = max(sum(i * t for i, t in work) / gpus, max(i * t for i, t in work) / limits[1])
    assert view.time_left_s(gpus) >= least_s * (1 - 1e-12)


def test_an_app_with_nothing_left_to_do() -> None:
    assert outlook([]).time_left_s(0) == 0


@given(st.data(), jobs, limits, allocations(4, 8), st.integers(0, 40))
def test_every_row_fits_the_offer(
    data: st.DataObject,
    work: list[tuple[float, float]],
    limits: tuple[int, int],
    whole: Allocation,
    needs: int,
) -> None:
    expiring = data.draw(within(whole))
    own = data.draw(st.lists(within(whole), max_size=3))
    kept = data.draw(allocations(4, 2))
    view = outlook(work, *limits, by_level, restart_s=5.0)
    table = bid_table("a", view, offer(whole, kept, expiring), [a for a in own if a], needs)
    check_against_offer(table, whole)
    assert table.r_nothing == (view.r(kept.size) if kept else math.inf)
    for row in table.rows:
        assert row.size <= needs
        assert row.pinned <= expiring
        if limits[0] == limits[1] and not row.pinned:
            # Whole gangs, each on one machine; or anywhere, at the slowdown of that.
            assert row.size % limits[0] == 0
            assert set(row.parts) in ({limits[0]}, {1})


@given(jobs, st.integers(1, 4))
def test_gpus_that_the_app_has_are_worth_a_restart_more(
    work: list[tuple[float, float]], most: int
) -> None:
    mine = Allocation({"m0": 2})
    view = outlook(work, 1, most, restart_s=30.0)
    table = bid_table("a", view, offer(Allocation({"m0": 4}), NOTHING, mine), [mine], 4)
    for size in (2, 3, 4):
        own = [r for r in table.rows if r.size == size and r.pinned]
        fresh = [r for r in table.rows if r.size == size and not r.pinned]
        assert [r.pinned for r in own] == [mine]
        gain_s = (min(r.r for r in fresh) - own[0].r) * 100.0
        assert gain_s == pytest.approx(30.0 * 2 / size)


def test_trials_on_the_same_expiring_gpus_are_not_counted_twice() -> None:
    """Of two trials with two GPUs each on a machine, only two GPUs are put up."""
    two = Allocation({"m0": 2})
    view = outlook([(10, 1.0)] * 4, 1, 2)
    table = bid_table("a", view, offer(Allocation({"m0": 2, "m1": 2}), NOTHING, two), [two, two], 4)
    check_against_offer(table, Allocation({"m0": 2, "m1": 2}))
    assert all(row.pinned <= two for row in table.rows)
    assert {row.size for row in table.rows if row.pinned == two} == {2, 3, 4}


def test_a_trial_that_wants_more_than_a_machine_has_bids_for_several() -> None:
    view = outlook([(10, 1.0)], 1, 4, by_level)
    table = bid_table("a", view, offer(Allocation({"m0": 2, "m1": 2})), [], 4)
    largest = [row for row in table.rows if row.size == 4]
    assert {(row.parts, row.level) for row in largest} == {
        ((1, 1, 1, 1), Level.RACK),
        ((1, 1, 1, 1), Level.CLUSTER),
    }
    assert {row.level: row.r for row in largest} == {
        Level.RACK: pytest.approx(10 * 1.1 / 4 / 100),
        Level.CLUSTER: pytest.approx(10 * 1.3 / 4 / 100),
    }


@given(st.integers(0, 400), limits)
def test_sizes_grow_slowly_and_never_miss_by_much(most: int, limits: tuple[int, int]) -> None:
    listed = sizes(most, *limits)
    step = limits[0] if limits[0] == limits[1] else 1
    assert listed == sorted(set(listed))
    assert all(limits[0] <= size <= most for size in listed)
    small = list(range(limits[0], min(most, ALL_SIZES_UP_TO) + 1, step))
    assert listed[: len(small)] == small
    assert all(b - a <= max(step, a // 8) for a, b in itertools.pairwise(listed))
    if listed:
        assert most - listed[-1] < max(step, listed[-1] // 8)
    assert len(listed) < ALL_SIZES_UP_TO + 30
