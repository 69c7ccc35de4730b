"""Fitting learning curves: each family by bounded least squares, weighed by their evidence."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from ...errors import InvalidInputError
from .families import BOUND, CONSTANT, FAMILIES, Array, Family, Times

MODES = ("min", "max")
FEWEST_POINTS = 3
"""Fewer finite reports than this say nothing about where a curve goes."""
MOST_POINTS = 80
"""Longer curves are averaged down to so many points: a fit's time must not grow with the curve."""

# Deviations in the curve's own scale (what it has gained so far, or what its peers have).
_LEVEL_SPREAD = 1.5  # of what is still to be gained: as much again would not surprise
_GAIN_SPREAD = 2.0
_LEAST_NOISE = 2e-3
# Recent reports count more: a shape that fits the start need not fit the end.
_RECENCY = 0.7
# Neighbouring errors are alike, so n reports are worth less than n independent ones.
_INDEPENDENT = 0.4
_CALMING = 3.0  # how fast the past is forgotten when the present noise is estimated
_EXPLODED = 50.0  # times as far from the best as the median is
_OUTLIER = 3.0  # standard deviations from which on an error counts by its size, not its square


@dataclass(frozen=True)
class Reports:
    """A curve's finite reports, in order, lower being better.

    Attributes:
        at: Iterations, 1 or more.
        value: The metric there; negated when more is better.
        dropped: Reports that were left out: not numbers, not finite, or before iteration 1.
    """

    at: Array
    value: Array
    dropped: int = 0

    @classmethod
    def of(cls, points: Iterable[tuple[Any, Any]], mode: str) -> Reports:
        """Sort out what can be used; the last report of an iteration counts.

        Raises:
            InvalidInputError: ``mode`` is neither ``min`` nor ``max``.
        """
        if mode not in MODES:
            raise InvalidInputError(f"mode = {mode!r}; use 'min' for a loss, 'max' for an accuracy")
        kept: dict[float, float] = {}
        dropped = 0
        for iteration, metric in points:
            at, value = number(iteration), number(metric)
            if at is None or value is None or at < 1:
                dropped += 1
            else:
                kept[at] = value if mode == "min" else -value
        order = sorted(kept)
        return cls(np.array(order), np.array([kept[x] for x in order]), dropped)

    def __len__(self) -> int:
        return len(self.at)

    def thinned(self) -> Reports:
        """At most :data:`MOST_POINTS` of them, neighbours averaged."""
        if len(self) <= MOST_POINTS:
            return self
        parts = np.array_split(np.arange(len(self)), MOST_POINTS)
        means = [(self.at[p].mean(), self.value[p].mean()) for p in parts]
        return Reports(np.array([m[0] for m in means]), np.array([m[1] for m in means]))


def number(value: Any) -> float | None:
    """A finite float; None for anything else that a trial may report."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return None
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    # Squares of what is larger than this overflow.
    return found if math.isfinite(found) and abs(found) < 1e150 else None


@dataclass(frozen=True)
class Fitted:
    """One family's fit, in the curve's own scale.

    Attributes:
        family: Which.
        best: ``level, gain, shape parameters...``.
        root: Its covariance is ``root @ root.T``.
        weight: The chance that the curve goes on as this family, among those fitted.
        error: Root mean square of the residuals, recent ones counting more.
    """

    family: Family
    best: Array
    root: Array
    weight: float
    error: float


@dataclass(frozen=True)
class CurveFit:
    """A learning curve, fitted; or the reason why nothing is known about it.

    Attributes:
        reports: What it was fitted to.
        mode: ``min`` or ``max``.
        fits: The families, greatest weight first; empty when nothing is known.
        why_unknown: Why not, for people; empty when it is known.
        origin: Subtracted from the values...
        scale: ... which are then divided by this.
        noise: Standard deviation of a recent report around its curve, in the curve's own scale.
    """

    reports: Reports
    mode: str
    fits: tuple[Fitted, ...] = ()
    why_unknown: str = ""
    origin: float = 0.0
    scale: float = 1.0
    noise: float = 0.0
    seed: int = field(default=0, compare=False)

    @property
    def known(self) -> bool:
        """Whether anything can be said about how the curve goes on."""
        return bool(self.fits)

    @property
    def best(self) -> float | None:
        """The best value reported so far, in the metric's own sign."""
        if not len(self.reports):
            return None
        return self.signed(float(self.reports.value.min()))

    @property
    def last_iteration(self) -> float:
        """The last iteration with a usable report; 0 without any."""
        return float(self.reports.at[-1]) if len(self.reports) else 0.0

    def signed(self, value: float) -> float:
        """Between "lower is better" and the metric's own sign; its own inverse."""
        return value if self.mode == "min" else -value


