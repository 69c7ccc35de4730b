from policy_views import app, counts, got, job, kinds, round_of

from themis_ray.core.cluster import Allocation
from themis_ray.core.policies import Gandiva

SENSITIVE = (1.0, 1.0, 1.3, 1.5)
FREE = {"m0": 4, "m1": 2, "m2": 2}


def test_the_best_placed_job_goes_first():
    """The gang of 8 would lie on three machines; those of 4 and 2 lie on one."""
    apps = [
        app("spread", job(8, spans=True, slowdown=SENSITIVE)),
        app("four", job(4), joined=1.0),
        app("two", job(2), joined=2.0),
    ]
    outcome = Gandiva().allocate(round_of(FREE, *apps), {})
    assert got(outcome) == {"four": {"m0": 4}, "two": {"m1": 2}}
    assert kinds(outcome)["spread"] == "GangTooLarge"


def test_who_minds_least_is_served_when_only_scattered_gpus_are_left():
    apps = [
        app("minds", job(4, spans=True, slowdown=SENSITIVE)),
        app("does not", job(4, spans=True, slowdown=(1.0, 1.0, 1.0, 1.0)), joined=5.0),
    ]
    view = round_of({"m0": 4, "m1": 4}, *apps, pool={"m0": 2, "m1": 2})
    outcome = Gandiva().allocate(view, {})
    assert counts(outcome) == {"does not": 4}
    assert outcome.reasons["does not"].key == 1.0
    assert kinds(outcome)["minds"] == "Outranked"


def test_equally_placed_jobs_take_turns():
    """Time slicing: who was served least so far."""
    held = Allocation({"m0": 4})
    runs = app("a", job(4, held=held), expiring=held, attained=2400.0)
    view = round_of({"m0": 4}, runs, app("b", job(4), joined=500.0))
    assert counts(Gandiva().allocate(view, {})) == {"b": 4}


def test_who_is_served_again_stays_where_it_is():
    held = Allocation({"m1": 2})
    runs = app("a", job(2, held=held), expiring=held, attained=2400.0)
    view = round_of(FREE, runs, app("b", job(2), joined=500.0))
    assert got(Gandiva().allocate(view, {})) == {"a": {"m1": 2}, "b": {"m2": 2}}
