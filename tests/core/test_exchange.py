"""Answers without one bidder, used for others."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from themis_ray.core.auction import AuctionResult, run_auction
from themis_ray.core.bids import BidRow, BidTable
from themis_ray.core.cluster import Allocation
from themis_ray.core.solver import nash, without
from themis_ray.core.solver.exchange import Exchanges, enough
from themis_ray.core.solver.model import ROOT

POOL = Allocation({"m0": 4, "m1": 4})


def table(app: str, **r: float) -> BidTable:
    """A bid for parts, as in ``p1=2.0, p21=1.5``; 9 without."""
    rows = tuple(
        BidRow(value, parts=tuple(int(part) for part in name[1:])) for name, value in r.items()
    )
    return BidTable(app, 9.0, rows)


def exchanges(*tables: BidTable, **planned: str) -> tuple[Exchanges, Mapping[str, int]]:
    """The exchanges of an auction, and its columns by bidder and parts, as in ``a4``."""
    solver = nash.NashSolver(POOL, {}, tables, [1.0] * len(tables))
    solver.optimum()
    base = solver._base
    assert base is not None
    model = base.problem.model
    names = {}
    for column in range(model.app.size):
        app = tables[int(model.app[column])].app
        parts = "".join(str(part) for part in solver.instance.bid(column).parts)
        names[app + parts] = column
    apps = [table.app for table in tables]
    chosen = {apps.index(app): names[app + parts] for app, parts in planned.items()}
    return Exchanges(base.problem, chosen), names


# Not everybody can have its best.
BIDS = [
    table("a", p4=1.0),
    table("b", p4=2.0),
    table("c", p4=3.0, p1=4.0),
    table("d", p1=5.0),
    table("e", p4=6.0),
]


def logs(*r: float) -> float:
    """What columns gain together."""
    return sum(math.log(9 / value) for value in r)


def test_who_was_away_takes_the_place_of_who_is_away_now() -> None:
    some, column = exchanges(*BIDS)
    some.learn(0, {1: column["b4"], 2: column["c4"]}, 0.5)
    found = some.without(1)
    assert found is not None
    assert found.chosen == {0: column["a4"], 2: column["c4"]}
    assert found.slack == 0.5
    assert found.gain == pytest.approx(logs(1.0, 3.0))


def test_parts_may_be_cut_for_who_takes_the_place() -> None:
    some, column = exchanges(*BIDS)
    some.learn(3, {0: column["a4"], 1: column["b4"]}, 0.0)
    found = some.without(1)
    assert found is not None
    assert found.chosen == {0: column["a4"], 3: column["d1"]}


def test_nothing_is_known_of_parts_that_the_one_away_has_no_use_for() -> None:
    some, column = exchanges(*BIDS)
    some.learn(0, {1: column["b4"], 2: column["c1"], 3: column["d1"]}, 0.0)
    assert some.without(2) is None
    assert some.without(3) is None
    assert some.without(4) is None  # it wins nothing in that answer


def test_the_best_answer_known_is_taken() -> None:
    some, column = exchanges(*BIDS)
    some.learn(4, {0: column["a4"], 1: column["b4"]}, 0.25)
    some.learn(2, {0: column["a4"], 1: column["b4"]}, 0.75)
    found = some.without(1)
    assert found is not None
    assert (found.chosen, found.slack) == ({0: column["a4"], 2: column["c4"]}, 0.75)


def test_what_a_bidder_wins_goes_to_who_gains_most_by_it() -> None:
    some, column = exchanges(*BIDS, a="4", b="4")
    found = some.without(0)
    assert found is not None
    assert found.chosen == {1: column["b4"], 2: column["c4"]}
    assert found.gain == pytest.approx(logs(2.0, 3.0))
    # One that has something already gains only the difference.
    some, column = exchanges(*BIDS, a="4", c="1", d="1")
    found = some.without(0)
    assert found is not None
    assert found.chosen == {1: column["b4"], 2: column["c1"], 3: column["d1"]}
    assert some.without(1) is None


@pytest.mark.parametrize(
    ("parts", "needs", "is_enough"),
    [
        ({4: 1}, {4: 1}, True),
        ({4: 1}, {2: 2}, True),
        ({4: 1}, {3: 1, 1: 1}, True),
        ({4: 1}, {3: 1, 2: 1}, False),
        ({2: 2}, {4: 1}, False),
        ({2: 2}, {1: 4}, True),
        ({3: 1, 2: 1}, {2: 2}, True),
        ({}, {1: 1}, False),
        ({1: 1}, {}, True),
    ],
)
def test_parts_are_enough_when_they_can_be_cut_so(
    parts: dict[int, int], needs: dict[int, int], is_enough: bool
) -> None:
    here, there = ("class", "0"), ("class", "1")
    of = {(here, size): n for size, n in parts.items()}
    assert enough(of, {(here, size): n for size, n in needs.items()}) is is_enough
    assert enough(of, {(ROOT, size): n for size, n in needs.items()}) is is_enough
    assert enough(of, {(there, size): n for size, n in needs.items()}) is (not needs)
    anywhere = {(ROOT, size): n for size, n in parts.items()}
    assert enough(anywhere, {(here, size): n for size, n in needs.items()}) is (not needs)


@st.composite
def alike(draw: st.DrawFn) -> list[BidTable]:
    """Many jobs of few kinds for few GPUs."""
    worth = st.integers(1, 400).map(lambda n: n / 100)
    kinds = st.sampled_from(["p1", "p2", "p4", "p22"])
    return [
        table(f"a{i}", **{kind: draw(worth) for kind in draw(st.sets(kinds, min_size=1))})
        for i in range(draw(st.integers(5, 12)))
    ]


def held(tables: list[BidTable], *, exchanged: bool) -> AuctionResult:
    """The auction as if it were a large one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nash, "EXACT_APPS", 0)
        if not exchanged:
            patch.setattr(Exchanges, "without", lambda self, app: None)
        return run_auction(POOL, {}, tables)


@given(alike())
@settings(max_examples=60, deadline=None)
def test_payments_are_those_of_auctions_without_each_bidder_within_the_slack(
    tables: list[BidTable],
) -> None:
    quick, thorough = held(tables, exchanged=True), held(tables, exchanged=False)
    assert quick.proportional_fair == thorough.proportional_fair
    for app, factor in thorough.payment_factor.items():
        least = math.log(quick.payment_factor[app]) - quick.payment_slack[app]
        most = math.log(quick.payment_factor[app])
        slack = thorough.payment_slack[app] + 1e-6
        assert least - slack <= math.log(factor) <= most + slack


def test_few_auctions_are_solved_when_jobs_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    solved = []
    nearby = without.best_nearby
    monkeypatch.setattr(without, "best_nearby", lambda *args: solved.append(1) or nearby(*args))
    monkeypatch.setattr(nash, "EXACT_APPS", 0)
    tables = [table(f"a{i}", p1=1.0 + i / 100) for i in range(20)]
    result = run_auction(POOL, {}, tables)
    winners = [app for app, gpus in result.proportional_fair.items() if gpus]
    assert len(winners) == 8
    assert len(solved) <= 2
    harm = math.log(9 / 1.08)  # each takes the place of the ninth
    for app in winners:
        assert -math.log(result.payment_factor[app]) == pytest.approx(harm, abs=1e-5)