def fit_curve(
    points: Iterable[tuple[Any, Any]],
    mode: str = "min",
    *,
    peer_gain: float | None = None,
    families: Sequence[Family] = FAMILIES,
    seed: int = 0,
) -> CurveFit:
    """Fit a learning curve.

    Args:
        points: ``(iteration, metric)`` in any order; what is not a finite number is left out.
        mode: ``min`` when less is better, ``max`` when more is.
        peer_gain: How much a typical curve of the same search gains from its first report to its
            best. A curve that is flat so far may still gain that.
        families: The shapes to try.
        seed: For the forecasts drawn from the fit.

    Returns:
        The fit. Nothing is known (``known`` is False, ``why_unknown`` tells) of a curve with fewer
        than three finite reports, or one that has not moved at all.

    Raises:
        InvalidInputError: ``mode`` is neither ``min`` nor ``max``.
    """
    reports = Reports.of(points, mode)
    if len(reports) < FEWEST_POINTS:
        why = f"{len(reports)} finite reports; {FEWEST_POINTS} are needed"
        return CurveFit(reports, mode, why_unknown=why, seed=seed)
    if np.ptp(reports.value) <= 1e-12 * np.abs(reports.value).max():
        return CurveFit(reports, mode, why_unknown="the metric has not changed yet", seed=seed)
    used = _without_explosions(reports).thinned()
    origin, scale = _frame(used, peer_gain)
    scaled = (used.value - origin) / scale
    times = Times(used.at, float(used.at[0]), float(used.at[-1]))
    noise = max(_LEAST_NOISE, _jitter(scaled))
    weights = np.sqrt((times.at / times.last) ** _RECENCY)
    solved = [_solve(family, times, scaled, weights / noise) for family in families]
    fits, noise = _weigh(solved, families, weights, noise, scaled, times)
    noise = _noise_now(fits[0], noise, scaled, times)
    return CurveFit(reports, mode, fits, origin=origin, scale=scale, noise=noise, seed=seed)


def _without_explosions(reports: Reports) -> Reports:
    """Values that are worse than the rest by orders of magnitude, made merely bad.

    A loss may start at 1e18 (batch normalisation in its first steps) and be 2 from then on: the
    curve moves on the scale of the latter.
    """
    best, usual = float(reports.value.min()), float(np.median(reports.value))
    worst = best + _EXPLODED * (usual - best)
    if usual == best:
        return reports
    return Reports(reports.at, np.minimum(reports.value, worst))


def _frame(reports: Reports, peer_gain: float | None) -> tuple[float, float]:
    """Where the curve is now, and the scale on which it moves."""
    recent = float(np.median(reports.value[-min(5, len(reports)) :]))
    start = float(np.median(reports.value[: min(3, len(reports))]))
    # The middle nine tenths: a spike (a loss that explodes once) is not a gain.
    low, high = np.quantile(reports.value, [0.05, 0.95])
    own = max(abs(start - recent), 0.5 * float(high - low))
    peers = peer_gain if peer_gain is not None and math.isfinite(peer_gain) else 0.0
    scale = max(own, 0.5 * peers, 1e-9 * abs(recent), float(np.ptp(reports.value)) * 1e-3)
    return recent, scale


def _jitter(scaled: Array) -> float:
    """Noise of a report, from how neighbours differ."""
    steps = np.diff(scaled)
    return float(np.median(np.abs(steps - np.median(steps))) / (0.6745 * math.sqrt(2.0)))


def _noise_now(fitted: Fitted, noise: float, scaled: Array, times: Times) -> float:
    """The noise of recent reports: a curve is rough while it falls, and calms down."""
    gain = fitted.best[1] if len(fitted.best) > 1 else 0.0
    off = scaled - fitted.best[0] - gain * fitted.family.evaluate(fitted.best[2:], times)
    weights = (times.at / times.last) ** _CALMING
    squares = np.minimum(np.abs(off), 4 * noise) ** 2
    # As if two more reports had shown the noise of the whole curve: few say little.
    return math.sqrt(float(((weights * squares).sum() + 2 * noise**2) / (weights.sum() + 2)))


@lru_cache(maxsize=16)
def _starts(size: int) -> Array:
    """Where the search for shape parameters may begin: ``(size, starts)``."""
    grid = (-2.0, -0.7, 0.7, 2.0) if size > 1 else (-2.5, -1.5, -0.75, 0.0, 0.75, 1.5, 2.5)
    return np.array(list(itertools.product(grid, repeat=size)), dtype=np.float64).T


def _best_start(family: Family, times: Times, scaled: Array, weights: Array) -> Array:
    """The best of the starts, its level and gain found by linear least squares."""
    units = _starts(family.size)
    grid = Times(times.at[None, :], times.first, times.last)
    shapes = family.evaluate(units[:, :, None], grid)
    w2 = weights**2
    total = w2.sum()
    # A little pull towards the priors keeps the two apart when a shape hardly moves.
    mean_shape, mean = (shapes * w2).sum(1) / total, (scaled * w2).sum() / total
    centred = shapes - mean_shape[:, None]
    gain = ((centred * scaled * w2).sum(1) + 1.0) / ((centred**2 * w2).sum(1) + 1.0)
    gain = np.clip(gain, 0.0, 20.0)
    level = np.clip(mean - gain * mean_shape, -5.0, 5.0)
    misfit = (((scaled - level[:, None] - gain[:, None] * shapes) * weights) ** 2).sum(1)
    misfit = misfit + (units**2).sum(0) + (level / _LEVEL_SPREAD) ** 2
    chosen = int(np.argmin(misfit))
    return np.concatenate([[level[chosen], gain[chosen]], units[:, chosen]])


