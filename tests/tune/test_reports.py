"""What the wrapped scheduler gets to see of reports."""

from __future__ import annotations

import math
from typing import Any

import pytest
from ray.tune.schedulers import (
    ASHAScheduler,
    FIFOScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
)

from themis_ray import ThemisScheduler
from themis_ray.errors import ConfigError
from themis_ray.tune.reports import WORST, Reports

COMPARE: dict[str, Any] = {"metric": "m", "mode": "max"}


def report(iteration: int, **values: Any) -> dict[str, Any]:
    return {"training_iteration": iteration, "time_total_s": float(iteration), **values}


@pytest.mark.parametrize(
    "base", [ASHAScheduler(), HyperBandScheduler(), MedianStoppingRule(), PopulationBasedTraining(
        hyperparam_mutations={"a": [1]})],
)  # fmt: skip
def test_a_search_without_a_mode_is_refused_before_it_starts(base: Any) -> None:
    name = type(base).__name__
    with pytest.raises(ConfigError, match=f"{name}.*mode='min' or mode='max'"):
        ThemisScheduler(base).set_search_properties("m", None)
    assert ThemisScheduler(FIFOScheduler()).set_search_properties("m", None)


def test_a_good_report_is_handed_on_as_it_is() -> None:
    reports, good = Reports(ASHAScheduler(**COMPARE), "a"), report(1, m=0.5)
    assert reports.for_base("t", good) is good
    assert Reports(FIFOScheduler(), "a").for_base("t", report(1)) == report(1)


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e31, -1e308])
def test_a_diverged_report_counts_as_the_worst(mode: str, value: float) -> None:
    reports = Reports(ASHAScheduler(metric="m", mode=mode), "a")
    seen = reports.for_base("t", report(1, m=value))
    assert seen is not None
    assert seen["m"] == (WORST if mode == "min" else -WORST)


@pytest.mark.parametrize("missing", [{}, {"m": None}, {"m": "high"}, {"m": True}])
def test_a_report_without_the_metric_is_passed_over(
    missing: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    reports = Reports(ASHAScheduler(max_t=5, **COMPARE), "a")
    assert reports.for_base("t", report(1, **missing)) is None
    assert reports.for_base("t", report(2, **missing)) is None
    assert caplog.text.count("without 'm'") == 1
    # At max_t the trial is to end all the same.
    assert reports.for_base("t", report(5, **missing)) is not None


def test_hyperband_hears_of_progress_without_the_metric() -> None:
    """Its bracket waits for all of its trials: the last value stands in, or the worst."""
    reports = Reports(HyperBandScheduler(**COMPARE), "a")
    first = reports.for_base("t", report(1))
    assert first is not None
    assert first["m"] == -WORST
    reports.for_base("t", report(2, m=3.0))
    third = reports.for_base("t", report(3))
    assert third is not None
    assert third["m"] == 3.0


def test_iterations_that_are_done_again_are_not_shown_again() -> None:
    reports = Reports(MedianStoppingRule(**COMPARE), "a")
    assert reports.for_base("t", report(3, m=1.0)) is not None
    assert reports.for_base("t", report(2, m=1.0)) is None
    assert reports.for_base("t", report(4, m=1.0)) is not None
    reports.added("t")  # Tune tries it again: the base has forgotten it
    assert reports.for_base("t", report(1, m=1.0)) is not None


def test_the_last_result_of_a_trial_never_lacks_what_is_taken_the_mean_of() -> None:
    median = Reports(MedianStoppingRule(**COMPARE), "a")
    assert median.last_for_base("t", {}) is None
    asha = Reports(ASHAScheduler(**COMPARE), "a")
    assert asha.last_for_base("t", report(3, m=None)) == report(3)
