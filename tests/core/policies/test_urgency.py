import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_views import app, bid_table, job, round_of

from themis_ray.core.auction import run_auction
from themis_ray.core.bids import BidRow, BidTable
from themis_ray.core.cluster import Allocation
from themis_ray.core.policies.life import Forecast
from themis_ray.core.policies.remaining import Bundle, Remaining
from themis_ray.core.policies.themis import jobs_of
from themis_ray.core.policies.urgency import Claim, claims, due_times_s, valued, worth

M8 = {"m0": 8}
HORIZON_S = 600.0


def left_of(work_gpu_s, soonest_s, bundles=(), now_s=math.inf):
    return Remaining(tuple(bundles), work_gpu_s, soonest_s, now_s)


# -- when an app is due ----------------------------------------------------------------------


def test_an_app_is_due_when_it_would_be_done_with_its_fair_share():
    view = round_of(M8, app("a", job()), app("b", job()))
    fair = {"a": Forecast(3000.0, 4.0), "b": Forecast(5000.0, 4.0)}
    left = {"a": left_of(8000.0, 1000.0), "b": left_of(16000.0, 2000.0)}
    assert due_times_s(view, fair, left) == {"a": 3000.0, "b": 5000.0}


def test_what_cannot_be_done_in_time_is_put_off_for_all_alike():
    """Both joined now and have 16000 GPU-s, due in 2000 s: 8 GPUs take 4000 s for both."""
    view = round_of(M8, *(app(name, job(), joined=1000.0) for name in "ab"))
    fair = {name: Forecast(3000.0, 4.0) for name in "ab"}
    left = {name: left_of(16000.0, 2000.0) for name in "ab"}
    assert due_times_s(view, fair, left) == pytest.approx({"a": 5000.0, "b": 5000.0})


def test_the_longest_job_of_one_app_puts_off_all():
    """It joined 1000 s ago and was to be done in 1000 s, but needs 3000: r is 2 at least."""
    view = round_of(M8, app("a", job()), app("b", job(), joined=500.0))
    fair = {"a": Forecast(2000.0, 1.0), "b": Forecast(4500.0, 1.0)}
    left = {"a": left_of(3000.0, 3000.0), "b": left_of(100.0, 100.0)}
    assert due_times_s(view, fair, left) == pytest.approx({"a": 4000.0, "b": 8500.0})


@given(
    st.lists(
        st.tuples(st.floats(0, 1000), st.floats(10, 1e4), st.floats(1, 1e5), st.floats(1, 1e4)),
        min_size=1,
        max_size=5,
    )
)
def test_nothing_is_put_off_further_than_the_work_demands(apps):
    """One common r, of which a little less would not do."""
    names = [f"a{i}" for i in range(len(apps))]
    view = round_of(M8, *(app(n, job(), joined=x[0]) for n, x in zip(names, apps, strict=True)))
    ideal = {n: x[1] for n, x in zip(names, apps, strict=True)}
    fair = {n: Forecast(view.apps[n].joined_s + ideal[n], 1.0) for n in names}
    left = {n: left_of(x[2], x[3]) for n, x in zip(names, apps, strict=True)}
    due = due_times_s(view, fair, left)
    rs = [(due[n] - view.apps[n].joined_s) / ideal[n] for n in names]
    assert min(rs) == pytest.approx(max(rs), rel=1e-6)

    def can_be_done(r):
        at = {n: view.apps[n].joined_s + r * ideal[n] - view.now_s for n in names}
        if any(at[n] < left[n].soonest_s * (1 - 1e-9) for n in names):
            return False
        return all(
            sum(left[n].work_gpu_s for n in names if at[n] <= at[last]) <= 8 * at[last] * (1 + 1e-6)
            for last in names
        )

    assert can_be_done(rs[0] * (1 + 1e-6))
    assert rs[0] == pytest.approx(1.0) or not can_be_done(rs[0] * (1 - 1e-4))


# -- claims ------------------------------------------------------------------------------------


