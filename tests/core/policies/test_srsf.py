from policy_views import app, counts, job, round_of

from themis_ray.core.policies import Srsf, Srtf

M0 = {"m0": 4}


def test_the_least_remaining_service_goes_first():
    """Against SRTF: 300 GPU-s on one GPU come before 800 GPU-s on four."""
    view = round_of(M0, app("a", job(1, left=300.0)), app("b", job(4, left=800.0)))
    assert counts(Srsf().allocate(view, {})) == {"a": 1}
    assert counts(Srtf().allocate(view, {})) == {"b": 4}


def test_order_of_service():
    view = round_of(
        {"m0": 1}, *(app(n, job(left=left)) for n, left in (("a", 30.0), ("b", 10.0), ("c", 20.0)))
    )
    outcome = Srsf().allocate(view, {})
    assert [outcome.reasons[n].rank for n in "bca"] == [1, 2, 3]
    assert [outcome.reasons[n].key for n in "bca"] == [10.0, 20.0, 30.0]
    assert Srsf.preempts
