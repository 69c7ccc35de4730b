import math

from policy_views import app, counts, job, kinds, round_of

from themis_ray.core.cluster import Allocation
from themis_ray.core.policies import Srtf

M0 = {"m0": 4}


def test_the_shortest_remaining_time_on_all_its_gpus_goes_first():
    """800 GPU-s on 4 GPUs (200 s) come before 300 GPU-s on one (300 s)."""
    view = round_of(M0, app("a", job(1, left=300.0)), app("b", job(4, left=800.0)))
    outcome = Srtf().allocate(view, {})
    assert counts(outcome) == {"b": 4}
    assert kinds(outcome) == {"a": "Outranked", "b": "Assigned"}
    assert (outcome.reasons["b"].rank, outcome.reasons["b"].key) == (1, 200.0)
    assert (outcome.reasons["a"].rank, outcome.reasons["a"].key) == (2, 300.0)


def test_iteration_times_count():
    view = round_of(
        M0, app("a", job(4, left=10.0, iter_s=9.0)), app("b", job(4, left=20.0, iter_s=4.0))
    )
    assert counts(Srtf().allocate(view, {})) == {"b": 4}


def test_a_shorter_job_preempts():
    assert Srtf.preempts
    held = Allocation(M0)
    runs = app("a", job(4, left=900.0, held=held), expiring=held)
    view = round_of(M0, runs, app("b", job(4, left=800.0)))
    assert counts(Srtf().allocate(view, {})) == {"b": 4}


def test_unknown_ends_come_last_and_ties_go_by_arrival():
    view = round_of(
        {"m0": 2},
        app("a", job(left=math.inf)),
        app("b", job(left=5.0), joined=2.0),
        app("c", job(left=5.0), joined=1.0),
    )
    outcome = Srtf().allocate(view, {})
    assert counts(outcome) == {"b": 1, "c": 1}
    assert [outcome.reasons[x].rank for x in "abc"] == [3, 2, 1]


def test_jobs_of_one_app_are_ranked_by_themselves():
    two = app("a", job(2, left=10.0, name="short"), job(2, left=1000.0, name="long"))
    view = round_of(M0, two, app("b", job(2, left=100.0)))
    assert counts(Srtf().allocate(view, {})) == {"a": 2, "b": 2}