def claims_of(view, due_s, later_s=0.0, soonest_s=0.0):
    (one,) = view.apps.values()
    left = left_of(1.0, soonest_s)
    return claims(one, jobs_of(view).get(one.id, []), left, due_s, later_s, HORIZON_S, view)


def test_the_longest_job_can_wait_least():
    """Due in 2000 s: jobs of 100, 1500 and 800 s could wait 1900, 500 and 1200 s."""
    jobs = [job(name=f"j{left:.0f}", left=left) for left in (100.0, 1500.0, 800.0)]
    view = round_of(M8, app("a", *jobs))
    found = claims_of(view, due_s=3000.0, later_s=1800.0)
    assert [(c.taker.job.id, c.laxity_s, c.weight) for c in found] == [
        ("j1500", 500.0, 1.25),
        ("j800", 1200.0, 0.25),
        ("j100", 1900.0, 0.25),
    ]


def test_phases_to_come_and_restarts_leave_less_time():
    """The whole app takes 1700 s at least, of which its job of 1500 s is a part."""
    view = round_of(M8, app("a", job(left=1500.0, restart_s=45.0)))
    (found,) = claims_of(view, due_s=3000.0, soonest_s=1700.0)
    assert found.laxity_s == pytest.approx(2000 - 1700 - 45)


def test_a_job_on_several_gpus_takes_less_time():
    view = round_of(M8, app("a", job(4, left=1600.0, name="wide"), job(left=500.0, name="one")))
    assert [c.taker.job.id for c in claims_of(view, due_s=9e9)] == ["one", "wide"]


def test_jobs_without_an_end_can_be_ranked():
    view = round_of(M8, app("a", job(left=math.inf, name="endless"), job(name="j")))
    assert len(claims_of(view, due_s=3000.0)) == 2


# -- worth -------------------------------------------------------------------------------------


def some_claims(*gangs_and_weights, runs=False):
    jobs = [job(gpus, name=f"j{i}") for i, (gpus, _) in enumerate(gangs_and_weights)]
    own = {"m0": sum(gpus for gpus, _ in gangs_and_weights) if runs else 0}
    takers = jobs_of(round_of({"m0": 64}, app("a", *jobs, expiring=own)))["a"]
    assert all(taker.runs == runs for taker in takers)
    weights = [weight for _, weight in gangs_and_weights]
    return [Claim(t, 0.0, w) for t, w in zip(takers, weights, strict=True)]


def test_gpus_are_worth_what_jobs_take_of_them():
    some = some_claims((2, 1.0), (1, 0.5), (4, 0.25))
    assert [worth(some, n) for n in range(9)] == [0, 0.5, 2, 2.5, 2.5, 2.5, 2.5, 3.5, 3.5]


def worths(found):
    """What the rows of a table are worth, in GPUs of a cluster of 8."""
    return [-8 * math.log(row.r) for row in found.rows]


def test_a_bundle_is_worth_less_the_slower_it_is_and_the_longer_it_is_dead():
    view = round_of(M8, app("a", *(job(name=f"j{i}") for i in range(4))))
    rows = [
        Bundle(BidRow(0.2, parts=(4,)), 100.0, 100.0, 0.0),
        Bundle(BidRow(0.4, parts=(2, 2)), 200.0, 200.0, 0.0),
        Bundle(BidRow(0.3, parts=(2,)), 150.0, 150.0, 60.0),
        Bundle(BidRow(1.0, parts=(1,)), 900.0, 900.0, 60.0),
    ]
    table = BidTable("a", 1.0, tuple(bundle.row for bundle in rows))
    some = some_claims((1, 1.0), (1, 1.0), (1, 0.5), (1, 0.5))
    found = valued(table, left_of(1.0, 1.0, rows, now_s=900.0), some, view)
    assert found.r_nothing == 1.0
    # The last row is no better than nothing.
    assert worths(found) == pytest.approx([3.0, 1.5, 1.8])


