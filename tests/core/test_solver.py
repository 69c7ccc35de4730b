"""The auction's solver against trying everything, on instances drawn at random."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from auction_oracle import Oracle, bundles, value

from themis_ray.core.auction import AuctionResult, run_auction
from themis_ray.core.bids import BidRow, BidTable
from themis_ray.core.cluster import NOTHING, Allocation, Level
from themis_ray.core.solver import nash, supply

INF = math.inf
SOME = settings(max_examples=40, deadline=None)
FEW = settings(max_examples=15, deadline=None)


@dataclass(frozen=True)
class Auction:
    pool: Allocation
    racks: Mapping[str, str]
    tables: tuple[BidTable, ...]
    weights: tuple[int, ...]

    def run(self) -> AuctionResult:
        weights = {t.app: float(w) for t, w in zip(self.tables, self.weights, strict=True)}
        return run_auction(self.pool, self.racks, self.tables, weights=weights)

    def oracle(self) -> Oracle:
        return Oracle(self.pool, self.racks, self.tables, self.weights)


@st.composite
def auctions(draw: st.DrawFn, ties: bool = True, most_apps: int = 4) -> Auction:
    """Small auctions: two racks, pinned and free parts, all levels, bidders with and without r(0).

    With ``ties``, r comes from a few round numbers, so that many allocations are equally good.
    """
    names = [f"m{i}" for i in range(draw(st.integers(1, 4)))]
    pool = Allocation({m: draw(st.integers(1, 5)) for m in names})
    racks = {m: draw(st.sampled_from(["r0", "r1"])) for m in names}
    r = st.sampled_from([0.25, 0.5, 1.0, 2.0, 4.0])
    if not ties:
        r = st.integers(100, 10_000).map(lambda n: n / 1000)
    tables = []
    for i in range(draw(st.integers(1, most_apps))):
        rows = tuple(draw(st.lists(bid_rows(pool, racks, r), max_size=4)))
        nothing = draw(st.one_of(st.just(INF), st.sampled_from([3.0, 6.0])))
        tables.append(BidTable(f"a{i}", nothing, rows))
    weights = tuple(draw(st.sampled_from([1, 1, 2])) for _ in tables)
    return Auction(pool, racks, tuple(tables), weights)


@st.composite
def bid_rows(
    draw: st.DrawFn, pool: Allocation, racks: Mapping[str, str], r: st.SearchStrategy[float]
) -> BidRow:
    machines = list(pool)
    pinned = Allocation(
        {
            m: draw(st.integers(1, pool[m]))
            for m in draw(st.lists(st.sampled_from(machines), max_size=2, unique=True))
        }
    )
    largest = min(max(pool.values()), 4)
    parts = draw(st.lists(st.integers(1, largest), min_size=0 if pinned else 1, max_size=3))
    while pinned.size + sum(parts) > pool.size and parts:
        parts.pop()
    if not parts and not pinned:
        parts = [1]
    level = draw(st.sampled_from([Level.MACHINE, Level.RACK, Level.CLUSTER]))
    if len(pinned) > 1 and level == Level.MACHINE:
        level = Level.RACK
    return BidRow(draw(r), pinned, tuple(sorted(parts, reverse=True)), level)


def product(auction: Auction, result: AuctionResult) -> tuple[int, float]:
    served = [
        (result.values[t.app], w) for t, w in zip(auction.tables, auction.weights, strict=True)
    ]
    served = [(v, w) for v, w in served if v > 0]
    return len(served), math.prod(v**w for v, w in served)


@given(auctions())
@SOME
def test_serves_the_most_and_then_maximises_the_product(auction: Auction) -> None:
    result = auction.run()
    served, best = auction.oracle().best()
    assert product(auction, result) == (served, pytest.approx(float(best), rel=1e-9))
    assert result.gap == 0
    assert result.log_nash_welfare == pytest.approx(math.log(best), abs=1e-9)
    assert result.log_bound == pytest.approx(math.log(best), abs=1e-5)


@given(auctions())
@SOME
def test_the_bundle_won_is_one_that_was_asked_for_at_that_value(auction: Auction) -> None:
    result = auction.run()
    for table in auction.tables:
        won, worth = result.proportional_fair[table.app], result.values[table.app]
        if not won:
            assert worth == pytest.approx(float(value(table.r_nothing)))
            continue
        asked = [
            row.value for row in table.rows if won in bundles(row, auction.pool, auction.racks)
        ]
        assert worth in asked
        assert worth > float(value(table.r_nothing))


@given(auctions())
@SOME
def test_no_gpu_is_given_twice_and_none_is_lost(auction: Auction) -> None:
    result = auction.run()
    given_out = sum(result.proportional_fair.values(), NOTHING)
    assert given_out <= auction.pool
    assert sum(result.allocation.values(), result.leftover) == auction.pool


@given(auctions())
@SOME
def test_a_payment_is_the_harm_to_the_others_that_are_served(auction: Auction) -> None:
    result, oracle = auction.run(), auction.oracle()
    served = [i for i, t in enumerate(auction.tables) if result.values[t.app] > 0]
    for i, table in enumerate(auction.tables):
        factor = result.payment_factor[table.app]
        assert 0 < factor <= 1
        if not result.proportional_fair[table.app]:
            assert factor == 1
            continue
        others = [j for j in served if j != i]
        with_ = math.prod(
            result.values[auction.tables[j].app] ** auction.weights[j] for j in others
        )
        count, without = oracle.best(others)
        assert count == len(others)
        expected = (with_ / float(without)) ** (1 / auction.weights[i])
        assert factor == pytest.approx(expected, rel=1e-6)
        assert result.payment_slack[table.app] <= 1e-5


@given(auctions(most_apps=3))
@FEW
def test_nobody_could_have_more_without_another_having_less(auction: Auction) -> None:
    result = auction.run()
    mine = [result.values[t.app] for t in auction.tables]
    for other in auction.oracle().vectors():
        theirs = [float(v) for v in other]
        at_least = all(t >= m - 1e-12 for t, m in zip(theirs, mine, strict=True))
        assert not (at_least and any(t > m + 1e-9 for t, m in zip(theirs, mine, strict=True)))


@given(auctions(ties=False), st.sampled_from([0.001, 0.5, 3.0, 1000.0]), st.integers(0, 3))
@FEW
def test_scaling_the_r_row_of_one_app_changes_neither_bundles_nor_payments(
    auction: Auction, factor: float, which: int
) -> None:
    which %= len(auction.tables)
    table = auction.tables[which]
    scaled = BidTable(
        table.app,
        table.r_nothing * factor,
        tuple(replace(row, r=row.r * factor) for row in table.rows),
    )
    tables = list(auction.tables)
    tables[which] = scaled
    before, after = auction.run(), replace(auction, tables=tuple(tables)).run()
    assert after.payment_factor == pytest.approx(before.payment_factor, rel=1e-5)
    for t in auction.tables:
        expected = before.values[t.app] / (factor if t is table else 1)
        assert after.values[t.app] == pytest.approx(expected, rel=1e-9)


@given(auctions(ties=False), st.randoms(use_true_random=False))
@FEW
def test_names_and_order_do_not_matter(auction: Auction, luck: random.Random) -> None:
    machines = list(auction.pool)
    new = dict(zip(machines, luck.sample([f"x{i}" for i in range(9)], len(machines)), strict=True))
    order = luck.sample(range(len(auction.tables)), len(auction.tables))

    def renamed(row: BidRow) -> BidRow:
        return replace(row, pinned=Allocation({new[m]: c for m, c in row.pinned.items()}))

    other = Auction(
        Allocation({new[m]: c for m, c in auction.pool.items()}),
        {new[m]: "z" + rack for m, rack in auction.racks.items()},
        tuple(
            BidTable(
                f"b{9 - i}",
                auction.tables[i].r_nothing,
                tuple(renamed(row) for row in auction.tables[i].rows),
            )
            for i in order
        ),
        tuple(auction.weights[i] for i in order),
    )
    before, after = auction.run(), other.run()
    assert after.log_nash_welfare == pytest.approx(before.log_nash_welfare, abs=1e-9)
    for i, table in enumerate(auction.tables):
        assert after.values[f"b{9 - i}"] == pytest.approx(before.values[table.app], rel=1e-9)
        expected = pytest.approx(before.payment_factor[table.app], rel=1e-5)
        assert after.payment_factor[f"b{9 - i}"] == expected


@given(auctions(), st.integers(1, 4))
@FEW
def test_more_gpus_never_make_the_welfare_less(auction: Auction, more: int) -> None:
    before = auction.run()
    larger = replace(auction, pool=auction.pool + Allocation({"new": more}))
    after = larger.run()
    served = [sum(v > 0 for v in r.values.values()) for r in (before, after)]
    assert served[0] <= served[1]
    if served[0] == served[1]:
        assert after.log_nash_welfare >= before.log_nash_welfare - 1e-9


@given(st.integers(2, 5), st.integers(1, 24), st.randoms(use_true_random=False))
@FEW
def test_like_goods_leave_no_envy_beyond_one_gpu(apps: int, gpus: int, luck: random.Random) -> None:
    # V proportional to the GPUs, each app at a scale of its own: theory says envy-free up to one.
    pool = Allocation({"m": gpus})
    tables = [
        BidTable(
            f"a{i}",
            INF,
            tuple(BidRow(scale / k, parts=(k,), level=Level.MACHINE) for k in range(1, gpus + 1)),
        )
        for i, scale in enumerate(luck.uniform(0.1, 10) for _ in range(apps))
    ]
    won = [b.size for b in run_auction(pool, {}, tables).proportional_fair.values()]
    assert sum(won) == gpus
    assert max(won) - min(won) <= 1


@given(auctions())
@FEW
def test_the_same_input_gives_the_same_result(auction: Auction) -> None:
    assert auction.run() == auction.run()


@given(auctions())
@FEW
def test_bidders_that_bid_alike_are_served_in_the_order_given(auction: Auction) -> None:
    twins = (auction.tables[0], replace(auction.tables[0], app="twin"))
    tables = (*twins, *auction.tables[1:])
    weights = (auction.weights[0], *auction.weights)
    result = replace(auction, tables=tables, weights=weights).run()
    assert result.values["a0"] >= result.values["twin"]


@given(auctions())
@FEW
def test_out_of_time_there_is_still_a_feasible_answer_and_a_true_bound(auction: Auction) -> None:
    weights = {t.app: float(w) for t, w in zip(auction.tables, auction.weights, strict=True)}
    result = run_auction(
        auction.pool, auction.racks, auction.tables, weights=weights, time_budget_s=0.0
    )
    assert sum(result.allocation.values(), result.leftover) == auction.pool
    served, best = auction.oracle().best()
    mine, welfare = product(auction, result)
    if mine == served:
        assert math.log(welfare) <= math.log(best) + 1e-9
        assert result.log_bound >= math.log(best) - 1e-9
    else:
        assert result.gap > 0


@pytest.mark.parametrize("form", ["patterns", "capacity", "flow"])
@given(auction=auctions())
@FEW
def test_every_form_of_cutting_gives_the_same_answer(form: str, auction: Auction) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if form != "patterns":
            patch.setattr(supply, "MOST_PATTERNS", 0)
        if form == "flow":
            patch.setattr(supply, "SINGLES", False)
        served, best = auction.oracle().best()
        assert product(auction, auction.run()) == (served, pytest.approx(float(best), rel=1e-9))


@pytest.fixture
def as_if_large() -> Iterator[None]:
    """Treat every auction as too large to be solved exactly."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nash, "EXACT_GPUS", -1)
        yield


