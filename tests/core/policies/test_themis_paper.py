import math
from fractions import Fraction

import pytest
from policy_views import app, counts, job, kinds, round_of

from themis_ray.core.bids import BidRow, BidTable
from themis_ray.core.policies import ThemisPaper


def ones(name, n=4, **more):
    return app(name, *(job(name=f"j{i}") for i in range(n)), **more)


def bids(view, *names):
    rows = [BidRow(4 / n, parts=(1,) * n) for n in range(1, view.pool.size + 1)]
    return {name: BidTable(name, math.inf, tuple(rows)) for name in names}


@pytest.mark.parametrize(("knob", "n"), [("0.8", 2), ("0.7", 3), ("0", 10), ("1", 1)])
def test_the_worst_off_part_bids_by_exact_arithmetic(knob, n):
    view = round_of({"m0": 4}, *(ones(f"a{i}", r=float(i + 1)) for i in range(10)))
    bidders = ThemisPaper(fairness_knob=Fraction(knob)).bidders(view)
    assert bidders == tuple(f"a{i}" for i in range(9, 9 - n, -1))


def test_ties_go_to_who_has_waited_longest_by_its_own_measure():
    view = round_of(
        {"m0": 4}, ones("a", joined=0.0, t_ideal=9e3), ones("b", joined=500.0, t_ideal=1e3)
    )
    assert ThemisPaper(fairness_knob=Fraction(1)).bidders(view) == ("b",)


def test_two_like_apps_keep_half_each_and_the_rest_goes_out_again():
    """c = 1/2 for each (two apps of one divisible good); no GPU stays idle."""
    view = round_of({"m0": 4}, ones("a"), ones("b"))
    policy = ThemisPaper(fairness_knob=Fraction(0))
    outcome = policy.allocate(view, bids(view, "a", "b"))
    assert sum(counts(outcome).values()) == 4
    assert all(r.payment_factor == pytest.approx(0.5) for r in outcome.reasons.values())


def test_apps_that_did_not_bid_get_the_leftovers_first():
    view = round_of({"m0": 4}, ones("a", r=9.0), ones("b", r=9.0), ones("c", r=1.0))
    outcome = ThemisPaper(fairness_knob=Fraction(1, 3)).allocate(view, bids(view, "a", "b"))
    assert counts(outcome)["c"] == 2
    assert kinds(outcome)["c"] == "GotLeftover"


@pytest.mark.parametrize("mode", ["random", "placed"])
def test_leftovers_of_gangs_are_whole(mode):
    view = round_of({"m0": 3, "m1": 3}, app("a", *(job(2, name=f"j{i}") for i in range(3))))
    for seed in range(10):
        policy = ThemisPaper(leftover=mode, seed=seed)
        outcome = policy.allocate(view, {})
        assert {m: c % 2 for m, c in outcome.awards["a"].gpus.items()} == {"m0": 0, "m1": 0}


def test_chance_is_seeded_by_the_round():
    def drawn(seed, round_id):
        view = round_of({"m0": 4}, *(ones(f"a{i}", 1) for i in range(8)), round_id=round_id)
        return tuple(ThemisPaper(seed=seed).allocate(view, {}).awards)

    assert drawn(1, 1) == drawn(1, 1)
    assert len({drawn(seed, n) for seed in range(3) for n in range(3)}) > 4
