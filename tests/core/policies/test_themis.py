import math
from dataclasses import replace
from fractions import Fraction

import pytest
from policy_views import app, counts, got, job, kinds, round_of

from themis_ray.core.bids import BidRow, BidTable
from themis_ray.core.cluster import Allocation
from themis_ray.core.fairness import PhaseWork
from themis_ray.core.policies import Themis
from themis_ray.core.policies.fair_clock import Forecast
from themis_ray.core.policies.lease_aware import fair_r, fair_share, lease_aware, told
from themis_ray.core.policies.themis import fair_clock
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


def for_one_lease(bids, view):
    """By the app's own T_id and R / N."""
    a = view.apps[bids.app]
    return lease_aware(bids, a, view, 45.0, told(a, view))


# -- r for one lease ------------------------------------------------------------------------


def test_r_for_one_lease_by_hand():
    """8 GPUs, 2 apps: a share of 4. 16000 GPU-s left, T_id 5000 s, 1000 s old, L = 600.

    The rest takes 4000 s on the share. On 8 GPUs it would take 2000 s; new GPUs are dead for 90 s
    of 600, so 510/2000 of the rest is done and 74.5% takes 2980 s: (1000 + 600 + 2980) / 5000.
    """
    view = round_of(M8, ones("a", t_ideal=5000.0, n_avg=2.0))
    restated = for_one_lease(table(view, "a", 16000.0), view)
    assert restated.r_nothing == pytest.approx((1000 + 600 + 4000) / 5000)
    assert restated.rows[-1].r == pytest.approx(4580 / 5000)


def test_gpus_that_one_has_cost_no_restart():
    """4 of 8 are its own: dead for half of 90 s."""
    view = round_of(M8, ones("a", t_ideal=5000.0, n_avg=2.0, expiring={"m0": 4}))
    restated = for_one_lease(table(view, "a", 16000.0, own=True), view)
    by_size = {row.size: row.r for row in restated.rows}
    assert by_size[4] == pytest.approx((1600 + (1 - 600 / 4000) * 4000) / 5000)
    assert by_size[8] == pytest.approx((1600 + (1 - 555 / 2000) * 4000) / 5000)


def test_an_app_that_ends_within_the_lease():
    """800 GPU-s on 8 GPUs take 100 s, and 90 s to start."""
    view = round_of(M8, ones("a", t_ideal=5000.0, n_avg=2.0))
    restated = for_one_lease(table(view, "a", 800.0), view)
    assert restated.rows[-1].r == pytest.approx((1000 + 90 + 100) / 5000)
    assert restated.r_nothing == pytest.approx((1000 + 600 + 200) / 5000)


def test_what_is_kept_is_worth_something_without_the_round():
    view = round_of(M8, ones("a", t_ideal=5000.0, n_avg=2.0, kept={"m0": 2}), pool={"m0": 6})
    restated = for_one_lease(table(view, "a", 16000.0), view)
    assert restated.r_nothing == pytest.approx((1600 + (1 - 600 / 8000) * 4000) / 5000)


def test_the_charge_for_moving_is_not_taken_twice():
    jobs = [job(name=f"j{i}", restart_s=30.0) for i in range(8)]
    view = round_of(M8, app("a", *jobs, t_ideal=5000.0, n_avg=2.0))
    plain = table(view, "a", 16000.0)
    charged = BidTable(
        "a", math.inf, tuple(replace(row, r=row.r + 30 / 5000) for row in plain.rows)
    )
    restated = for_one_lease(charged, view)
    assert restated.rows[-1].r == pytest.approx((1600 + (1 - 540 / 2000) * 4000) / 5000)


