import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis_ray.core.fairness import Contention, finish_time_fairness, ideal_time_s

WORKED = [3200.0, 3200.0, 3600.0]  # the paper's example: B = 10,000 GPU-seconds


def test_the_worked_example() -> None:
    assert ideal_time_s(WORKED, [16, 16, 8], cluster_gpus=16, n_avg=4) == 2500


def test_equation_1() -> None:
    """64 GPUs, d = 4, N = 8: the paper's T_id is 8 times the job's own time."""
    paper = ideal_time_s([400.0], [4], cluster_gpus=64, n_avg=8)
    exclusive = ideal_time_s([400.0], [4], cluster_gpus=64, n_avg=8, ideal="exclusive")
    assert (paper, exclusive) == (800, 100)


@given(
    st.lists(st.tuples(st.floats(1, 1e4), st.integers(1, 32)), min_size=1, max_size=4),
    st.integers(1, 128),
    st.floats(1, 50),
)
def test_an_exclusive_share_is_what_its_phases_take(
    phases: list[tuple[float, int]], gpus: int, n_avg: float
) -> None:
    work, demands = [w for w, _ in phases], [d for _, d in phases]
    exclusive = ideal_time_s(work, demands, cluster_gpus=gpus, n_avg=n_avg, ideal="exclusive")
    assert exclusive == pytest.approx(sum(w / min(gpus / n_avg, d) for w, d in phases))
    heavy = ideal_time_s(work, demands, cluster_gpus=gpus, n_avg=n_avg, weight=2.0)
    assert heavy == pytest.approx(ideal_time_s(work, demands, cluster_gpus=gpus, n_avg=n_avg) / 2)


@pytest.mark.parametrize("t_ideal_s", [0.0, -1.0, math.nan])
def test_an_ideal_time_must_be_positive(t_ideal_s: float) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        finish_time_fairness(1.0, t_ideal_s)


def test_r() -> None:
    assert finish_time_fairness(3.0, 2.0) == 1.5
    assert finish_time_fairness(math.inf, 2.0) == math.inf


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 4)), min_size=1, max_size=12))
def test_n_avg_is_the_mean_over_the_apps_life(stays: list[tuple[int, int]]) -> None:
    """Against the sum over unit steps of how many apps are there, in exact arithmetic."""
    arrivals, now = [], 0
    for gap, length in stays:
        now += gap
        arrivals.append((now, now + 25 * length))
    changes = sorted([(a, 1) for a, _ in arrivals] + [(b, -1) for _, b in arrivals])
    changes.sort(key=lambda change: (change[0], -change[1]))
    contention, joined = Contention(), {}
    for time, by in changes:
        integral = contention.change(time, by)
        if by > 0:
            joined.setdefault(time, integral)
    end = changes[-1][0] + 10
    for start, integral in joined.items():
        steps = range(start, end)
        present = sum(sum(a <= t < b for a, b in arrivals) for t in steps)
        expected = max(1.0, float(Fraction(present, len(steps))))
        assert contention.average(end, start, integral) == pytest.approx(expected, rel=1e-12)


def test_an_app_that_has_just_come_counts_those_who_are_there() -> None:
    contention = Contention()
    contention.change(5, +1)
    integral = contention.change(7, +1)
    assert contention.average(7, 7, integral) == 2
    assert Contention().average(0, 0, 0) == 1
