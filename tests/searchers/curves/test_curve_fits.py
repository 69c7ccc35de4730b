"""Fits and forecasts: exact where the truth is known, and defined for whatever may be reported."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis_ray.errors import InvalidInputError
from themis_ray.searchers.curves import FAMILIES, fit_curve, forecast

TRUTHS = {
    "power": lambda t: 0.2 + 1.5 * t**-0.7,
    "exponential": lambda t: 0.3 + 2.0 * np.exp(-t / 15),
    "weibull": lambda t: 0.1 + np.exp(-((t / 20) ** 1.4)),
    "mmf": lambda t: 0.2 + 1.0 / (1.0 + (t / 10) ** 1.5),
    "ilog2": lambda t: 0.1 + 0.8 / np.log(t + 1),
}


def points_of(truth: Any, count: int, noise: float = 0.0, seed: int = 0) -> list[Any]:
    at = np.arange(1, count + 1)
    rng = np.random.default_rng(seed)
    return list(zip(at, truth(at) + rng.normal(0, noise, count), strict=True))


@pytest.mark.parametrize("name", TRUTHS)
@pytest.mark.parametrize("mode", ["min", "max"])
def test_a_curve_of_a_known_shape_is_forecast(name: str, mode: str) -> None:
    sign = 1.0 if mode == "min" else -1.0
    truth = TRUTHS[name]
    fit = fit_curve([(t, sign * y) for t, y in points_of(truth, 40, 0.004)], mode)
    ahead = forecast(fit, 80)
    low, middle, high = ahead.quantiles(80, (0.025, 0.5, 0.975))
    expected = sign * float(truth(80))
    assert low < expected < high
    assert abs(middle - expected) < 0.06
    weights = [f.weight for f in fit.fits]
    assert math.fsum(weights) == pytest.approx(1.0)
    assert weights == sorted(weights, reverse=True)
    assert {f.family.name for f in fit.fits} == {f.name for f in FAMILIES}


def test_the_shapes_fall_from_one_towards_zero() -> None:
    from themis_ray.searchers.curves.families import Times

    at = np.arange(3.0, 500.0)
    for family in FAMILIES[:-1]:
        for units in (-1.0, 0.0, 1.0):
            shape = family.evaluate(np.full(family.size, units), Times(at, 3.0, 60.0))
            assert shape[0] == pytest.approx(1.0), family.name
            assert (np.diff(shape) <= 0).all()
            assert shape[-1] >= 0


def test_chances_order_themselves() -> None:
    fit = fit_curve(points_of(TRUTHS["exponential"], 20, 0.02), "min")
    ahead = forecast(fit, 100)
    targets = np.linspace(1.2, -4.0, 27)
    chances = [ahead.chance_of(t) for t in targets]
    assert chances[0] == 1.0  # reached already
    assert chances == sorted(chances, reverse=True)
    later = [ahead.chance_of(0.6, by) for by in (22, 30, 50, 100)]
    assert later == sorted(later)
    assert ahead.chance_to_beat(0.6) <= ahead.chance_of(0.6)
    assert chances[-1] < 0.1


def test_the_most_optimistic_plausible_curve() -> None:
    fit = fit_curve(points_of(lambda t: 1 - TRUTHS["exponential"](t), 20, 0.01), "max")
    ahead = forecast(fit, 100)
    hopeful, sober = ahead.optimistic(0.9), ahead.optimistic(0.5)
    assert (hopeful >= sober).all()
    assert fit.best is not None
    assert ahead.reaches(fit.best) == fit.last_iteration == ahead.runs_until(fit.best)
    assert ahead.reaches(5.0) is None
    assert ahead.runs_until(5.0) == 100  # one that never gets there runs to its end
    goal = 0.55
    early, late = ahead.reaches(goal), ahead.runs_until(goal)
    assert early is not None
    assert early <= late  # over-estimated on purpose


def test_the_same_seed_gives_the_same_forecast() -> None:
    points = points_of(TRUTHS["mmf"], 15, 0.02)
    one, two, other = (forecast(fit_curve(points, seed=s), 50).reports for s in (1, 1, 2))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)


def test_limits_hold() -> None:
    fit = fit_curve(points_of(lambda t: 1 - 0.9 / t, 12, 0.02), "max")
    assert forecast(fit, 100, limits=(0.0, 1.0)).reports.min() >= -1.0
    assert forecast(fit, 100, limits=(0.0, 1.0)).quantiles(100, 1.0) <= 1.0
    assert forecast(fit, 100).quantiles(100, 1.0) > 1.0


@pytest.mark.parametrize(
    ("points", "why"),
    [
        ([], "0 finite reports"),
        ([(1, 0.5)], "1 finite reports"),
        ([(1, 0.5), (2, math.nan), (3, math.inf), (4, -math.inf), (5, None)], "1 finite"),
        ([(1, "high"), (2, True), (None, 0.1), (0, 0.2), (-3, 0.4)], "0 finite"),
        ([(t, 0.5) for t in range(1, 30)], "not changed"),
        ([(t, 1e300 * 10.0) for t in range(1, 9)], "0 finite"),
    ],
)
def test_what_tells_nothing_is_not_known(points: Any, why: str) -> None:
    fit = fit_curve(points, "max")
    assert not fit.known
    assert why in fit.why_unknown
    with pytest.raises(InvalidInputError, match="no forecast"):
        forecast(fit, 50)


def test_a_curve_that_gets_worse_is_not_forecast_to_get_better() -> None:
    at = np.arange(1, 31)
    fit = fit_curve(zip(at, 0.5 + 0.02 * at, strict=True), "min")
    ahead = forecast(fit, 60)
    assert ahead.chance_of(0.5) < 0.2
    assert fit.best == pytest.approx(0.52)
    assert ahead.chance_of(0.52) == 1.0


def test_modes_are_checked() -> None:
    with pytest.raises(InvalidInputError, match="use 'min'"):
        fit_curve([(1, 1.0)], "minimum")


@given(
    st.lists(
        st.tuples(
            st.integers(-2, 60),
            st.one_of(
                st.floats(allow_nan=True, allow_infinity=True),
                st.floats(-2, 2),
                st.none(),
                st.integers(-(10**400), 10**400),
            ),
        ),
        max_size=25,
    ),
    st.sampled_from(["min", "max"]),
)
def test_whatever_is_reported_there_is_an_answer(points: Any, mode: str) -> None:
    with np.errstate(all="raise", under="ignore"):
        fit = fit_curve(points, mode)
        if not fit.known:
            assert fit.why_unknown
            return
        ahead = forecast(fit, 70)
    assert np.isfinite(ahead.reports).all()
    assert fit.best is not None
    assert ahead.chance_of(fit.best) == 1.0
    assert 0 < ahead.chance_to_beat(fit.best) < 1
    assert fit.last_iteration < ahead.runs_until(-1e160 if mode == "min" else 1e160)


def test_thousands_of_reports_are_thinned() -> None:
    fit = fit_curve(points_of(TRUTHS["power"], 5000, 0.01), "min")
    assert len(fit.reports) == 5000
    expected = float(TRUTHS["power"](10_000))
    assert abs(forecast(fit, 10_000).mean(10_000) - expected) < 0.02