@pytest.mark.parametrize(
    ("n_avg", "fair_s"), [(1.0, 2000.0), (2.0, 4000.0), (3.2, 6400.0), (16.0, 32000.0)]
)
def test_the_fair_time_is_read_off_the_table(n_avg, fair_s):
    """Also between two sizes and below the smallest."""
    view = round_of(M8, ones("a", t_ideal=5000.0, n_avg=n_avg))
    restated = for_one_lease(table(view, "a", 16000.0), view)
    assert restated.r_nothing == pytest.approx((1600 + fair_s) / 5000)


@pytest.mark.parametrize(("n_avg", "fair_s"), [(2.0, 16000.0), (8.0, 16000.0), (16.0, 32000.0)])
def test_no_app_is_faster_than_on_the_most_that_it_asks_for(n_avg, fair_s):
    """A table that ends with one GPU says nothing of a share of four."""
    view = round_of(M8, ones("a", t_ideal=5000.0, n_avg=n_avg))
    few = for_one_lease(table(view, "a", 16000.0, most=1), view)
    assert few.r_nothing == pytest.approx((1600 + fair_s) / 5000)


def test_the_age_of_an_app_that_was_here_before_the_arbiter():
    view = round_of(M8, ones("a", t_ideal=5000.0, n_avg=2.0, joined=900.0, elapsed=1000.0))
    bids = table(round_of(M8, ones("a", t_ideal=5000.0)), "a", 16000.0)
    restated = for_one_lease(bids, view)
    assert restated.rows[-1].r == pytest.approx(4580 / 5000)


def test_a_restart_costs_half_a_lease_at_most():
    """A lease of 60 s would be over before an app has moved, and nobody new could bid."""
    view = round_of(M8, ones("a", t_ideal=5000.0, n_avg=2.0), lease=60.0)
    restated = for_one_lease(table(view, "a", 16000.0), view)
    assert restated.rows[-1].r == pytest.approx((1060 + (1 - 30 / 2000) * 4000) / 5000)


def test_rows_that_help_nobody_are_left_out():
    """It keeps 4 GPUs, and can use no more."""
    view = round_of(M8, ones("a", t_ideal=5000.0, n_avg=2.0, kept={"m0": 4}), pool={"m0": 4})
    own = table(view, "a", 16000.0)
    useless = replace(own, rows=tuple(replace(row, r=own.r_nothing) for row in own.rows))
    assert own.rows
    assert for_one_lease(own, view).rows
    assert not for_one_lease(useless, view).rows


def test_t_id_and_the_share_are_the_forecasts():
    """T_id is 2000 s, as it would be done 2000 s after it joined, with 2 GPUs until then."""
    view = round_of(M8, ones("a", t_ideal=5000.0, n_avg=2.0, joined=100.0, elapsed=1000.0))
    fair = Forecast(2100.0, 2.0)
    bids = table(round_of(M8, ones("a", t_ideal=5000.0)), "a", 16000.0)
    restated = lease_aware(bids, view.apps["a"], view, 45.0, fair)
    assert restated.r_nothing == pytest.approx((1600 + 8000) / 2000)
    assert restated.rows[-1].r == pytest.approx((1600 + (1 - 510 / 2000) * 8000) / 2000)


# -- how far behind -------------------------------------------------------------------------------


def test_how_far_an_app_is_behind_its_share():
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


# -- the round ---------------------------------------------------------------------------------


def decide(policy, view, **work):
    assert set(policy.bidders(view)) == set(work)
    return policy.allocate(view, {name: table(view, name, w) for name, w in work.items()})


def two_like(attained_by_a, aversion, expiring=None):
    """Two apps of 16000 GPU-s, of which ``a`` has done a part, perhaps on GPUs that it has now."""
    view = round_of(
        M8,
        ones("a", n_avg=2.0, t_ideal=4e3, expiring=expiring or {}),
        ones("b", n_avg=2.0, t_ideal=4e3),
    )
    bids = {
        "a": table(view, "a", 16000.0 - attained_by_a, own=bool(expiring)),
        "b": table(view, "b", 16000.0),
    }
    policy = Themis(aversion=aversion)
    assert set(policy.bidders(view)) == {"a", "b"}
    outcome = policy.allocate(view, bids)
    assert all(0.5 < award.lease_fraction <= 1 for award in outcome.awards.values())
    return counts(outcome)


