"""What a fitted learning curve may still do: sampled futures, and the chances that follow."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...errors import InvalidInputError
from .families import BOUND, Array, Times
from .fitting import CurveFit

OPTIMISTIC = 0.9
"""The most optimistic plausible curve: only a tenth of the futures are better."""
DRAWS = 400
MOST_ITERATIONS = 64
"""A future is followed at so many iterations; of more, evenly spread ones are looked at."""


@dataclass(frozen=True)
class ModelError:
    """How wrong the families are, beyond what their parameters leave open.

    A future departs from its curve by a Student-t variate (heavy tails: some runs do what no
    family knows) times ``sqrt(h)`` times the root of the sum of squares of four parts, with
    h = log2(t / now): the further ahead, the wider.

    Attributes:
        of_noise: Part that grows with the noise of the reports.
        of_gain: Part that grows with what is forecast to be gained.
        of_recent: Part that grows with how far the curve has come since it was half as old.
        of_scale: Part that is always there, as a share of the curve's whole movement.
        freedom: Degrees of freedom of the variate.
        calming: The noise of single reports to come, as a share of what it was lately.
        surprise: The share of futures, per doubling of the trial's age, in which it takes off at
            some time and gains as much again as it has moved on the average: curves with a long
            plateau at their start exist, and on the plateau nothing tells.
        most_surprise: Never more than this share.
    """

    of_noise: float = 0.4
    of_gain: float = 0.8
    of_recent: float = 0.3
    of_scale: float = 0.03
    freedom: float = 4.0
    calming: float = 0.3
    surprise: float = 0.1
    most_surprise: float = 0.3


@dataclass(frozen=True)
class Forecast:
    """Sampled futures of one trial, from its next report to ``until``.

    All chances are of the best report by then: a search keeps a trial's best checkpoint.

    Attributes:
        fit: What they are drawn from.
        at: Iterations looked at, ascending.
        curves: Futures without the noise of single reports, lower being better:
            ``(draws, len(at))``.
        reports: The same with the noise.
    """

    fit: CurveFit
    at: Array
    curves: Array
    reports: Array

    def quantiles(self, iteration: float, q: float | tuple[float, ...]) -> Array:
        """Quantiles of the metric that is reported at an iteration, in the metric's own sign."""
        values = self.reports[:, self._index(iteration)]
        return np.asarray(np.quantile(values if self.fit.mode == "min" else -values, q))

    def mean(self, iteration: float) -> float:
        """The expected metric at an iteration (the median future, which outliers leave alone)."""
        return float(self.quantiles(iteration, 0.5))

    def chance_of(self, target: float, by: float | None = None) -> float:
        """The probability that some report up to an iteration reaches a target.

        Args:
            target: In the metric's own sign; reaching it exactly counts.
            by: The iteration; the last one looked at when None.
        """
        goal = self.fit.signed(target)
        if self._best() <= goal:
            return 1.0
        seen = self.reports[:, : self._index(by) + 1]
        hits = int((seen.min(axis=1) <= goal).sum())
        # Never quite 0 or 1: so many draws do not show what is rarer than one in them.
        return (hits + 0.5) / (len(seen) + 1.0)

    def chance_to_beat(self, best: float, by: float | None = None) -> float:
        """The probability that some report up to an iteration is better than ``best``."""
        goal = self.fit.signed(best)
        if self._best() < goal:
            return 1.0
        return self.chance_of(self.fit.signed(float(np.nextafter(goal, -math.inf))), by)

    def optimistic(self, q: float = OPTIMISTIC) -> Array:
        """The most optimistic plausible curve: at each iteration ``q`` of the futures are worse.

        Returns:
            The metric at each iteration of ``at``, in its own sign.
        """
        curve = np.quantile(self.curves, 1.0 - q, axis=0)
        return curve if self.fit.mode == "min" else -curve

    def reaches(self, target: float, q: float = OPTIMISTIC) -> float | None:
        """When the most optimistic plausible curve reaches a target; None when it does not."""
        goal = self.fit.signed(target)
        if self._best() <= goal:
            return self.fit.last_iteration
        curve = np.minimum.accumulate(np.quantile(self.curves, 1.0 - q, axis=0))
        there = np.flatnonzero(curve <= goal)
        return float(self.at[there[0]]) if len(there) else None

    def runs_until(self, target: float, q: float = OPTIMISTIC) -> float:
        """When a trial that runs until it reaches a target ends: over-estimated on purpose.

        In ``q`` of the futures it has reached the target by then; those that never do run to the
        end. THEMIS (section 5.2) has its AGENT take the greatest forecast of a job's work: to
        promise a finish time that is missed is worse than to ask for a little too much.
        """
        goal = self.fit.signed(target)
        if self._best() <= goal:
            return self.fit.last_iteration
        reached = self.reports <= goal
        first = np.where(reached.any(axis=1), reached.argmax(axis=1), len(self.at) - 1)
        return float(self.at[int(np.quantile(first, q, method="higher"))])

    def _best(self) -> float:
        return float(self.fit.reports.value.min())

    def _index(self, iteration: float | None) -> int:
        """The first iteration looked at that is not before this one."""
        if iteration is None:
            return len(self.at) - 1
        return min(int(np.searchsorted(self.at, iteration)), len(self.at) - 1)


