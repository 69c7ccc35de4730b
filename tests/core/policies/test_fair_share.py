import pytest
from policy_views import app, job, round_of

from themis_ray.core.policies.fair_share import fair_r, fair_share

M8 = {"m0": 8}


def ones(name, n=8, **more):
    return app(name, *(job(name=f"j{i}") for i in range(n)), **more)


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
