from policy_views import app, counts, job, round_of

from themis_ray.core.policies import Drf


def ones(n):
    return [job(name=f"j{i}") for i in range(n)]


def test_shares_even_out():
    apps = [app("a", *ones(8)), app("b", *ones(8)), app("c", *ones(1))]
    assert counts(Drf().allocate(round_of({"m0": 8}, *apps), {})) == {"a": 4, "b": 3, "c": 1}


def test_what_is_kept_counts():
    apps = [app("a", *ones(8), kept={"m0": 2}), app("b", *ones(8), joined=1.0)]
    view = round_of({"m0": 8}, *apps, pool={"m0": 6})
    assert counts(Drf().allocate(view, {})) == {"a": 2, "b": 4}


def test_weights_scale_shares():
    apps = [app("a", *ones(9), weight=2.0), app("b", *ones(9))]
    assert counts(Drf().allocate(round_of({"m0": 9}, *apps), {})) == {"a": 6, "b": 3}


def test_of_equal_shares_the_app_that_was_served_least_comes_first():
    apps = [app("a", job(4), attained=900.0), app("b", job(4), attained=100.0)]
    assert counts(Drf().allocate(round_of({"m0": 4}, *apps), {})) == {"b": 4}


def test_gangs_are_whole_and_smaller_ones_fill_up():
    apps = [app("a", job(4, name="x"), job(4, name="y")), app("b", job(3), joined=1.0)]
    outcome = Drf().allocate(round_of({"m0": 8}, *apps), {})
    assert counts(outcome) == {"a": 4, "b": 3}