def forecast(
    fit: CurveFit,
    until: float,
    *,
    draws: int = DRAWS,
    error: ModelError | None = None,
    limits: tuple[float | None, float | None] = (None, None),
) -> Forecast:
    """Draw futures of a trial from its fitted curve.

    Args:
        fit: A fit that is known.
        until: The trial's last iteration.
        draws: How many futures.
        error: How wrong the families are.
        limits: The least and the greatest value that the metric can have; None where there is
            no limit.

    Raises:
        InvalidInputError: Nothing is known of the curve.
    """
    if not fit.known:
        raise InvalidInputError(
            f"there is no forecast of this curve ({fit.why_unknown}); ask fit.known first"
        )
    rng = np.random.default_rng(fit.seed)
    at = _ahead(fit.last_iteration, until)
    curves, half, now = _sample(fit, at, draws, rng)
    error = error or ModelError()
    ahead = np.log2(at / fit.last_iteration)
    wide = np.sqrt(
        (error.of_noise * fit.noise) ** 2
        + (error.of_gain * (curves - now[:, None])) ** 2
        + (error.of_recent * (half - now)[:, None]) ** 2
        + error.of_scale**2
    )
    odd = rng.standard_t(error.freedom, size=(draws, 1))
    curves = curves + odd * wide * np.sqrt(ahead)
    share = min(error.most_surprise, error.surprise * float(ahead[-1]))
    curves = curves - _surprises(curves.shape, share, rng)
    reports = curves + rng.normal(0.0, error.calming * fit.noise, curves.shape)
    low, high = (
        limits if fit.mode == "min" else tuple(None if x is None else -x for x in limits[::-1])
    )
    ends = (-math.inf if low is None else low, math.inf if high is None else high)
    back = [np.clip(fit.origin + fit.scale * x, *ends) for x in (curves, reports)]
    return Forecast(fit, at, back[0], back[1])


def _surprises(shape: tuple[int, ...], share: float, rng: np.random.Generator) -> Array:
    """What futures gain, in the curve's own scale, beyond what any shape would tell."""
    draws, count = shape
    takes_off = rng.random(draws) < share
    start = rng.random((draws, 1))
    passed = np.clip((np.arange(1, count + 1) / count - start) / (1.0 - start), 0.0, 1.0)
    return np.asarray((takes_off * rng.exponential(1.0, draws))[:, None] * passed)


def _ahead(last: float, until: float) -> Array:
    """The iterations to look at: whole ones, after the last report."""
    first, end = math.floor(last) + 1, max(math.floor(until), math.floor(last) + 1)
    if end - first < MOST_ITERATIONS:
        return np.arange(first, end + 1, dtype=np.float64)
    return np.unique(np.round(np.linspace(first, end, MOST_ITERATIONS)))


def _sample(
    fit: CurveFit, at: Array, draws: int, rng: np.random.Generator
) -> tuple[Array, Array, Array]:
    """Curves at ``at``, when half as old, and now, in the fit's own scale.

    Returns:
        ``(draws, len(at))``, ``(draws,)`` and ``(draws,)``.
    """
    first, last = float(fit.reports.at[0]), fit.last_iteration
    times = Times(np.concatenate([[max(first, last / 2), last], at])[None, :], first, last)
    # Each family gets its share of the draws, evenly spaced so that few draws do.
    edges = np.cumsum([f.weight for f in fit.fits])
    which = np.searchsorted(edges, (np.arange(draws) + rng.random()) / draws)
    which = np.minimum(which, len(fit.fits) - 1)
    out = np.empty((draws, len(at) + 2))
    for i, fitted in enumerate(fit.fits):
        mine = np.flatnonzero(which == i)
        if not len(mine):
            continue
        p = fitted.best + rng.normal(size=(len(mine), len(fitted.best))) @ fitted.root.T
        gain = np.clip(p[:, 1:2], 0.0, None) if p.shape[1] > 1 else np.zeros((len(mine), 1))
        units = np.clip(p[:, 2:], -BOUND, BOUND).T[:, :, None]
        out[mine] = p[:, :1] + gain * fitted.family.evaluate(units, times)
    return out[:, 2:], out[:, 0], out[:, 1]
