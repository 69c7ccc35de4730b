"""The curve between 1 / r and the smallest greatest r."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from themis_ray.core.auction import run_auction
from themis_ray.core.bids import BidRow, BidTable
from themis_ray.core.cluster import Allocation
from themis_ray.core.policies.averse import averse

AVERSIONS = st.sampled_from([1e-6, 0.5, 1.0, 2.0, 8.0, 64.0])
SOME_R = st.floats(1e-3, 1e3)


def table(app, nothing, *rs):
    """r of one GPU, two, ..."""
    return BidTable(app, nothing, tuple(BidRow(r, parts=(1,) * n) for n, r in enumerate(rs, 1)))


def curve(aversion, *rs, most):
    """What becomes of some r in a round whose greatest r is ``most``."""
    tables = {"a": table("a", most, *rs), "b": table("b", math.inf)}
    changed = averse(tables, aversion)
    assert changed["b"] == tables["b"]
    return [changed["a"].r_nothing, *(row.r for row in changed["a"].rows)]


def test_without_aversion_the_value_is_one_over_r():
    tables = {"a": table("a", 4.0, 2.0, 1.0), "b": table("b", math.inf, 3.0)}
    assert averse(tables, 0.0) == tables


@given(SOME_R, SOME_R)
def test_a_tiny_aversion_is_none(one, other):
    most = max(one, other)
    top, r = curve(1e-6, min(one, other), most=most)
    assert top == 1.0
    assert r == pytest.approx(min(one, other) / most, rel=1e-3)


@given(AVERSIONS, st.lists(SOME_R, min_size=1, max_size=5))
def test_it_keeps_the_order(aversion, rs):
    """Small r far below the greatest may become as good as equal, but never change places."""
    rs = sorted(rs)
    most, *changed = curve(aversion, *rs, most=rs[-1])
    assert most == changed[-1] == 1.0
    assert changed == sorted(changed)
    for low, high, before, after in zip(rs, rs[1:], changed, changed[1:], strict=False):
        if low < high * 0.99 and (high / rs[-1]) ** aversion > 1e-9:
            assert before < after


@given(AVERSIONS, st.floats(0.1, 100.0))
def test_the_greatest_r_has_the_elasticity_of_one_over_r(aversion, most):
    """d log V / d log r = -(r / r_max)^p: -1 at r_max, and less below it."""
    step = 1e-6
    for r in (most, most / 2):
        less, more = curve(aversion, r * (1 - step), r * (1 + step), most=most)[1:]
        slope = -(math.log(more) - math.log(less)) / (math.log1p(step) - math.log1p(-step))
        assert slope == pytest.approx(-((r / most) ** aversion), rel=1e-3, abs=1e-6)


def test_values_stay_numbers_however_great_r_is():
    """Beyond the greatest finite r(0) may lie only an app that has none."""
    assert all(0 < r < math.inf for r in curve(64.0, 1e-12, 1e-3, 1.0, 1e9, most=1.0))
    assert averse({"a": table("a", math.inf, 2.0)}, 8.0)["a"].r_nothing == math.inf


@st.composite
def auctions(draw):
    """Two or three apps and up to four GPUs; r are powers of 3/2, so that no two are near."""
    gpus = draw(st.integers(1, 4))
    steps = st.integers(0, 4)
    tables = []
    for app in "abc"[: draw(st.integers(2, 3))]:
        powers = sorted(draw(st.lists(steps, min_size=gpus + 1, max_size=gpus + 1)), reverse=True)
        tables.append(table(app, *(1.5**k for k in powers)))
    return gpus, tables


@given(auctions())
@settings(max_examples=60, deadline=None)
def test_a_great_aversion_makes_the_greatest_r_as_small_as_can_be(auction):
    gpus, tables = auction
    options = [[t.r_nothing, *(row.r for row in t.rows)] for t in tables]
    splits = itertools.product(range(gpus + 1), repeat=len(tables))
    least = min(
        max(of[n] for of, n in zip(options, split, strict=True))
        for split in splits
        if sum(split) <= gpus
    )
    values = averse({t.app: t for t in tables}, 8.0)
    won = run_auction(Allocation({"m0": gpus}), {}, list(values.values())).proportional_fair
    reached = [of[won[t.app].size] for of, t in zip(options, tables, strict=True)]
    assert max(reached) == pytest.approx(least)


def test_aversion_changes_who_wins():
    """From 4 to 2 for the one or from 1 to 0.4 for the other: their product prefers the latter."""
    tables = {"a": table("a", 4.0, 2.0), "b": table("b", 1.0, 0.4)}

    def winner(aversion):
        some = list(averse(tables, aversion).values())
        won = run_auction(Allocation({"m0": 1}), {}, some).proportional_fair
        return [app for app, gpus in won.items() if gpus]

    assert winner(0.0) == ["b"]
    assert winner(8.0) == ["a"]
