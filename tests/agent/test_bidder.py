from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis_ray.agent.bidder import ALL_SIZES_UP_TO, Outlook, bid_table, sizes
from themis_ray.core.bids import BidRow, check_against_offer
from themis_ray.core.cluster import NOTHING, Allocation, Level, total
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
    whole: Allocation,
    kept: Allocation = NOTHING,
    expiring: Allocation = NOTHING,
    racks: Mapping[str, str] | None = None,
) -> SendOffer:
    return SendOffer("a", 1, whole, kept, expiring, racks or {}, 1.0, 64, 600.0)


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


# -- trials that are spread over machines ----------------------------------------------------

RACKS = {"m0": "r0", "m1": "r0", "m2": "r1", "m3": "r1"}
FOUR = Allocation(dict.fromkeys(RACKS, 4))
ROOMY = Allocation(dict.fromkeys(RACKS, 24))


def rows_for(
    view: Outlook, *own: dict[str, int], size: int, kept: Allocation = NOTHING
) -> list[BidRow]:
    """The rows of a size of an app whose running trials lie on these GPUs."""
    mine = [Allocation(gpus) for gpus in own]
    table = bid_table("a", view, offer(FOUR, kept, total(mine), RACKS), mine, size)
    return [row for row in table.rows if row.size == size]


@pytest.mark.parametrize(
    ("where", "s"),
    [
        ({"m0": 4}, 1.0),
        ({"m0": 2, "m1": 2}, 1.1),
        ({"m0": 3, "m1": 1}, 1.1),
        ({"m1": 2, "m2": 2}, 1.3),
        ({"m0": 1, "m1": 1, "m2": 1, "m3": 1}, 1.3),
    ],
)
@pytest.mark.parametrize("elapsed_s", [0.0, 60.0])
def test_a_trial_that_stays_has_the_r_of_where_it_lies(
    where: dict[str, int], s: float, elapsed_s: float
) -> None:
    """100 s of work on 4 GPUs by Equation 1; on one machine it would have to move."""
    view = outlook([(100, 1.0)], 4, 4, by_level, restart_s=45.0, elapsed_s=elapsed_s)
    stays, moves, *apart = rows_for(view, where, size=4)
    assert stays.pinned == Allocation(where)
    assert stays.parts == ()
    assert stays.r == pytest.approx((elapsed_s + 100 * s / 4) / 100)
    assert (moves.pinned, moves.parts) == (NOTHING, (4,))
    assert moves.r == pytest.approx((elapsed_s + 100 / 4 + 45) / 100)
    assert [row.level for row in apart] == [Level.RACK, Level.CLUSTER]


@given(st.floats(1, 1e4), st.floats(1, 3), st.floats(0, 120))
def test_moving_together_is_worth_it_when_enough_is_left(
    left: float, s: float, restart_s: float
) -> None:
    """It is just when what is left takes longer apart than it takes together with a restart."""
    view = outlook([(left, 1.0)], 2, 2, lambda _, level: 1 + (s - 1) * (level > Level.MACHINE))
    view = replace(view, restart_s=restart_s)
    stays, moves, *_ = rows_for(view, {"m0": 1, "m1": 1}, size=2)
    assert stays.r == pytest.approx(left * s / 2 / 100)
    assert moves.r == pytest.approx((left / 2 + restart_s) / 100)


def test_one_row_keeps_all_trials_and_one_those_on_one_machine() -> None:
    """Two trials of 100 s on two GPUs each: 50 s on one machine, 55 s on two of a rack."""
    view = outlook([(100, 1.0)] * 2, 2, 2, by_level, restart_s=20.0)
    own: list[dict[str, int]] = [{"m0": 2}, {"m0": 1, "m1": 1}]
    all_stay, near_stay, all_move, *apart = rows_for(view, *own, size=4)
    assert (all_stay.pinned, all_stay.parts) == (Allocation({"m0": 3, "m1": 1}), ())
    assert all_stay.r == pytest.approx((50 * 2 + 55 * 2) / 4 / 100)
    assert (near_stay.pinned, near_stay.parts) == (Allocation({"m0": 2}), (2,))
    assert near_stay.r == pytest.approx((50 + 20 / 2) / 100)  # half of the GPUs are new
    assert (all_move.pinned, all_move.parts) == (NOTHING, (2, 2))
    assert all_move.r == pytest.approx((50 + 20) / 100)
    assert not any(row.pinned for row in apart)