def test_without_aversion_the_pool_goes_whole_to_one():
    """r' falls in a line, so -log r' bends upwards; and who has the GPUs pays no restart."""
    assert two_like(0.0, 0.0) == {"a": 8}
    assert two_like(4800.0, 0.0, {"m0": 8}) == {"a": 8}


@pytest.mark.parametrize("aversion", [4.0, 8.0, 16.0])
def test_with_aversion_like_apps_share_and_then_take_turns(aversion):
    assert two_like(0.0, aversion) == {"a": 4, "b": 4}
    assert two_like(4800.0, aversion, {"m0": 8}) == {"b": 8}


def test_the_one_that_is_behind_gets_more_the_greater_the_aversion():
    def given(aversion):
        view = round_of(M8, *(ones(name, n_avg=2.0, t_ideal=2e3) for name in "ab"))
        return counts(decide(Themis(aversion=aversion), view, a=12e3, b=8e3)).get("a", 0)

    gpus = [given(aversion) for aversion in (0.0, 1.0, 8.0)]
    assert gpus == sorted(gpus)
    assert gpus[0] < 4
    assert gpus[-1] == 8


# -- T_id --------------------------------------------------------------------------------------


def test_t_id_is_that_of_the_clock():
    """Both arrived at 0 and are 1000 s old; the work is 24000 and 8000 GPU-s, on 8 GPUs.

    With 4 GPUs each ``b`` is done after 2000 s; ``a`` has 8 from then on and is done at 4000 s.
    What ``a`` has done is not in its bid: it has got nothing so far.
    """
    view = round_of(
        M8,
        ones("a", t_ideal=9e9, n_avg=2.0, phases=(PhaseWork(24e3, 8.0),)),
        ones("b", t_ideal=7e3, n_avg=2.0, phases=(PhaseWork(8e3, 8.0),)),
    )
    bids = {"a": table(view, "a", 24e3), "b": table(view, "b", 8e3)}
    restated = Themis().restated(view, bids, fair_clock(view))
    # The shares are 20000 GPU-s in 3000 s, which is between 6 and 7, and 4.
    assert restated["a"].r_nothing == pytest.approx((1600 + 24e3 / (20 / 3)) / 4000)
    assert restated["b"].r_nothing == pytest.approx((1600 + 2000) / 2000)
    by_word = Themis(ideal="told").restated(view, bids, None)
    assert by_word["b"].r_nothing == pytest.approx((1600 + 2000) / 7e3)


def test_the_work_of_an_app_that_tells_no_phases_follows_from_its_t_id():
    """T_id of 2000 s on a share of 4 GPUs: 8000 GPU-s; of 1 usable GPU: 2000."""
    view = round_of(M8, ones("a", t_ideal=2e3, n_avg=2.0), ones("b", 1, t_ideal=2e3, n_avg=2.0))
    lives = fair_clock(view).lives
    assert lives["a"].phases == (PhaseWork(8e3, 8.0),)
    assert lives["b"].phases == (PhaseWork(2e3, 1.0),)
    unknown = round_of(M8, ones("a", t_ideal=math.inf))
    assert sum(phase.gpu_s for phase in fair_clock(unknown).lives["a"].phases) < 1e-3


def test_the_clock_goes_on_from_round_to_round():
    """In both rounds there is the same pair of apps, whatever they were given in between."""
    pair = [ones(name, t_ideal=2e3, n_avg=2.0) for name in "ab"]
    first = round_of(M8, *pair)
    outcome = decide(Themis(), first, a=8e3, b=8e3)
    later = round_of(M8, *pair, now=1600.0, memory=outcome.memory, round_id=2)
    assert fair_clock(later) == fair_clock(replace(later, memory={}))
    alone = round_of(M8, pair[0], now=1600.0, memory=outcome.memory)
    assert fair_clock(alone).lives["a"].done_gpu_s == pytest.approx(1600 * 4)


