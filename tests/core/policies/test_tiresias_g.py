import pytest
from policy_views import app, counts, job, round_of

from themis_ray.core.cluster import Allocation
from themis_ray.core.policies import TiresiasG, TiresiasL
from themis_ray.errors import ConfigError

M0 = {"m0": 4}
# Indices by attained service: 0: 1/8, 3: 1/3, 4: 1/6, 7: 1/2.
POLICY = TiresiasG(thresholds=(10.0,), services=(4.0, 8.0, 12.0))


def waiting(name, attained, **more):
    return app(name, job(4, attained_gpu_s=attained), **more)


def test_the_greatest_index_goes_first_even_if_it_arrived_last():
    view = round_of(
        M0, waiting("a", 0.0), waiting("b", 3.0), waiting("c", 4.0), waiting("d", 7.0, joined=9.0)
    )
    assert counts(POLICY.allocate(view, {})) == {"d": 4}


def test_the_index_preempts_within_a_queue():
    held = Allocation(M0)
    runs = app("a", job(4, attained_gpu_s=4.0, held=held, started_ago_s=1.0), expiring=held)
    assert counts(POLICY.allocate(round_of(M0, runs, waiting("b", 3.0)), {})) == {"b": 4}


def test_queues_come_before_indices():
    """11 of 12 done has index 1, the greatest there is, but it is in the second queue."""
    view = round_of(M0, waiting("a", 11.0), waiting("b", 0.0, joined=5.0))
    assert counts(POLICY.allocate(view, {})) == {"b": 4}


def test_the_last_queue_is_fifo():
    """There the quantum is unbounded."""
    view = round_of(M0, waiting("a", 10.0, joined=1.0), waiting("b", 11.0, joined=2.0))
    assert counts(POLICY.allocate(view, {})) == {"a": 4}


def test_without_a_distribution_it_is_tiresias_l():
    views = [
        round_of(M0, waiting("a", x, joined=2.0), waiting("b", y, joined=1.0))
        for x in (0.0, 50.0)
        for y in (0.0, 50.0)
    ]
    for view in views:
        mine = TiresiasG(thresholds=(10.0,)).allocate(view, {})
        theirs = TiresiasL(thresholds=(10.0,)).allocate(view, {})
        assert mine.awards == theirs.awards


def test_services_must_be_positive():
    with pytest.raises(ConfigError, match="services"):
        TiresiasG(services=(1.0, 0.0))
