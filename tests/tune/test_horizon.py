"""How much work a search has left."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ray.tune.schedulers import (
    ASHAScheduler,
    FIFOScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
)

from themis_ray.tune.horizon import DEFAULT_ITERATIONS, iterations_of, trials_of


def trial(**stop: float) -> Any:
    return SimpleNamespace(stopping_criterion=stop)


@pytest.mark.parametrize(
    ("stop", "base", "given", "expected"),
    [
        ({"training_iteration": 30}, FIFOScheduler(), None, 30),
        ({"training_iteration": 30}, FIFOScheduler(), 12, 12),
        ({"training_iteration": 30}, ASHAScheduler(max_t=20), None, 20),
        ({"training_iteration": 10}, ASHAScheduler(max_t=20), None, 10),
        ({}, HyperBandScheduler(max_t=27), None, 27),
        ({"loss": 0.1}, FIFOScheduler(), None, DEFAULT_ITERATIONS),
        ({}, MedianStoppingRule(), None, DEFAULT_ITERATIONS),
        # Seconds are not iterations.
        ({}, ASHAScheduler(time_attr="time_total_s", max_t=3600), None, DEFAULT_ITERATIONS),
    ],
)
def test_iterations_come_from_what_the_user_has_said(
    stop: dict[str, float], base: Any, given: int | None, expected: float
) -> None:
    total, source = iterations_of(trial(**stop), base, given)
    assert total == expected
    assert (source == "assumed") == (expected == DEFAULT_ITERATIONS)


def controller(search: Any, existing: int) -> Any:
    return SimpleNamespace(search_alg=search, get_trials=lambda: [None] * existing)


def test_trials_to_come_count_as_work_left() -> None:
    search = SimpleNamespace(total_samples=10, is_finished=lambda: False, max_concurrent=0)
    assert trials_of(controller(search, 4)) == (6, float("inf"))
    search.is_finished = lambda: True
    assert trials_of(controller(search, 4)) == (0, float("inf"))


def test_the_tightest_limit_on_concurrency_counts() -> None:
    inner = SimpleNamespace(max_concurrent=3)
    search = SimpleNamespace(
        total_samples=10,
        is_finished=lambda: False,
        searcher=SimpleNamespace(max_concurrent=5, searcher=inner),
    )
    assert trials_of(controller(search, 0)) == (10, 3.0)
