from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis_ray.core.bids import BidRow, BidTable
from themis_ray.core.cluster import NOTHING, Allocation, Cluster, Machine
from themis_ray.core.events import AppReport
from themis_ray.core.explain import GotLeftover, NoAnswer, NotOffered, Outbid, Satisfied, Won
from themis_ray.core.policies import ThemisPaper
from themis_ray.core.policies.base import AppView, RoundView
from themis_ray.errors import ConfigError

CLUSTER = Cluster((Machine("m0", 4), Machine("m1", 4)))


def app(
    name: str, r: float = math.inf, wants: int = 4, joined: float = 0, **more: object
) -> AppView:
    report = AppReport(r, r, 100.0, wants)
    view = AppView(name, 1.0, joined, 1.0, report, True, NOTHING, NOTHING, 0.0)
    return replace(view, **more)  # type: ignore[arg-type]


def view(*apps: AppView, pool: Allocation = CLUSTER.capacity, round_id: int = 1) -> RoundView:
    return RoundView(1000.0, round_id, CLUSTER, pool, {a.id: a for a in apps}, 600.0)


def table(name: str, *rs: float) -> BidTable:
    """r for 1, 2, ... GPUs."""
    rows = tuple(BidRow(r, parts=(1,) * n) for n, r in enumerate(rs, start=1))
    return BidTable(name, math.inf, rows)


@given(st.fractions(0, 1), st.integers(1, 12), st.integers(1, 5))
def test_as_many_bid_as_the_knob_says(knob: Fraction, apps: int, least: int) -> None:
    policy = ThemisPaper(fairness_knob=knob, min_bidders=least)
    bidders = policy.bidders(view(*(app(f"a{i}", r=1.0 + i) for i in range(apps))))
    expected = max(least, -((knob - 1) * apps // 1))  # ceil, in whole numbers
    assert list(bidders) == [f"a{i}" for i in reversed(range(apps))][:expected]


@pytest.mark.parametrize("tenths", range(11))
def test_floats_count_as_their_decimals(tenths: int) -> None:
    policy = ThemisPaper(fairness_knob=tenths / 10)  # type: ignore[arg-type]
    bidders = policy.bidders(view(*(app(f"a{i}") for i in range(10))))
    assert len(bidders) == max(1, 10 - tenths)


def test_of_apps_with_nothing_the_longest_waiting_bids() -> None:
    late, early = app("late", joined=900), app("early", joined=100)
    assert ThemisPaper(fairness_knob=Fraction(1)).bidders(view(late, early)) == ("early",)


def test_who_has_not_answered_or_needs_nothing_does_not_bid() -> None:
    kept = Allocation({"m0": 4})
    apps = [app("silent", answered=False), app("full", kept=kept), app("hungry", r=0.1)]
    assert ThemisPaper(min_bidders=9).bidders(view(*apps)) == ("hungry",)


def test_payments_by_the_oracle_and_leftovers_to_those_outside() -> None:
    """r(1) = 1/2 and r(2) = 1/4 on two GPUs: each gets one, and c = 1/2."""
    bids = {name: table(name, 0.5, 0.25) for name in ("a", "b")}
    apps = [app("a", wants=2), app("b", wants=2), app("c", r=0.5)]
    pool = Allocation({"m0": 2})
    timed = ThemisPaper(payment="time").allocate(view(*apps, pool=pool), bids)
    assert {n: (a.gpus.size, a.lease_fraction) for n, a in timed.awards.items()} == {
        "a": (1, 0.5),
        "b": (1, 0.5),
    }
    assert timed.reasons["a"] == Won(timed.awards["a"].gpus, math.inf, 0.5, 0.5, 300.0)
    assert timed.reasons["c"] == NotOffered(0.5, math.inf, 2, 3)
    shares = [0, 0, 0]
    for round_id in range(80):
        paid = ThemisPaper().allocate(view(*apps, pool=pool, round_id=round_id), bids)
        assert sum(a.gpus.size for a in paid.awards.values()) == 2
        for i, name in enumerate("abc"):
            shares[i] += paid.awards[name].gpus.size if name in paid.awards else 0
    # a and b keep half a GPU each on average; c, outside the auction, has what they leave.
    assert shares[2] == pytest.approx(80, abs=20)


def test_reasons() -> None:
    apps = [
        app("won"),
        app("lost", wants=8),
        app("mute"),
        app("silent", answered=False),
        app("full", wants=0),
        app("extra", r=0.2, wants=3),
    ]
    policy = ThemisPaper(min_bidders=3, timeout_s=7)
    # The gang's bid cannot be served beside the other's.
    gang = BidTable("lost", math.inf, (BidRow(5.0, parts=(4, 4)),))
    assert set(policy.bidders(view(*apps))) == {"won", "lost", "mute"}
    bids = {"won": table("won", 4, 3, 2, 1), "lost": gang}
    outcome = policy.allocate(view(*apps, pool=Allocation({"m0": 4})), {"won": bids["won"]})
    assert isinstance(outcome.reasons["won"], Won)
    assert outcome.reasons["mute"] == NoAnswer("bid", 7)
    assert outcome.reasons["silent"] == NoAnswer("report", 7)
    assert outcome.reasons["full"] == Satisfied(0)
    assert isinstance(outcome.reasons["extra"], NotOffered)
    both = policy.allocate(view(*apps), bids)
    assert isinstance(both.reasons["won"], Won | Outbid)
    assert isinstance(both.reasons["extra"], GotLeftover | NotOffered)


def test_bad_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="fairness knob"):
        ThemisPaper(fairness_knob=Fraction(3, 2))
    with pytest.raises(ConfigError, match="min_bidders"):
        ThemisPaper(min_bidders=0)