@pytest.mark.usefixtures("as_if_large")
@pytest.mark.parametrize("linear_from", [0, 10_000])
@given(auction=auctions())
@FEW
def test_the_way_of_large_auctions_is_feasible_and_its_bound_is_true(
    linear_from: int, auction: Auction
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nash, "LINEAR_FROM", linear_from)
        result = auction.run()
    served, best = auction.oracle().best()
    mine, welfare = product(auction, result)
    assert sum(result.allocation.values(), result.leftover) == auction.pool
    assert all(0 < c <= 1 for c in result.payment_factor.values())
    for table in auction.tables:
        won = result.proportional_fair[table.app]
        if won:
            asked = [r.value for r in table.rows if won in bundles(r, auction.pool, auction.racks)]
            assert result.values[table.app] in asked
    if mine == served:
        assert math.log(welfare) <= math.log(best) + 1e-9
        assert result.log_bound >= math.log(best) - 1e-9
    else:
        assert result.gap == INF


def large_auction(racks: int, seed: int) -> tuple[Allocation, dict[str, str], list[BidTable]]:
    """512 GPUs in machines of 8, 40 apps that want 16 to 40, half of them slow when spread."""
    luck = random.Random(seed)
    machines = [f"m{i:02d}" for i in range(64)]
    rack_of = {m: f"r{i * racks // 64}" for i, m in enumerate(machines)}
    tables = []
    for i in range(40):
        work, spread = luck.uniform(1, 20), luck.choice([1.05, 1.4])
        rows = []
        for n in range(1, luck.randint(16, 40)):
            parts = (8,) * (n // 8) + ((n % 8,) if n % 8 else ())
            rows.append(BidRow(1 + work / n, parts=parts, level=Level.RACK))
            rows.append(BidRow(1 + work * spread / n, parts=parts))
        tables.append(BidTable(f"a{i}", 1 + 3 * work, tuple(rows)))
    return Allocation(dict.fromkeys(machines, 8)), rack_of, tables


@pytest.mark.parametrize("racks", [1, 4])
def test_a_large_auction_is_certified_near_its_optimum(racks: int) -> None:
    pool, rack_of, tables = large_auction(racks, seed=racks)
    result = run_auction(pool, rack_of, tables)
    assert result.gap <= 0.002
    assert sum(result.allocation.values(), result.leftover) == pool
    assert result.leftover.size <= 2
    assert max(result.payment_slack.values()) <= 0.002
    assert all(0 < c <= 1 for c in result.payment_factor.values())
    # Nobody is the first to ask for much: with 40 apps a single one does little harm.
    assert min(result.payment_factor.values()) > 0.5
    for table in tables:
        won = result.proportional_fair[table.app]
        level = Level.RACK if len({rack_of[m] for m in won}) == 1 else Level.CLUSTER
        asked = [row.value for row in table.rows if row.size == won.size and row.level >= level]
        assert result.values[table.app] in asked
    assert run_auction(pool, rack_of, tables) == result


def test_linear_counterfactuals_are_near_the_exact_ones() -> None:
    pool, rack_of, tables = large_auction(4, seed=4)
    exact = run_auction(pool, rack_of, tables)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nash, "LINEAR_FROM", 0)
        linear = run_auction(pool, rack_of, tables)
    assert linear.proportional_fair == exact.proportional_fair
    for app, factor in exact.payment_factor.items():
        slack = exact.payment_slack[app] + linear.payment_slack[app] + 1e-6
        # Never too dear for the others: the linear relaxation finds at least the harm there is.
        assert linear.payment_factor[app] <= factor * math.exp(slack)
        assert linear.payment_factor[app] == pytest.approx(factor, rel=0.01)
        assert app not in linear.harm[app]


@SOME
@given(auctions())
def test_where_everybody_can_have_its_best_nothing_needs_to_be_solved(auction: Auction) -> None:
    quick = auction.run()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nash.Maximiser, "everyones_best", lambda self, start: None)
        slow = auction.run()
    for name in ("proportional_fair", "payment_factor", "allocation", "leftover", "wanted"):
        assert getattr(quick, name) == getattr(slow, name), name
    assert quick.log_nash_welfare == slow.log_nash_welfare
    assert quick.gap <= slow.gap
