"""When to stop a trial, and which to run first, from forecasts of their learning curves.

HyperDrive's idea (Rasley et al., Middleware 2017): what matters is not how good a trial is now, but
the probability that it gets where it should by its end. Free of Tune, of clocks and of I/O.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from statistics import median
from typing import Any

from ...errors import ConfigError
from .fitting import FEWEST_POINTS, MODES, fit_curve, number
from .forecasting import OPTIMISTIC, forecast


class Rank(Enum):
    """How a trial stands; in this order trials are given GPUs."""

    PROMISING = "promising"
    OPPORTUNISTIC = "opportunistic"
    POOR = "poor"


@dataclass(frozen=True)
class RuleOptions:
    """What :class:`StoppingRule` goes by.

    Attributes:
        mode: ``min`` or ``max``.
        max_t: Iterations of a trial that is not stopped.
        target: The metric to reach; to beat the best of the other trials when None.
        threshold: A trial is poor when its chance is below this...
        patience: ... and is stopped when it was so at so many checks in a row.
        promising: A trial is promising when its chance is at least this.
        grace_period: Iterations before the first check.
        check_interval: Iterations between checks.
        limits: The least and the greatest value that the metric can have, as far as known.
        end_at_target: A trial that has reached the target is done.
        seed: Of the forecasts.
    """

    mode: str
    max_t: float
    target: float | None = None
    threshold: float = 0.05
    patience: int = 2
    promising: float = 0.5
    grace_period: int = 5
    check_interval: int = 1
    limits: tuple[float | None, float | None] = (None, None)
    end_at_target: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ConfigError(f"mode = {self.mode!r}; use 'min' for a loss, 'max' for an accuracy")
        if not 0 < self.max_t < math.inf:
            raise ConfigError(
                f"max_t = {self.max_t}; use the iterations of a full trial, 1 or more"
            )
        if not 0 <= self.threshold <= self.promising <= 1:
            raise ConfigError(
                f"threshold = {self.threshold} and promising = {self.promising}; use "
                "probabilities with 0 <= threshold <= promising <= 1"
            )
        for name in ("patience", "grace_period", "check_interval"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} = {getattr(self, name)}; use 1 or more")
        if self.target is not None and number(self.target) is None:
            raise ConfigError(f"target = {self.target}; use a finite number, or leave it out")
        low, high = self.limits
        if low is not None and high is not None and not low < high:
            raise ConfigError(f"limits = {self.limits}; use (least, greatest), None where unknown")


@dataclass(frozen=True)
class Verdict:
    """What a check found.

    Attributes:
        chance: Of reaching the target, or beating the best, by the trial's end; None when its
            curve tells nothing.
        rank: How the trial stands.
        stop: Whether it should be stopped now.
        runs_until: The iteration at which it ends, over-estimated on purpose.
        why: In a sentence.
    """

    chance: float | None
    rank: Rank
    stop: bool
    runs_until: float
    why: str


@dataclass
class _Curve:
    order: int
    points: dict[float, float] = field(default_factory=dict)
    reported: float = 0.0
    checked: float = 0.0
    poor_checks: int = 0
    verdict: Verdict | None = None
    ended: bool = False


class StoppingRule:
    """Keeps the curves of a search's trials and judges them.

    Args:
        options: What it goes by.
    """

    def __init__(self, options: RuleOptions) -> None:
        self.options = options
        self._curves: dict[str, _Curve] = {}

    def add(self, trial: str) -> None:
        """A trial is new, or known and goes on."""
        self._curves.setdefault(trial, _Curve(len(self._curves)))

    def end(self, trial: str) -> None:
        """A trial is over; the best it has reached still counts."""
        if trial in self._curves:
            self._curves[trial].ended = True

    def report(self, trial: str, iteration: Any, metric: Any) -> Verdict:
        """Take in a report, and judge the trial if a check is due.

        Args:
            trial: Its name.
            iteration: 1 or more; a report repeated after a restart replaces the first one.
            metric: Its value; what is not a finite number is passed over.
        """
        self.add(trial)
        curve, o = self._curves[trial], self.options
        at, value = number(iteration), number(metric)
        if curve.ended or at is None:
            return self.verdict(trial)
        curve.reported = at
        if value is not None:
            curve.points[at] = value
            if o.target is not None and o.end_at_target and not self._better(o.target, value):
                return self._note(curve, 1.0, True, at, f"it has reached the target {o.target:g}")
        due = at >= o.grace_period and at - curve.checked >= o.check_interval
        if at < curve.checked:  # it went back to a checkpoint
            curve.checked = at
        if due and at < o.max_t:
            curve.checked = at
            self._check(trial, curve)
        return self.verdict(trial)

    def note_last(self, trial: str, iteration: Any, metric: Any) -> None:
        """Take in the report with which a trial has ended, without judging it."""
        at, value = number(iteration), number(metric)
        if trial in self._curves and at is not None and value is not None:
            self._curves[trial].points[at] = value

    def count_ranks(self) -> dict[Rank, int]:
        """How many of the trials that go on stand how."""
        ranks = [self.verdict(t).rank for t, c in self._curves.items() if not c.ended]
        return {rank: ranks.count(rank) for rank in Rank}

    def verdict(self, trial: str) -> Verdict:
        """The last check's verdict on a trial."""
        curve = self._curves.get(trial)
        if curve is None or curve.verdict is None:
            return Verdict(None, Rank.OPPORTUNISTIC, False, self.options.max_t, "not judged yet")
        return curve.verdict

    def ranking(self, trials: Iterable[str]) -> list[str]:
        """Trials in the order in which they are to have GPUs.

        Promising ones come first, then opportunistic ones, then poor ones, the greater chance
        first; those of which nothing is known yet are opportunistic with an even chance.
        """
        ranks = list(Rank)

        def key(trial: str) -> tuple[int, float, int]:
            verdict = self.verdict(trial)
            curve = self._curves.get(trial)
            chance = 0.5 if verdict.chance is None else verdict.chance
            return (ranks.index(verdict.rank), -chance, curve.order if curve else 1 << 60)

        return sorted(trials, key=key)

    def best(self, but: str = "") -> float | None:
        """The best metric of all trials, one of them left out; None without any."""
        pick = min if self.options.mode == "min" else max
        values = [pick(c.points.values()) for t, c in self._curves.items() if c.points and t != but]
        return pick(values, default=None)

    # -- parts of a check ---------------------------------------------------------------------

    def _better(self, one: float, other: float) -> bool:
        return one < other if self.options.mode == "min" else one > other

    def _check(self, trial: str, curve: _Curve) -> None:
        o = self.options
        goal = o.target if o.target is not None else self.best(but=trial)
        if goal is None:
            self._unknown(curve, "there is no other trial to compare it with")
            return
        seed = zlib.crc32(f"{o.seed}/{trial}/{curve.checked:g}".encode())
        peers = self._peer_gain(trial)
        fit = fit_curve(curve.points.items(), o.mode, peer_gain=peers, seed=seed)
        if not fit.known:
            self._unknown(curve, fit.why_unknown)
            return
        ahead = forecast(fit, o.max_t, limits=o.limits)
        by_target = o.target is not None
        chance = ahead.chance_of(goal) if by_target else ahead.chance_to_beat(goal)
        poor = chance < o.threshold
        curve.poor_checks = curve.poor_checks + 1 if poor else 0
        stop = curve.poor_checks >= o.patience
        until = o.max_t
        if poor:
            # The next checks will stop it, unless its curve turns.
            wait = (o.patience - curve.poor_checks) * o.check_interval
            until = min(o.max_t, curve.reported + max(0, wait))
        elif by_target and o.end_at_target:
            until = ahead.runs_until(goal, OPTIMISTIC)
        what = f"reach {goal:g}" if by_target else f"beat the best trial ({goal:g})"
        why = f"its chance to {what} by iteration {o.max_t:g} is {chance:.1%}"
        self._note(curve, chance, stop, until, why)

    def _peer_gain(self, trial: str) -> float | None:
        """What a typical other trial gains from its first report to its best."""
        gains = []
        for name, curve in self._curves.items():
            if name != trial and len(curve.points) >= FEWEST_POINTS:
                values = list(curve.points.values())
                best = min(values) if self.options.mode == "min" else max(values)
                gains.append(abs(values[0] - best))
        return median(gains) if gains else None

    def _unknown(self, curve: _Curve, why: str) -> None:
        curve.poor_checks = 0
        until = self.options.max_t
        curve.verdict = Verdict(None, Rank.OPPORTUNISTIC, False, until, f"not known: {why}")

    def _note(self, curve: _Curve, chance: float, stop: bool, until: float, why: str) -> Verdict:
        rank = Rank.OPPORTUNISTIC
        if chance >= self.options.promising:
            rank = Rank.PROMISING
        elif chance < self.options.threshold:
            rank = Rank.POOR
        curve.verdict = Verdict(chance, rank, stop, until, why)
        return curve.verdict