def _solve(family: Family, times: Times, scaled: Array, weights: Array) -> tuple[Array, Array]:
    """The most likely parameters, and the Jacobian of the data there (unweighted)."""
    count = len(scaled)
    if family is CONSTANT:
        level = float(np.average(scaled, weights=weights**2))
        return np.array([level]), np.ones((count, 1))

    def residuals(p: Array) -> Array:
        fitted = p[0] + p[1] * family.evaluate(p[2:], times)
        priors = [p[0] / _LEVEL_SPREAD, (p[1] - 1.0) / _GAIN_SPREAD, *p[2:]]
        return np.concatenate([(fitted - scaled) * weights, priors])

    def jacobian(p: Array) -> Array:
        rows = _jacobian(family, p, times) * weights[:, None]
        spreads = [1.0 / _LEVEL_SPREAD, 1.0 / _GAIN_SPREAD, *([1.0] * family.size)]
        return np.concatenate([rows, np.diag(spreads)])

    def loss(z: Array) -> Array:
        """Huber's for the data, squares for the priors."""
        rho = np.array([z, np.ones_like(z), np.zeros_like(z)])
        far = np.flatnonzero(z[:count] > _OUTLIER**2)
        root = np.sqrt(z[far])
        rho[:, far] = [2.0 * _OUTLIER * root - _OUTLIER**2, _OUTLIER / root,
                       -0.5 * _OUTLIER / root**3]  # fmt: skip
        return rho

    low = np.array([-6.0, 0.0, *([-BOUND] * family.size)])
    high = np.array([6.0, 25.0, *([BOUND] * family.size)])
    start = np.clip(_best_start(family, times, scaled, weights), low + 1e-6, high - 1e-6)
    found = least_squares(
        residuals, start, jacobian, (low, high), method="dogbox", loss=loss, max_nfev=12,
        ftol=1e-4, xtol=1e-4, gtol=1e-4,
    )  # fmt: skip
    return found.x, _jacobian(family, found.x, times)


def _jacobian(family: Family, p: Array, times: Times) -> Array:
    """How the curve changes with its parameters: ``(points, parameters)``."""
    shape = family.evaluate(p[2:], times)
    columns = [np.ones_like(shape), shape]
    for i in range(family.size):
        nudged = p[2:].copy()
        nudged[i] += 1e-4
        columns.append(p[1] * (family.evaluate(nudged, times) - shape) / 1e-4)
    return np.stack(columns, axis=1)


def _weigh(
    solved: Sequence[tuple[Array, Array]],
    families: Sequence[Family],
    weights: Array,
    noise: float,
    scaled: Array,
    times: Times,
) -> tuple[tuple[Fitted, ...], float]:
    """Laplace's approximation of each family's evidence, and of its parameters' spread."""
    w2 = weights**2
    misfits, errors = [], []
    for family, (p, _) in zip(families, solved, strict=True):
        gain = p[1] if len(p) > 1 else 0.0
        off = np.abs(scaled - p[0] - gain * family.evaluate(p[2:], times))
        errors.append(math.sqrt(float((w2 * np.minimum(off, 4 * noise) ** 2).sum() / w2.sum())))
        misfits.append(off)
    # The noise cannot be less than what the best of the families leaves.
    noise = max(noise, min(errors))
    out, logs = [], []
    for family, (p, rows), off, error in zip(families, solved, misfits, errors, strict=True):
        z = off / noise
        huber = np.where(z > _OUTLIER, 2 * _OUTLIER * z - _OUTLIER**2, z**2)
        prior = np.array([_LEVEL_SPREAD, _GAIN_SPREAD, *([1.0] * family.size)])[: len(p)]
        usual = np.array([0.0, 1.0, *([0.0] * family.size)])[: len(p)]
        precision = _INDEPENDENT * (rows.T * w2) @ rows / noise**2 + np.diag(prior**-2.0)
        upper = np.linalg.cholesky(precision).T
        root = np.linalg.inv(upper)
        log = -0.5 * _INDEPENDENT * float((w2 * huber).sum())
        log -= 0.5 * float((((p - usual) / prior) ** 2).sum())
        log -= float(np.log(np.diag(upper)).sum() + np.log(prior).sum())
        logs.append(log)
        out.append(Fitted(family, p, root, 0.0, error))
    shares = np.exp(np.array(logs) - max(logs))
    shares = shares / shares.sum()
    fits = [
        Fitted(f.family, f.best, f.root, float(w), f.error)
        for f, w in zip(out, shares, strict=True)
    ]
    return tuple(sorted(fits, key=lambda f: -f.weight)), noise
