import math

import pytest
from policy_views import app, counts, got, job, kinds, round_of

from themis_ray.core.cluster import Allocation, Machine
from themis_ray.core.policies import TiresiasL
from themis_ray.errors import ConfigError

M0 = {"m0": 4}
POLICY = TiresiasL(thresholds=(100.0, 400.0), promote_knob=math.inf)


def running(name, attained, gpus=4, ago=10.0, at="m0", **more):
    """An app of one job that runs on the pool."""
    held = Allocation({at: gpus})
    return app(
        name,
        job(gpus, attained_gpu_s=attained, held=held, started_ago_s=ago),
        expiring=held,
        **more,
    )


def waiting(name, attained, gpus=4, waited=0.0, ago=None, **more):
    """An app of one job that does not run."""
    return app(name, job(gpus, attained_gpu_s=attained, waited_s=waited, started_ago_s=ago), **more)


@pytest.mark.parametrize(
    ("service", "queue"), [(0, 1), (99.9, 1), (100, 2), (399, 2), (400, 3), (1e9, 3)]
)
def test_a_job_is_demoted_when_its_service_reaches_a_threshold(service, queue):
    assert POLICY.queue(service) == queue


def test_a_demoted_job_loses_its_gpus_to_one_of_the_first_queue():
    below = round_of(M0, running("old", 99.0), waiting("new", 0.0))
    assert counts(POLICY.allocate(below, {})) == {"old": 4}
    at = round_of(M0, running("old", 100.0), waiting("new", 0.0))
    outcome = POLICY.allocate(at, {})
    assert counts(outcome) == {"new": 4}
    assert kinds(outcome) == {"old": "Outranked", "new": "Assigned"}


def test_within_a_queue_least_service_does_not_count_but_the_start():
    """Discretisation: both are in queue 1, so the one that started first goes on."""
    view = round_of(M0, running("a", 90.0, ago=500.0), waiting("b", 0.0))
    assert counts(POLICY.allocate(view, {})) == {"a": 4}


def test_jobs_that_never_ran_go_by_their_arrival():
    view = round_of(M0, waiting("a", 0.0, joined=50.0), waiting("b", 0.0, joined=20.0))
    assert counts(POLICY.allocate(view, {})) == {"b": 4}


def test_a_preempted_job_comes_before_those_that_never_ran():
    view = round_of(M0, waiting("a", 50.0, ago=300.0, joined=50.0), waiting("b", 0.0, joined=20.0))
    assert counts(POLICY.allocate(view, {})) == {"a": 4}


def test_a_skipped_large_gang_does_not_displace_jobs_that_run():
    """By arrival, the gang of 4 would stop both as soon as any GPU comes free."""
    view = round_of(
        M0,
        waiting("big", 0.0, joined=0.0),
        running("x", 10.0, 2, joined=5.0),
        running("y", 10.0, 1),
    )
    outcome = POLICY.allocate(view, {})
    assert counts(outcome) == {"x": 2, "y": 1}
    assert kinds(outcome)["big"] == "GangTooLarge"


def test_gangs_are_all_or_nothing_and_smaller_ones_fill_up():
    view = round_of(
        M0,
        running("a", 10.0, 3),
        waiting("b", 0.0, 2, joined=1.0),
        waiting("c", 0.0, 1, joined=2.0),
    )
    assert counts(POLICY.allocate(view, {})) == {"a": 3, "c": 1}


def test_promotion_after_the_knob_times_the_time_it_ran():
    """500 GPU-s on 4 GPUs are 125 s: with a knob of 2, it starves after 250 s."""
    policy = TiresiasL(thresholds=(100.0, 400.0), promote_knob=2.0)
    for waited, served in ((249.0, "new"), (250.0, "starved")):
        starved = waiting("starved", 500.0, waited=waited, ago=900.0)
        view = round_of(M0, waiting("new", 0.0, joined=500.0), starved)
        assert list(policy.allocate(view, {}).awards) == [served]


def test_promotion_after_the_starve_limit():
    policy = TiresiasL(thresholds=(100.0,), promote_knob=math.inf, starve_limit_s=60.0)
    starved = waiting("starved", 5000.0, waited=60.0, ago=900.0)
    view = round_of(M0, waiting("new", 0.0), starved)
    assert counts(policy.allocate(view, {})) == {"starved": 4}


def test_a_promoted_job_begins_again_and_is_demoted_by_its_new_service():
    policy = TiresiasL(thresholds=(100.0,), promote_knob=1.0)
    starved = waiting("s", 500.0, waited=125.0, ago=900.0)
    outcome = policy.allocate(round_of(M0, starved), {})
    assert outcome.memory == {"s/j": 500.0}
    for attained, served in ((590.0, "s"), (600.0, "new")):
        view = round_of(
            M0, running("s", attained), waiting("new", 0.0), memory=dict(outcome.memory)
        )
        after = policy.allocate(view, {})
        assert list(after.awards) == [served]
        assert after.memory == {"s/j": 500.0}
    # Its next promotion counts the time since the last one: 100 GPU-s, that is 25 s.
    view = round_of(M0, waiting("s", 600.0, waited=25.0, ago=60.0), memory=dict(outcome.memory))
    assert policy.allocate(view, {}).memory == {"s/j": 600.0}


def test_what_is_remembered_of_jobs_that_are_gone_is_dropped():
    view = round_of(M0, waiting("a", 0.0), memory={"gone/j": 3.0, "a/j": 7.0})
    assert POLICY.allocate(view, {}).memory == {}  # this "a/j" began after the one remembered


SCATTERED = [Machine("m0", 4), Machine("m1", 4), Machine("m2", 4)]
FREE = {"m0": 1, "m1": 1, "m2": 4}


@pytest.mark.parametrize(
    ("more", "where"),
    [
        ({"model": "VGG16"}, {"m2": 2}),
        ({"model": "resnet50"}, {"m0": 1, "m1": 1}),
        ({"skew": 0.9, "model": "resnet50"}, {"m2": 2}),
        ({"skew": 0.1}, {"m0": 1, "m1": 1}),
        ({"model": "never profiled"}, {"m2": 2}),
    ],
)
def test_skewed_models_are_consolidated_and_others_fill_gaps(more, where):
    view = round_of(SCATTERED, app("a", job(2, spans=True, **more)), pool=FREE)
    assert got(TiresiasL().allocate(view, {})) == {"a": where}


def test_a_gang_that_is_one_process_is_never_spread():
    view = round_of(SCATTERED, app("a", job(2, model="resnet50")), pool=FREE)
    assert got(TiresiasL().allocate(view, {})) == {"a": {"m2": 2}}


def test_a_renewal_moves_nobody_even_if_it_is_scattered():
    held = Allocation({"m0": 1, "m1": 1})
    runs = app("a", job(2, skew=0.9, held=held, spans=True, started_ago_s=5.0), expiring=held)
    new = app("b", job(4, skew=0.9))
    view = round_of(SCATTERED, runs, new, pool=FREE)
    assert got(TiresiasL().allocate(view, {})) == {"a": {"m0": 1, "m1": 1}, "b": {"m2": 4}}


@pytest.mark.parametrize(
    "options",
    [
        {"thresholds": (0.0,)},
        {"thresholds": (5.0, 5.0)},
        {"thresholds": (9.0, 5.0)},
        {"promote_knob": 0.0},
        {"starve_limit_s": -1.0},
    ],
)
def test_settings_that_make_no_sense_are_refused(options):
    with pytest.raises(ConfigError):
        TiresiasL(**options)
