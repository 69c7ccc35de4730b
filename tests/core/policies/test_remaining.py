import math
from dataclasses import replace

import pytest
from policy_views import app, bid_table, job, round_of

from themis_ray.core.bids import BidRow, BidTable
from themis_ray.core.cluster import Allocation
from themis_ray.core.policies.life import Forecast
from themis_ray.core.policies.remaining import remaining

M8 = {"m0": 8}
WORK = 16000.0


def ones(name, n=8, **more):
    return app(name, *(job(name=f"j{i}") for i in range(n)), **more)


def left_of(view, bids, share=4.0):
    return remaining(bids, view.apps[bids.app], view, 45.0, Forecast(0.0, share))


def by_size(left):
    return {bundle.row.size: bundle for bundle in left.bundles}


def test_what_is_left_by_hand():
    """16000 GPU-s left, on 8 GPUs 2000 s; both restarts of new GPUs take 45 s."""
    view = round_of(M8, ones("a", t_ideal=5000.0))
    left = left_of(view, bid_table(view, "a", WORK))
    assert left.soonest_s == pytest.approx(2000)
    assert left.work_gpu_s == pytest.approx(WORK)
    assert {size: b.left_s for size, b in by_size(left).items()} == pytest.approx(
        {n: WORK / n for n in range(1, 9)}
    )
    assert {b.dead_s for b in left.bundles} == {90.0}


def test_gpus_that_one_has_cost_no_restart():
    """4 of 8 are its own: dead for half of 90 s."""
    view = round_of(M8, ones("a", t_ideal=5000.0, expiring={"m0": 4}))
    found = by_size(left_of(view, bid_table(view, "a", WORK, own=True)))
    assert [found[n].dead_s for n in (4, 8)] == [0.0, 45.0]


def test_what_is_kept_counts_for_what_is_left():
    view = round_of(M8, ones("a", t_ideal=5000.0, kept={"m0": 2}), pool={"m0": 6})
    left = left_of(view, bid_table(view, "a", WORK), share=2.0)
    assert left.work_gpu_s == pytest.approx(WORK)
    assert left.soonest_s == pytest.approx(2000)
    assert by_size(left)[6].dead_s == pytest.approx(90 * 6 / 8)


def test_who_cannot_win_anything_is_known_by_what_it_keeps():
    view = round_of(M8, ones("a", t_ideal=5000.0, kept={"m0": 8}), pool={})
    left = left_of(view, BidTable("a", (1000 + 2000) / 5000, ()))
    assert (left.bundles, left.soonest_s) == ((), pytest.approx(2000))


def test_the_charge_for_moving_is_not_taken_twice():
    jobs = [job(name=f"j{i}", restart_s=30.0) for i in range(8)]
    view = round_of(M8, app("a", *jobs, t_ideal=5000.0))
    plain = bid_table(view, "a", WORK)
    charged = BidTable(
        "a", math.inf, tuple(replace(row, r=row.r + 30 / 5000) for row in plain.rows)
    )
    left = left_of(view, charged)
    assert left.soonest_s == pytest.approx(2000)
    assert {b.dead_s for b in left.bundles} == {60.0}


def test_what_an_app_says_of_moving_is_kept_beside():
    """A bundle of which a half is new: its row charges half a restart of 30 s."""
    view = round_of(M8, app("a", job(2, restart_s=30.0), t_ideal=5000.0, expiring={"m0": 1}))
    row = BidRow((1000 + 2000 + 15) / 5000, Allocation({"m0": 1}), (1,))
    left = left_of(view, BidTable("a", math.inf, (row,)))
    (bundle,) = left.bundles
    assert (bundle.left_s, bundle.moved_s) == (pytest.approx(2000), pytest.approx(2015))
    assert left.now_s == math.inf


def test_how_long_it_takes_with_what_is_kept():
    view = round_of(M8, ones("a", t_ideal=5000.0, kept={"m0": 2}), pool={"m0": 6})
    assert left_of(view, bid_table(view, "a", WORK)).now_s == pytest.approx(WORK / 2)


@pytest.mark.parametrize("share", [1.0, 2.0, 2.5, 4.0, 8.0, 100.0])
def test_work_of_linear_speed_does_not_depend_on_the_share(share):
    view = round_of(M8, ones("a", t_ideal=5000.0))
    bids = bid_table(view, "a", WORK)
    if share in (1.0, 2.0, 4.0, 8.0, 100.0):
        assert left_of(view, bids, share).work_gpu_s == pytest.approx(WORK)
    assert left_of(view, bids, share).work_gpu_s == pytest.approx(WORK, rel=0.05)


def test_a_table_that_ends_early_says_nothing_of_more():
    """With one GPU at most the work is that of one GPU, whatever the share."""
    view = round_of(M8, ones("a", 1, t_ideal=5000.0))
    left = left_of(view, bid_table(view, "a", WORK))
    assert (left.soonest_s, left.work_gpu_s) == (pytest.approx(WORK), pytest.approx(WORK))


def test_the_age_of_an_app_that_was_here_before_the_arbiter():
    view = round_of(M8, ones("a", t_ideal=5000.0, joined=900.0, elapsed=1000.0))
    bids = bid_table(round_of(M8, ones("a", t_ideal=5000.0)), "a", WORK)
    assert left_of(view, bids).soonest_s == pytest.approx(2000)


def test_a_restart_costs_a_quarter_of_a_lease_at_most():
    """A lease of 60 s would be over before an app has moved, and nobody new could bid."""
    view = round_of(M8, ones("a", t_ideal=5000.0), lease=60.0)
    assert {b.dead_s for b in left_of(view, bid_table(view, "a", WORK)).bundles} == {15.0}


@pytest.mark.parametrize("told", [math.inf, 0.0])
def test_an_app_that_tells_no_t_id_has_nothing_left_to_reckon_with(told):
    view = round_of(M8, ones("a", t_ideal=5000.0))
    bids = bid_table(view, "a", WORK)
    one = view.apps["a"]
    silent = replace(one, report=replace(one.report, t_ideal_s=told))
    left = remaining(bids, silent, view, 45.0, Forecast(0.0, 4.0))
    assert (left.work_gpu_s, left.soonest_s) == (0.0, 0.0)
    assert len(left.bundles) == len(bids.rows)