def test_without_lease_awareness_only_t_id_changes():
    view = round_of(M8, ones("a", t_ideal=9e3, n_avg=2.0, phases=(PhaseWork(16e3, 4.0),)))
    bids = {"a": table(view, "a", 16e3)}
    restated = Themis(lease_aware=False).restated(view, bids, fair_clock(view))["a"]
    assert restated.r_nothing == math.inf
    assert restated.rows[-1].r == pytest.approx(3000 / 4000)


# -- placing and filtering ---------------------------------------------------------------------


def test_an_app_stays_on_its_own_gpus():
    machines = {"m0": 4, "m1": 4}
    view = round_of(
        machines,
        ones("a", 4, n_avg=2.0, t_ideal=4e3, expiring={"m1": 4}, attained=2e3),
        ones("b", 4, n_avg=2.0, t_ideal=4e3, attained=2e3),
    )
    bids = {"a": table(view, "a", 16000.0, own=True), "b": table(view, "b", 16000.0)}
    assert got(Themis().allocate(view, bids)) == {"a": {"m1": 4}, "b": {"m0": 4}}


def test_what_nobody_bid_for_goes_to_the_worst_off():
    """Bids end with one GPU each; of the other six, ``b`` takes all that it can use."""
    view = round_of(M8, *(ones(name, 7, t_ideal=2e3, n_avg=2.0) for name in "ab"))
    bids = {name: table(view, name, work, most=1) for name, work in (("a", 6e3), ("b", 8e3))}
    outcome = Themis().allocate(view, bids)
    assert counts(outcome) == {"a": 1, "b": 7}
    assert sorted(bids) == sorted(kinds(outcome))


def test_who_did_not_bid_in_time_is_served_from_what_is_left():
    view = round_of(M8, *(ones(name, t_ideal=5e3, n_avg=2.0) for name in "ab"))
    outcome = Themis().allocate(view, {"a": table(view, "a", 4e3, most=2)})
    assert counts(outcome) == {"a": 2, "b": 6}
    assert kinds(outcome)["b"] == "GotLeftover"


def test_a_round_is_placed_anew():
    """``b`` bids for GPUs of any name, and gets those beside the two that it keeps."""
    machines = {"m0": 4, "m1": 4}
    view = round_of(
        machines,
        app("a", job(2, least=1), t_ideal=4e3, n_avg=2.0),
        app("b", job(4, least=1), t_ideal=4e3, n_avg=2.0, kept={"m1": 2}),
        pool={"m0": 2, "m1": 2},
    )
    bids = {"a": table(view, "a", 16e3), "b": table(view, "b", 16e3)}
    assert got(Themis().allocate(view, bids)) == {"a": {"m0": 2}, "b": {"m1": 2}}
    as_won = Themis(anew=False).allocate(view, bids)
    assert counts(as_won) == {"a": 2, "b": 2}


def test_the_knob_filters_when_it_is_set():
    view = round_of(M8, *(ones(f"a{i}", r=float(i + 1)) for i in range(10)))
    assert len(Themis().bidders(view)) == 10
    assert Themis(fairness_knob=Fraction("0.8")).bidders(view) == ("a9", "a8")
    assert len(Themis(fairness_knob=Fraction("0.8"), min_bidders=3).bidders(view)) == 3


@pytest.mark.parametrize(
    "options",
    [
        {"aversion": -1.0},
        {"aversion": 99.0},
        {"aversion": math.nan},
        {"ideal": "paper"},
        {"restart_s": -1.0},
        {"min_bidders": 0},
        {"fairness_knob": Fraction(2)},
    ],
)
def test_settings_that_make_no_sense_are_refused(options):
    with pytest.raises(ConfigError):
        Themis(**options)
