from policy_views import app, counts, job, round_of

from themis_ray.core.cluster import Allocation
from themis_ray.core.policies import SmallestFirst

M0 = {"m0": 4}


def test_smaller_jobs_go_first_however_long():
    view = round_of(
        M0, app("a", job(4, left=1.0)), app("b", job(2, left=1e6)), app("c", job(1, left=1e6))
    )
    outcome = SmallestFirst().allocate(view, {})
    assert counts(outcome) == {"b": 2, "c": 1}
    assert [outcome.reasons[n].rank for n in "cba"] == [1, 2, 3]


def test_a_smaller_job_displaces_a_larger_one():
    assert SmallestFirst.preempts
    held = Allocation(M0)
    view = round_of(M0, app("a", job(4, held=held), expiring=held), app("b", job(1), joined=9.0))
    assert counts(SmallestFirst().allocate(view, {})) == {"b": 1}
