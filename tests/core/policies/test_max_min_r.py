import itertools
import math
import random

import pytest
from policy_views import app, counts, job, kinds, round_of

from themis_ray.core.bids import BidRow, BidTable
from themis_ray.core.policies import MaxMinR


def table(name, rs, nothing=math.inf):
    """Rows by GPU count."""
    return BidTable(name, nothing, tuple(BidRow(r, parts=(1,) * n) for n, r in rs.items()))


def ones(name, n, **more):
    return app(name, *(job(name=f"j{i}") for i in range(n)), **more)


def decide(gpus, *tables):
    apps = [ones(t.app, gpus) for t in tables]
    return MaxMinR().allocate(round_of({"m0": gpus}, *apps), {t.app: t for t in tables})


def test_the_greatest_r_is_as_small_as_can_be():
    """4/n and 1/n on 5 GPUs: 4 and 1 give 1 and 1; the fifth GPU is worth most there."""
    outcome = decide(
        5,
        table("a", {n: 4 / n for n in range(1, 6)}),
        table("b", {n: 1 / n for n in range(1, 6)}),
    )
    assert counts(outcome) == {"a": 4, "b": 1}
    assert outcome.reasons["a"].key == 1.0


def test_the_next_greatest_goes_on_when_the_greatest_cannot_be_lowered():
    outcome = decide(
        4, table("a", {1: 9.0, 2: 9.0, 3: 9.0, 4: 9.0}), table("b", {1: 4, 2: 2, 3: 1})
    )
    assert counts(outcome) == {"a": 1, "b": 3}


def test_without_a_bid_there_is_no_award():
    view = round_of({"m0": 4}, ones("a", 2), ones("b", 2))
    outcome = MaxMinR().allocate(view, {"b": table("b", {1: 2.0})})
    assert kinds(outcome)["a"] == "NoAnswer"
    assert "bid" in str(outcome.reasons["a"])


@pytest.mark.parametrize("seed", range(60))
def test_exact_against_all_divisions(seed):
    rng = random.Random(seed)
    gpus, n = rng.randint(1, 7), rng.randint(1, 4)
    tables = []
    for i in range(n):
        r, rs = rng.uniform(2, 9), {}
        for size in range(1, gpus + 1):
            r -= rng.choice([0.0, rng.uniform(0, 1.0)])
            rs[size] = max(0.1, r)
        tables.append(table(f"a{i}", rs, rng.choice([10.0, math.inf])))
    given = counts(decide(gpus, *tables))

    def greatest(division):
        return sorted(
            (
                min([t.r_nothing, *(row.r for row in t.rows if row.size <= k)])
                for t, k in zip(tables, division, strict=True)
            ),
            reverse=True,
        )

    divisions = itertools.product(range(gpus + 1), repeat=n)
    best = min(greatest(d)[0] for d in divisions if sum(d) <= gpus)
    assert greatest([given.get(t.app, 0) for t in tables])[0] == best
