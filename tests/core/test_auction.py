"""The auction's payments against exact answers, and what it does with GPUs left over."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from themis_ray.core.auction import AuctionResult, assign_leftovers, run_auction
from themis_ray.core.bids import BidRow, BidTable
from themis_ray.core.cluster import NOTHING, Allocation, Level
from themis_ray.core.payments import keep_gpus
from themis_ray.errors import BidError, InvalidInputError

INF = math.inf
# The r row of the paper's Table 3.
TABLE_3 = {1: 4.0, 2: 2.0, 4: 1.0, 8: 0.5, 16: 0.34}


def exact(number: float) -> Fraction:
    """The simple fraction that a float stands for."""
    return Fraction(number).limit_denominator(100_000)


def table(app: str, rows: Mapping[int, float], nothing: float = INF) -> BidTable:
    """An app that asks for so many GPUs of one machine."""
    return BidTable(app, nothing, tuple(BidRow(r, Allocation({"m0": n})) for n, r in rows.items()))


def on_machines(app: str, four: float, two_and_two: float) -> BidTable:
    """An app with a value on the machine of 4, and another on both machines of 2."""
    rows = (
        BidRow(1 / four, Allocation({"m4": 4})),
        BidRow(1 / two_and_two, Allocation({"m2a": 2, "m2b": 2})),
    )
    return BidTable(app, INF, rows)


MACHINES = Allocation({"m4": 4, "m2a": 2, "m2b": 2})


def sizes(result: AuctionResult) -> list[int]:
    return sorted((b.size for b in result.proportional_fair.values()), reverse=True)


# -- exact answers ----------------------------------------------------------------------------


@pytest.mark.parametrize(("apps", "factor"), [(1, "1"), (2, "1/2"), (3, "4/9"), (4, "27/64")])
def test_like_apps_on_a_divisible_good_keep_what_theory_says(apps: int, factor: str) -> None:
    # V proportional to the GPUs; 12 GPUs divide evenly among n and among n - 1.
    tables = [table(f"a{i}", {k: 12 / k for k in range(1, 13)}) for i in range(apps)]
    result = run_auction(Allocation({"m0": 12}), {}, tables)
    assert sizes(result) == [12 // apps] * apps
    assert [exact(c) for c in result.payment_factor.values()] == [Fraction(factor)] * apps
    assert result.lease_fraction == result.payment_factor
    assert result.gap == 0


@pytest.mark.parametrize(
    ("apps", "won", "factors"),
    [
        (2, [8, 8], {8: "17/25"}),
        (3, [8, 4, 4], {8: "1/4", 4: "1/2"}),
        (4, [4, 4, 4, 4], {4: "1/2"}),
    ],
)
def test_like_apps_with_the_papers_table_3(
    apps: int, won: list[int], factors: dict[int, str]
) -> None:
    tables = [table(f"a{i}", TABLE_3, 100) for i in range(apps)]
    result = run_auction(Allocation({"m0": 16}), {}, tables)
    assert sizes(result) == won
    for app, bundle in result.proportional_fair.items():
        assert exact(result.payment_factor[app]) == Fraction(factors[bundle.size])
    assert result.proportional_fair["a0"].size == won[0]


@pytest.mark.parametrize("nothing", [2.0, 3.0, INF])
def test_two_apps_on_two_gpus(nothing: float) -> None:
    tables = [table(app, {1: 0.5, 2: 0.25}, nothing) for app in "ab"]
    result = run_auction(Allocation({"m0": 2}), {}, tables)
    assert sizes(result) == [1, 1]
    assert [exact(c) for c in result.payment_factor.values()] == [Fraction(1, 2)] * 2


def test_placement_decides_who_gets_the_large_machine() -> None:
    tables = [on_machines("vgg16", 103.6, 80.4), on_machines("inception", 242, 243)]
    result = run_auction(MACHINES, {}, tables)
    assert result.proportional_fair["vgg16"] == Allocation({"m4": 4})
    assert result.proportional_fair["inception"] == Allocation({"m2a": 2, "m2b": 2})
    assert result.payment_factor == {"vgg16": 1.0, "inception": 1.0}
    assert result.leftover == NOTHING
    assert result.log_nash_welfare == pytest.approx(math.log(103.6 * 243))


def test_only_the_one_on_the_better_machine_pays() -> None:
    tables = [on_machines(app, 103.6, 80.4) for app in ("first", "second")]
    result = run_auction(MACHINES, {}, tables)
    assert result.proportional_fair["first"] == Allocation({"m4": 4})
    assert exact(result.payment_factor["first"]) == Fraction(201, 259)
    assert result.payment_factor["second"] == 1
    assert result.harm["first"] == {"second": pytest.approx(math.log(259 / 201))}
    assert result.harm["second"] == {}


def test_the_same_two_with_parts_instead_of_names() -> None:
    rows = (
        BidRow(1 / 103.6, parts=(4,), level=Level.MACHINE),
        BidRow(1 / 80.4, parts=(2, 2)),
    )
    result = run_auction(MACHINES, {}, [BidTable(app, INF, rows) for app in ("first", "second")])
    assert exact(result.payment_factor["first"]) == Fraction(201, 259)
    assert result.proportional_fair["second"] == Allocation({"m2a": 2, "m2b": 2})


def test_jobs_that_share_a_bundle_are_local_where_one_job_is_not() -> None:
    pool = Allocation({"m0": 4, "m1": 4})
    two_jobs = BidTable("two", INF, (BidRow(1.0, parts=(4, 4)),))
    one_job = BidTable("one", INF, (BidRow(1.5, parts=(4, 4)), BidRow(1.0, parts=(8,))))
    assert run_auction(pool, {}, [two_jobs]).values == {"two": 1.0}
    with pytest.raises(BidError, match="does not fit"):
        run_auction(pool, {}, [one_job])
    one_job = BidTable("one", INF, one_job.rows[:1])
    assert run_auction(pool, {}, [one_job]).values == {"one": pytest.approx(1 / 1.5)}


def test_more_bidders_than_gpus_serves_as_many_as_can_be_then_the_best() -> None:
    # "greedy" alone would have the greatest value, but three can be served without it.
    tables = [
        table("greedy", {3: 0.001}),
        *[table(f"a{i}", {1: 2.0, 2: 1.0}) for i in range(4)],
    ]
    result = run_auction(Allocation({"m0": 3}), {}, tables)
    assert sizes(result) == [1, 1, 1, 0, 0]
    assert not result.proportional_fair["greedy"]
    assert result.payment_factor["greedy"] == 1
    assert result.log_nash_welfare == pytest.approx(3 * math.log(0.5))
    # Each of the three takes a GPU with which one of the other two would double its value.
    paid = sorted(exact(c) for c in result.payment_factor.values())
    assert paid == [Fraction(1, 2)] * 3 + [1, 1]


def test_an_app_without_any_bid_gets_nothing_and_pays_nothing() -> None:
    result = run_auction(Allocation({"m0": 2}), {}, [table("a", {2: 1.0}), BidTable("b", INF)])
    assert result.proportional_fair == {"a": Allocation({"m0": 2}), "b": NOTHING}
    assert result.payment_factor == {"a": 1.0, "b": 1.0}
    assert result.log_nash_welfare == 0
    empty = run_auction(NOTHING, {}, [])
    assert (empty.gap, empty.log_nash_welfare, empty.leftover) == (0, 0, NOTHING)


def test_a_weight_moves_gpus_and_payments_as_theory_says() -> None:
    # Weights 1 and 2 on a divisible good: a third and two thirds; c_i ** (1 / w_i).
    tables = [table(app, {k: 12 / k for k in range(1, 13)}) for app in "ab"]
    result = run_auction(Allocation({"m0": 12}), {}, tables, weights={"b": 2.0})
    assert {app: b.size for app, b in result.proportional_fair.items()} == {"a": 4, "b": 8}
    assert exact(result.payment_factor["a"]) == Fraction(2, 3) ** 2
    assert result.payment_factor["b"] == pytest.approx(math.sqrt(1 / 3))


def test_it_is_said_what_would_have_been_needed() -> None:
    tables = [table("a", {2: 1.0}), table("b", {2: 1.5}), table("c", {1: 1.0, 2: 0.9})]
    result = run_auction(Allocation({"m0": 2}), {}, tables)
    assert result.wanted["b"].row.size == 2
    assert result.wanted["b"].short >= 0
    alone = run_auction(Allocation({"m0": 2}), {}, [tables[0]])
    assert alone.wanted == {}


# -- truthfulness -----------------------------------------------------------------------------


@settings(max_examples=8, deadline=None)
@given(st.randoms(use_true_random=False))
def test_no_lie_pays_on_divisible_goods_with_values_of_degree_one(luck: random.Random) -> None:
    # Two goods in 6 units each, V linear in both: near enough to divisible that a lie gains no
    # more than the units are coarse. (With one good, a lie only scales the row: no effect.)
    units = 6
    pool = Allocation({"m0": units, "m1": units})

    def linear(app: str, x: float, y: float) -> BidTable:
        rows = [
            BidRow(1 / (x * i + y * j), Allocation({"m0": i, "m1": j}))
            for i in range(units + 1)
            for j in range(units + 1)
            if i + j
        ]
        return BidTable(app, INF, tuple(rows))

    x, y = luck.uniform(0.2, 1), luck.uniform(0.2, 1)
    other = linear("other", luck.uniform(0.2, 1), luck.uniform(0.2, 1))

    def worth(said: BidTable) -> float:
        result = run_auction(pool, {}, [said, other])
        won = result.proportional_fair["me"]
        return result.payment_factor["me"] * (x * won.on("m0") + y * won.on("m1"))

    honest = worth(linear("me", x, y))
    for tilt in (0.3, 3.0):
        assert worth(linear("me", x * tilt, y)) <= honest * (1 + 1 / units)


# -- payment in GPUs --------------------------------------------------------------------------


def test_payment_in_gpus_keeps_the_floor_or_one_more_and_the_mean() -> None:
    tables = [table(app, TABLE_3, 100) for app in "ab"]
    kept = [
        run_auction(Allocation({"m0": 16}), {}, tables, payment="gpus", seed=seed)
        for seed in range(20)
    ]
    for result in kept:
        assert {b.size for b in result.allocation.values()} <= {5, 6}
        assert result.lease_fraction == {"a": 1.0, "b": 1.0}
        assert result.leftover.size == 16 - sum(b.size for b in result.allocation.values())
    assert kept[3] == run_auction(Allocation({"m0": 16}), {}, tables, payment="gpus", seed=3)
    assert len({str(result.allocation) for result in kept}) > 1


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=6),
    st.integers(1, 12),
    st.fractions(Fraction(1, 20), 1, max_denominator=40),
)
def test_the_gpus_kept_are_right_on_average_and_usable(
    listed: Sequence[int], won: int, factor: Fraction
) -> None:
    # Draws on an even grid average to the exact mean when its step divides the probabilities.
    rows = {n: 1 / n for n in {*listed, won} if n <= won}
    bids = table("a", rows)
    bundle = Allocation({"m0": won})
    grid = 27720 * 40
    draws = [(k + 0.5) / 480 for k in range(480)]
    kept = [keep_gpus(bids, bundle, float(factor), draw).size for draw in draws]
    assert statistics.mean(kept) == pytest.approx(float(factor) * won, abs=won / 480 + 1 / grid)
    smallest = min(rows)
    assert all(n == 0 or n >= smallest for n in kept)
    if smallest == 1:
        assert set(kept) <= {math.floor(factor * won), math.ceil(factor * won)}
    else:
        assert set(kept) <= {0, *rows}


def test_a_rigid_gang_is_kept_whole_or_not_at_all() -> None:
    bids = table("a", {4: 1.0})
    won = Allocation({"m0": 4})
    assert keep_gpus(bids, won, 0.7, 0.69) == won
    assert keep_gpus(bids, won, 0.7, 0.71) == NOTHING


def test_the_part_kept_is_the_best_placed_one() -> None:
    rows = (
        BidRow(2.0, parts=(1,), level=Level.MACHINE),
        BidRow(0.5, parts=(4,), level=Level.MACHINE),
        BidRow(0.9, parts=(2, 2)),
        BidRow(0.3, parts=(4, 2)),
    )
    won = Allocation({"m1": 4, "m0": 2})
    assert keep_gpus(BidTable("a", INF, rows), won, 4 / 6, 0.5) == Allocation({"m1": 4})
    assert keep_gpus(BidTable("a", INF, rows), won, 5 / 6, 0.5).on("m1") == 4


# -- bad bids ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bids", "options", "message"),
    [
        (lambda: [table("a", {1: 1.0})] * 2, {}, "'a' bids twice"),
        (lambda: [table("a", {3: 1.0})], {}, "only 2 were offered"),
        (lambda: [BidTable("a", INF, (BidRow(1.0, parts=(3,)),))], {}, "does not fit"),
        (lambda: [table("a", {1: 1.0})], {"weights": {"a": 0.0}}, "weight 0.0"),
        (lambda: [table("a", {1: 1.0})], {"payment": "cash"}, "'cash' is unknown"),
    ],
)
def test_bad_bids_are_refused_with_the_reason(
    bids: Callable[[], list[BidTable]], options: dict[str, object], message: str
) -> None:
    with pytest.raises(BidError, match=message):
        run_auction(Allocation({"m0": 2}), {}, bids(), **options)  # type: ignore[arg-type]


# -- leftovers --------------------------------------------------------------------------------


@given(
    st.dictionaries(st.sampled_from(["m0", "m1", "m2"]), st.integers(1, 5)),
    st.lists(st.tuples(st.integers(0, 6), st.integers(1, 4)), max_size=4),
    st.sampled_from(["random", "placed"]),
    st.integers(0, 5),
)
def test_no_gpu_idles_while_someone_can_use_it(
    free: dict[str, int], wishes: list[tuple[int, int]], mode: str, seed: int
) -> None:
    needs = {f"a{i}": count for i, (count, _) in enumerate(wishes)}
    gangs = {f"a{i}": gang for i, (_, gang) in enumerate(wishes)}
    left = Allocation(free)
    given_out = assign_leftovers(left, needs, mode=mode, seed=seed, min_gain=gangs)  # type: ignore[arg-type]
    assert list(given_out) == list(needs)
    total = sum(given_out.values(), NOTHING)
    assert total <= left
    idle = left.size - total.size
    for app, bundle in given_out.items():
        assert bundle.size <= needs[app]
        assert bundle.size % gangs[app] == 0
        assert min(idle, needs[app] - bundle.size) < gangs[app]


def test_leftovers_go_near_what_an_app_holds_then_where_they_fit_best() -> None:
    left = Allocation({"m0": 4, "m1": 2, "m2": 3})
    held = {"near": Allocation({"m0": 2})}
    given_out = assign_leftovers(left, {"near": 1, "fits": 2, "rest": 9}, mode="placed", holds=held)
    assert given_out["near"] == Allocation({"m0": 1})
    assert given_out["fits"] == Allocation({"m1": 2})
    assert given_out["rest"] == Allocation({"m0": 3, "m2": 3})


def test_random_leftovers_hang_on_the_seed_alone() -> None:
    left = Allocation({"m0": 4, "m1": 4})
    tries = [assign_leftovers(left, {"a": 8, "b": 8}, seed=seed) for seed in range(8)]
    assert tries[0] == assign_leftovers(left, {"a": 8, "b": 8}, rng=random.Random(0))
    assert len({str(t["a"]) for t in tries}) > 1


def test_bad_leftover_options_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="use 'random' or 'placed'"):
        assign_leftovers(NOTHING, {}, mode="best")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="-1 more GPUs"):
        assign_leftovers(NOTHING, {"a": -1})
