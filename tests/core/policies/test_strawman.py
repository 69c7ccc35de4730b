from policy_views import app, counts, job, kinds, round_of

from themis_ray.core.policies import Strawman


def ones(n):
    return [job(name=f"j{i}") for i in range(n)]


def test_the_worst_off_takes_all_that_it_can_use():
    apps = [app("a", *ones(3), r=1.2), app("b", *ones(3), r=4.0), app("c", *ones(3), r=2.0)]
    outcome = Strawman().allocate(round_of({"m0": 4}, *apps), {})
    assert counts(outcome) == {"b": 3, "c": 1}
    assert outcome.reasons["b"].key == -4.0
    assert kinds(outcome)["a"] == "Outranked"


def test_apps_that_hold_nothing_go_by_how_long_they_have_waited():
    """Both have r = infinity: 900 s of an ideal 1000 s are more than 950 s of 2000 s."""
    apps = [app("a", *ones(2), joined=100.0), app("b", *ones(2), joined=50.0, t_ideal=2000.0)]
    assert counts(Strawman().allocate(round_of({"m0": 2}, *apps), {})) == {"a": 2}


def test_leases_run_to_their_end():
    assert not Strawman.preempts
    assert not Strawman.keeps
