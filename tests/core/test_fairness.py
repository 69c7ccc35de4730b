import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from themis_ray.core.fairness import (
    Contention,
    finish_time_fairness,
    ideal_time_s,
    water_fill,
)

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


def test_water_fill_gives_what_one_cannot_use_to_the_others() -> None:
    def fill(most: list[float], weight: list[float], total: float) -> list[float]:
        return list(water_fill(np.array(most, float), np.array(weight, float), total))

    assert fill([1, 10, 10], [1, 1, 1], 9) == pytest.approx([1, 4, 4])
    assert fill([1, 2, 3], [1, 1, 1], 10) == pytest.approx([1, 2, 3])
    assert fill([10, 10], [1, 3], 8) == pytest.approx([2, 6])
    assert fill([3, 10], [9, 1], 8) == pytest.approx([3, 5])


@given(
    st.lists(st.tuples(st.floats(0.5, 20), st.floats(0.1, 10)), min_size=1, max_size=6),
    st.floats(1, 60),
)
@settings(max_examples=100, deadline=None)
def test_water_stands_at_one_level(some: list[tuple[float, float]], total: float) -> None:
    most, weight = np.array([m for m, _ in some]), np.array([w for _, w in some])
    shares = water_fill(most, weight, total)
    assert shares.sum() == pytest.approx(min(total, most.sum()))
    assert (shares <= most + 1e-9).all()
    thirsty = shares < most - 1e-9
    if thirsty.any():
        levels = (shares / weight)[thirsty]
        assert levels == pytest.approx(np.full(len(levels), levels[0]))
        assert ((shares / weight)[~thirsty] <= levels[0] + 1e-9).all()
