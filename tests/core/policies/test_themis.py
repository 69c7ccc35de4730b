import math
from dataclasses import replace

import pytest
from policy_views import app, counts, got, job, kinds, round_of

from themis_ray.core.bids import BidRow, BidTable
from themis_ray.core.cluster import Allocation
from themis_ray.core.policies import Themis
from themis_ray.core.policies.lease_aware import fair_r, fair_share, lease_aware
from themis_ray.errors import ConfigError

M8 = {"m0": 8}


def ones(name, n=8, **more):
    return app(name, *(job(name=f"j{i}") for i in range(n)), **more)


def table(view, name, work, most=None, own=0):
    """Honest bids of linear speed: ``work`` GPU-seconds left, GPUs that are kept included."""
    a = view.apps[name]
    elapsed, kept = view.now_s - a.joined_s, a.kept.size
    most = a.needs if most is None else most

    def r(gpus):
        return (elapsed + work / gpus) / a.report.t_ideal_s if gpus else math.inf

    rows = []
    for n in range(1, most + 1):
        pinned = Allocation({m: min(n, c) for m, c in a.expiring.items()} if own else {})
        rest = n - pinned.size
        rows.append(BidRow(r(kept + n), pinned, (1,) * rest))
    return BidTable(name, r(kept), tuple(rows))


# -- r for one lease ------------------------------------------------------------------------


def test_r_for_one_lease_by_hand():
    """8 GPUs, 2 apps: a share of 4. 16000 GPU-s left, T_id 5000 s, 1000 s old, L = 600.

    The rest takes 4000 s on the share. On 8 GPUs it would take 2000 s; new GPUs are dead for 90 s
    of 600, so 510/2000 of the rest is done and 74.5% takes 2980 s: (1000 + 600 + 2980) / 5000.
    """
    view = round_of(M8, ones("a", t_ideal=5000.0, n_avg=2.0))
    restated = lease_aware(table(view, "a", 16000.0), view.apps["a"], view, 45.0)
    assert restated.r_nothing == pytest.approx((1000 + 600 + 4000) / 5000)
    assert restated.rows[-1].r == pytest.approx(4580 / 5000)


def test_gpus_that_one_has_cost_no_restart():
    """4 of 8 are its own: dead for half of 90 s."""
    view = round_of(M8, ones("a", t_ideal=5000.0, n_avg=2.0, expiring={"m0": 4}))
    restated = lease_aware(table(view, "a", 16000.0, own=True), view.apps["a"], view, 45.0)
    by_size = {row.size: row.r for row in restated.rows}
    assert by_size[4] == pytest.approx((1600 + (1 - 600 / 4000) * 4000) / 5000)
    assert by_size[8] == pytest.approx((1600 + (1 - 555 / 2000) * 4000) / 5000)


def test_an_app_that_ends_within_the_lease():
    """800 GPU-s on 8 GPUs take 100 s, and 90 s to start."""
    view = round_of(M8, ones("a", t_ideal=5000.0, n_avg=2.0))
    restated = lease_aware(table(view, "a", 800.0), view.apps["a"], view, 45.0)
    assert restated.rows[-1].r == pytest.approx((1000 + 90 + 100) / 5000)
    assert restated.r_nothing == pytest.approx((1000 + 600 + 200) / 5000)


def test_what_is_kept_is_worth_something_without_the_round():
    view = round_of(M8, ones("a", t_ideal=5000.0, n_avg=2.0, kept={"m0": 2}), pool={"m0": 6})
    restated = lease_aware(table(view, "a", 16000.0), view.apps["a"], view, 45.0)
    assert restated.r_nothing == pytest.approx((1600 + (1 - 600 / 8000) * 4000) / 5000)


def test_the_charge_for_moving_is_not_taken_twice():
    jobs = [job(name=f"j{i}", restart_s=30.0) for i in range(8)]
    view = round_of(M8, app("a", *jobs, t_ideal=5000.0, n_avg=2.0))
    plain = table(view, "a", 16000.0)
    charged = BidTable(
        "a", math.inf, tuple(replace(row, r=row.r + 30 / 5000) for row in plain.rows)
    )
    restated = lease_aware(charged, view.apps["a"], view, 45.0)
    assert restated.rows[-1].r == pytest.approx((1600 + (1 - 540 / 2000) * 4000) / 5000)


@pytest.mark.parametrize(
    ("n_avg", "fair_s"), [(1.0, 2000.0), (2.0, 4000.0), (3.2, 6400.0), (16.0, 32000.0)]
)
def test_the_fair_time_is_read_off_the_table(n_avg, fair_s):
    """Also between two sizes and below the smallest."""
    view = round_of(M8, ones("a", t_ideal=5000.0, n_avg=n_avg))
    restated = lease_aware(table(view, "a", 16000.0), view.apps["a"], view, 45.0)
    assert restated.r_nothing == pytest.approx((1600 + fair_s) / 5000)
    few = lease_aware(table(view, "a", 16000.0, most=1), view.apps["a"], view, 45.0)
    assert few.r_nothing == pytest.approx((1600 + fair_s) / 5000)


def test_the_age_of_an_app_that_was_here_before_the_arbiter():
    view = round_of(M8, ones("a", t_ideal=5000.0, n_avg=2.0, joined=900.0, elapsed=1000.0))
    bids = table(round_of(M8, ones("a", t_ideal=5000.0)), "a", 16000.0)
    restated = lease_aware(bids, view.apps["a"], view, 45.0)
    assert restated.rows[-1].r == pytest.approx(4580 / 5000)