def test_what_is_won_besides_is_reckoned_as_on_one_machine() -> None:
    """A trial of two GPUs that is spread, and another that starts: the mean of their r."""
    view = outlook([(100, 1.0)] * 2, 2, 2, by_level, restart_s=20.0)
    stays, *others = rows_for(view, {"m1": 1, "m2": 1}, size=4)
    assert (stays.pinned, stays.parts) == (Allocation({"m1": 1, "m2": 1}), (2,))
    assert stays.r == pytest.approx(((65 + 10) * 2 + (50 + 10) * 2) / 4 / 100)
    assert not any(row.pinned for row in others)


def test_with_all_trials_spread_there_is_no_row_for_those_on_one_machine() -> None:
    view = outlook([(100, 1.0)] * 2, 2, 2, by_level)
    own: list[dict[str, int]] = [{"m0": 1, "m1": 1}, {"m2": 1, "m1": 1}]
    pinned = [row.pinned for row in rows_for(view, *own, size=4) if row.pinned]
    assert pinned == [Allocation({"m0": 1, "m1": 2, "m2": 1})]


def test_what_is_kept_counts_for_how_fast_a_spread_trial_runs() -> None:
    """It keeps two GPUs and has two more on two machines: 200 s of work on 4 GPUs."""
    view = outlook([(200, 1.0)], 1, 4, by_level)
    kept = Allocation({"m3": 2})
    stays, *_ = rows_for(view, {"m0": 1, "m1": 1}, size=2, kept=kept)
    assert stays.r == pytest.approx(200 * 1.1 / 4 / 100)


def running(limits: tuple[int, int], machines: int) -> st.SearchStrategy[list[Allocation]]:
    """Where running trials of some sizes lie, each on so many machines at most."""
    least, most = limits

    def on(names: list[str]) -> st.SearchStrategy[Allocation]:
        units = st.lists(st.sampled_from(names), min_size=least, max_size=min(4, most))
        return units.map(lambda some: total(Allocation({machine: 1}) for machine in some))

    names = st.lists(st.sampled_from(sorted(RACKS)), min_size=1, max_size=machines)
    return st.lists(names.flatmap(on), max_size=4)


@given(st.data(), jobs, limits)
def test_rows_of_trials_on_one_machine_each_are_those_of_a_restart_less(
    data: st.DataObject, work: list[tuple[float, float]], limits: tuple[int, int]
) -> None:
    """One row keeps those that fit, at r on one machine; all others keep nothing."""
    view = outlook(work, *limits, by_level, restart_s=30.0)
    mine = data.draw(running(limits, 1))
    table = bid_table("a", view, offer(ROOMY, NOTHING, total(mine), RACKS), mine, 16)
    plain = bid_table("a", view, offer(ROOMY, NOTHING, NOTHING, RACKS), [], 16)
    assert [row for row in table.rows if not row.pinned] == list(plain.rows)
    expected = {}
    for size in sizes(16, *limits):
        pinned = NOTHING
        for gpus in mine:
            pinned = pinned + gpus if (pinned + gpus).size <= size else pinned
        if pinned:
            expected[size] = pinned
    staying = [row for row in table.rows if row.pinned]
    assert {row.size: row.pinned for row in staying} == expected
    assert len(staying) == len(expected)
    for row in staying:
        moved = (row.size - row.pinned.size) / row.size
        assert row.r == pytest.approx(view.r(row.size, moved=moved), rel=1e-12)


@given(st.data(), jobs, limits)
def test_the_r_of_trials_that_stay_is_the_mean_over_their_gpus(
    data: st.DataObject, work: list[tuple[float, float]], limits: tuple[int, int]
) -> None:
    mine = data.draw(running(limits, 3))
    all_of_them = total(mine)
    view = outlook(work, *limits, by_level, restart_s=30.0)
    table = bid_table("a", view, offer(ROOMY, NOTHING, all_of_them, RACKS), mine, 24)

    def r(gpus: Allocation, size: int, moved: float) -> float:
        if len(gpus) == 1:
            return view.r(size, Level.MACHINE, moved)
        apart = len({RACKS[machine] for machine in gpus}) > 1
        return view.r(size, Level.CLUSTER if apart else Level.RACK, moved)

    for size in {row.size for row in table.rows if row.size >= all_of_them.size}:
        staying = [row for row in table.rows if row.size == size and row.pinned]
        near = [gpus for gpus in mine if len(gpus) == 1]
        stays = [mine, near] if near and len(near) < len(mine) else [mine] if mine else []
        assert [row.pinned for row in staying] == [total(some) for some in stays]
        for row, some in zip(staying, stays, strict=True):
            rest = size - row.pinned.size
            r_all = sum(gpus.size * r(gpus, size, rest / size) for gpus in some)
            r_all += rest * view.r(size, moved=rest / size) if rest else 0.0
            assert row.r == pytest.approx(r_all / size, rel=1e-12)
            assert sum(row.parts) == rest