def spread_or_together(work_s, slowdown=1.5, charge_s=45.0):
    """What staying on two machines and moving to one are worth to a gang of two that runs."""
    view = round_of({"m0": 4, "m1": 4}, app("a", job(2, spans=True)))
    stays = BidRow(1.0, Allocation({"m0": 1, "m1": 1}))
    moves = BidRow(1.0, parts=(2,))
    rows = [
        Bundle(stays, work_s * slowdown, work_s * slowdown, 0.0),
        Bundle(moves, work_s, work_s + charge_s, 0.0),
    ]
    table = BidTable("a", math.inf, (stays, moves))
    found = valued(table, left_of(1.0, 1.0, rows), some_claims((2, 1.0), runs=True), view)
    return worths(found)


def test_a_spread_bundle_is_worth_less_when_moving_together_pays():
    """1500 s as it lies, or 1045 s on one machine, the restart included."""
    assert spread_or_together(1000.0) == pytest.approx([2.0 * 1045 / 1500, 2.0])


def test_a_spread_bundle_is_worth_more_when_its_app_is_nearly_done():
    """30 s as it lies, or 65 s on one machine, the restart included."""
    assert spread_or_together(20.0) == pytest.approx([2.0, 2.0 * 30 / 65])


@given(st.floats(1.0, 1e5), st.floats(1.0, 2.0), st.floats(0.0, 120.0))
def test_what_ends_an_app_soonest_is_worth_most(work_s, slowdown, charge_s):
    stays, moves = spread_or_together(work_s, slowdown, charge_s)
    assert max(stays, moves) == pytest.approx(2.0)
    assert stays / moves == pytest.approx((work_s + charge_s) / (work_s * slowdown))


def nearly_done(some, left_s=50.0):
    """An app that keeps a GPU and ends on it in 60 s; one more costs it a restart."""
    view = round_of(M8, app("a", job(2, least=1)))
    row = BidRow((left_s + 45.0) / 100.0, parts=(1,))  # by Equation 1, moving counted
    rows = [Bundle(row, left_s, left_s + 45.0, 0.0)]
    return valued(BidTable("a", 0.6, (row,)), left_of(1.0, 1.0, rows, now_s=60.0), some, view)


def test_a_restart_does_not_keep_those_that_wait_from_bidding():
    assert len(nearly_done(some_claims((1, 1.0))).rows) == 1
    assert len(nearly_done(some_claims((1, 1.0), runs=True)).rows) == 0


def test_those_that_wait_do_not_bid_for_what_makes_nothing_faster():
    assert len(nearly_done(some_claims((1, 1.0)), left_s=60.0).rows) == 0


@given(st.lists(st.lists(st.floats(0.05, 1.0), min_size=1, max_size=5), min_size=1, max_size=3))
def test_the_auction_serves_the_most_urgent_jobs(weights):
    """Single GPUs on one machine: no other division has a greater sum of weights."""
    gpus = 4
    apps = [f"a{i}" for i in range(len(weights))]
    view = round_of({"m0": gpus}, *(app(n, *(job(name="j"),) * 5) for n in apps))
    some = {
        n: some_claims(*((1, w) for w in sorted(ws, reverse=True)))
        for n, ws in zip(apps, weights, strict=True)
    }
    tables = []
    for name in apps:
        table = bid_table(view, name, 1e4, most=gpus)
        bundles = [Bundle(row, 1e4 / row.size, 1e4 / row.size, 0.0) for row in table.rows]
        tables.append(valued(table, left_of(1e4, 1.0, bundles), some[name], view))
    result = run_auction(Allocation({"m0": gpus}), {}, tables)
    won = sum(worth(some[n], result.proportional_fair[n].size) for n in apps)
    best = max(
        sum(worth(some[n], k) for n, k in zip(apps, counts, strict=True))
        for counts in product(range(gpus + 1), repeat=len(apps))
        if sum(counts) <= gpus
    )
    assert won == pytest.approx(best, abs=1e-4)