def test_rows_that_help_nobody_are_left_out():
    """A lease of 60 s is over before an app has moved."""
    view = round_of(M8, ones("a", t_ideal=5000.0, n_avg=2.0), lease=60.0)
    assert not lease_aware(table(view, "a", 16000.0), view.apps["a"], view, 45.0).rows


# -- weights -----------------------------------------------------------------------------------


def test_the_weight_tells_how_far_an_app_is_behind():
    """1000 s old with a share of 4: fair are 4000 GPU-s."""
    for attained, r in ((4000.0, 1.0), (0.0, 1.2), (2000.0, 1.1), (8000.0, 0.8)):
        view = round_of(M8, ones("a", t_ideal=5000.0, n_avg=2.0, attained=attained))
        assert fair_r(view.apps["a"], view) == pytest.approx(r)


def test_an_app_that_cannot_use_its_share_is_not_behind():
    view = round_of(M8, ones("a", 2, t_ideal=5000.0, n_avg=2.0, attained=2000.0))
    assert fair_r(view.apps["a"], view) == pytest.approx(1.0)


def test_an_app_whose_demand_has_shrunk_is_not_ahead_for_that():
    """It had 4 GPUs for 1000 s, its share, and now wants one."""
    view = round_of(M8, ones("a", 1, t_ideal=5000.0, n_avg=2.0, attained=4000.0))
    assert fair_r(view.apps["a"], view) == pytest.approx(1.0)


def test_the_share_grows_with_the_apps_weight():
    view = round_of(M8, ones("a", weight=2.0, n_avg=4.0), ones("b", n_avg=4.0))
    assert [fair_share(view.apps[n], view) for n in "ab"] == [4.0, 2.0]


def test_weights_are_powers_and_do_not_hang_on_the_bids():
    view = round_of(
        M8, ones("a", t_ideal=5000.0, n_avg=2.0), ones("b", t_ideal=5000.0, n_avg=2.0, attained=4e3)
    )
    assert Themis(beta=3.0).weights(view) == pytest.approx({"a": 1.0, "b": 1 / 1.2**3})
    assert Themis(beta=0.0).weights(view) == {"a": 1.0, "b": 1.0}


# -- the round ---------------------------------------------------------------------------------


def decide(policy, view, **work):
    assert set(policy.bidders(view)) == set(work)
    return policy.allocate(view, {name: table(view, name, w) for name, w in work.items()})


def test_like_apps_take_turns():
    """r' falls in a line, so log V bends upwards: the pool goes whole to one, then to the other."""

    def given(attained, expiring=()):
        view = round_of(
            M8,
            ones("a", n_avg=2.0, t_ideal=4e3, attained=attained, expiring=dict(expiring)),
            ones("b", n_avg=2.0, t_ideal=4e3),
        )
        bids = {
            "a": table(view, "a", 16000.0 - attained, own=bool(expiring)),
            "b": table(view, "b", 16000.0),
        }
        outcome = Themis().allocate(view, bids)
        assert set(Themis().bidders(view)) == {"a", "b"}
        assert all(0.5 < award.lease_fraction <= 1 for award in outcome.awards.values())
        return counts(outcome)

    assert given(0.0) == {"a": 8}
    assert given(4800.0, expiring={"m0": 8}.items()) == {"b": 8}


def test_the_one_that_is_behind_gets_more_the_greater_beta_is():
    def given(beta):
        view = round_of(
            M8,
            ones("a", n_avg=2.0, t_ideal=2e3, attained=0.0),
            ones("b", n_avg=2.0, t_ideal=2e3, attained=4000.0),
        )
        return counts(decide(Themis(beta=beta), view, a=8000.0, b=8000.0)).get("a", 0)

    assert given(0.0) <= given(3.0) <= given(12.0)
    assert given(12.0) > 4


def test_an_app_stays_on_its_own_gpus():
    machines = {"m0": 4, "m1": 4}
    view = round_of(
        machines,
        ones("a", 4, n_avg=2.0, t_ideal=4e3, expiring={"m1": 4}, attained=2e3),
        ones("b", 4, n_avg=2.0, t_ideal=4e3, attained=2e3),
    )
    bids = {"a": table(view, "a", 16000.0, own=True), "b": table(view, "b", 16000.0)}
    assert got(Themis().allocate(view, bids)) == {"a": {"m1": 4}, "b": {"m0": 4}}


def test_what_nobody_bid_for_goes_to_those_furthest_behind():
    view = round_of(
        M8, ones("a", t_ideal=5000.0, n_avg=2.0, attained=9e3), ones("b", t_ideal=5e3, n_avg=2.0)
    )
    bids = {name: BidTable(name, math.inf) for name in "ab"}
    outcome = Themis().allocate(view, bids)
    assert counts(outcome) == {"b": 8}
    assert kinds(outcome) == {"a": "Outbid", "b": "GotLeftover"}


@pytest.mark.parametrize(
    "options", [{"beta": -1.0}, {"beta": 99.0}, {"restart_s": -1.0}, {"min_bidders": 0}]
)
def test_settings_that_make_no_sense_are_refused(options):
    with pytest.raises(ConfigError):
        Themis(**options)
