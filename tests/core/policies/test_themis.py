import math
from dataclasses import replace
from fractions import Fraction

import pytest
from policy_views import app, bid_table, counts, got, job, kinds, round_of

from themis_ray.core.fairness import PhaseWork
from themis_ray.core.policies import Themis
from themis_ray.core.policies.themis import fair_clock
from themis_ray.errors import ConfigError

M8 = {"m0": 8}


def ones(name, n=8, left=100.0, **more):
    return app(name, *(job(name=f"j{i}", left=left) for i in range(n)), **more)


# -- the round ---------------------------------------------------------------------------------


def decide(policy, view, **work):
    assert set(policy.bidders(view)) == set(work)
    return policy.allocate(view, {name: bid_table(view, name, w) for name, w in work.items()})


def phase(work, gpus=8.0):
    return (PhaseWork(work, gpus),)


def two_apps(joined_by_b=0.0, left=(1000.0, 1000.0), **of_a):
    """Two apps with 8 jobs of one GPU each on 8 GPUs; each tells its work truly."""
    apps = [
        ones(
            name,
            left=seconds,
            joined=joined,
            t_ideal=4e3,
            n_avg=2.0,
            phases=phase(8 * seconds),
            **more,
        )
        for name, seconds, joined, more in (
            ("a", left[0], 0.0, of_a),
            ("b", left[1], joined_by_b, {}),
        )
    ]
    return round_of(M8, *apps)


def test_who_is_due_first_goes_first():
    """``b`` has a quarter of the work: it is due at 2000 s and ``a`` at 5000 s."""
    view = two_apps(left=(4000.0, 1000.0))
    assert counts(decide(Themis(), view, a=32e3, b=8e3)) == {"b": 8}


def test_equal_apps_go_by_who_has_the_gpus_and_not_by_turns():
    """Each could be done in 1000 s; in turns both would be late by their restarts."""
    view = two_apps(left=(3000.0, 3000.0), expiring={"m0": 8})
    bids = {
        "a": bid_table(view, "a", 24e3, own=True),
        "b": bid_table(view, "b", 24e3),
    }
    assert counts(Themis().allocate(view, bids)) == {"a": 8}


def test_a_job_that_cannot_wait_goes_before_those_that_can():
    """``b`` is due at its job's own pace; ``c`` is due later, and could be done in less time."""
    view = round_of(
        M8,
        ones("a", 4, left=1000.0, joined=1000.0, phases=phase(4e3, 4.0)),
        ones("b", 1, left=9000.0, joined=1000.0, phases=phase(9e3, 1.0)),
        ones("c", 8, left=9000.0, joined=1000.0, phases=phase(72e3)),
    )
    work = {"a": 4e3, "b": 9e3, "c": 72e3}
    assert counts(decide(Themis(), view, **work)) == {"a": 4, "b": 1, "c": 3}


def test_a_job_that_can_wait_does_wait():
    """The same with a fair share of half the cluster: its job could start later."""
    late = app("b", job(name="long", left=900.0), joined=1000.0, phases=phase(9000.0, 1.0))
    view = round_of(M8, ones("a", left=4000.0, joined=1000.0, phases=phase(32e3)), late)
    bids = {"a": bid_table(view, "a", 32e3), "b": bid_table(view, "b", 900.0)}
    assert counts(Themis().allocate(view, bids)) == {"a": 8}


def test_winners_pay_for_the_harm_that_they_do():
    outcome = decide(Themis(), two_apps(left=(4000.0, 1000.0)), a=32e3, b=8e3)
    (award,) = outcome.awards.values()
    assert 1 / math.e < award.lease_fraction < 1
    alone = round_of(M8, ones("a", t_ideal=4e3, phases=phase(8e3)))
    (award,) = decide(Themis(), alone, a=8e3).awards.values()
    assert award.lease_fraction == 1.0


# -- T_id --------------------------------------------------------------------------------------


def test_t_id_is_that_of_the_clock_or_as_told():
    """By the clock ``b`` is due first; by their own word, ``a`` is."""
    view = round_of(
        M8,
        ones("a", left=4000.0, t_ideal=3e3, n_avg=2.0, phases=phase(32e3)),
        ones("b", left=1000.0, t_ideal=9e4, n_avg=2.0, phases=phase(8e3)),
    )
    assert counts(decide(Themis(), view, a=32e3, b=8e3)) == {"b": 8}
    assert counts(decide(Themis(ideal="told"), view, a=32e3, b=8e3)) == {"a": 8}


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


# -- placing and filtering ---------------------------------------------------------------------


def test_an_app_stays_on_its_own_gpus():
    machines = {"m0": 4, "m1": 4}
    view = round_of(
        machines,
        ones("a", 4, n_avg=2.0, t_ideal=4e3, expiring={"m1": 4}, attained=2e3),
        ones("b", 4, n_avg=2.0, t_ideal=4e3, attained=2e3),
    )
    bids = {"a": bid_table(view, "a", 16000.0, own=True), "b": bid_table(view, "b", 16000.0)}
    assert got(Themis().allocate(view, bids)) == {"a": {"m1": 4}, "b": {"m0": 4}}


def test_what_nobody_bid_for_goes_to_who_is_due_first():
    """Bids end with one GPU each; of the other six, ``b`` takes all that it can use."""
    view = round_of(
        M8,
        ones("a", 7, left=4000.0, t_ideal=2e3, n_avg=2.0, phases=phase(28e3, 7.0)),
        ones("b", 7, left=1000.0, t_ideal=2e3, n_avg=2.0, phases=phase(7e3, 7.0)),
    )
    bids = {name: bid_table(view, name, work, most=1) for name, work in (("a", 28e3), ("b", 7e3))}
    outcome = Themis().allocate(view, bids)
    assert counts(outcome) == {"a": 1, "b": 7}
    assert sorted(bids) == sorted(kinds(outcome))


def test_who_did_not_bid_in_time_is_served_from_what_is_left():
    view = round_of(M8, *(ones(name, t_ideal=5e3, n_avg=2.0) for name in "ab"))
    outcome = Themis().allocate(view, {"a": bid_table(view, "a", 4e3, most=2)})
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
    bids = {"a": bid_table(view, "a", 16e3), "b": bid_table(view, "b", 16e3)}
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
        {"horizon": 0.0},
        {"horizon": math.inf},
        {"horizon": math.nan},
        {"ideal": "paper"},
        {"restart_s": -1.0},
        {"recall_factor": 0.5},
        {"recall_factor": -1.0},
        {"recall_factor": math.nan},
        {"min_bidders": 0},
        {"fairness_knob": Fraction(2)},
    ],
)
def test_settings_that_make_no_sense_are_refused(options):
    with pytest.raises(ConfigError):
        Themis(**options)
