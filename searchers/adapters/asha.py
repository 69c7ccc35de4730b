"""``ASHAScheduler`` (``AsyncHyperBandScheduler``): the rungs of each bracket are its phases."""

from __future__ import annotations

import math
from typing import Any

from ray.tune.schedulers import AsyncHyperBandScheduler

from ..api import JobInfo, TrialInfo, median_jobs
from ..registry import register
from .phased import PhasedAdapter, Phases, side_by_side


@register(AsyncHyperBandScheduler)
class ASHAAdapter(PhasedAdapter):
    """Trials between two rungs are in one phase; one in ``reduction_factor`` passes a rung.

    Trials advance by themselves, so some may be ahead: these are in a later phase already, and
    fewer others are expected there. Phases ahead count the real trials in them, and the median
    job for each that is still expected.
    """

    def phases(self) -> Phases:
        """The phases of all brackets, side by side."""
        brackets = self.scheduler._brackets
        members: dict[int, list[TrialInfo]] = {id(bracket): [] for bracket in brackets}
        for trial in self.app.live:
            bracket = self.scheduler._trial_info.get(trial.id, brackets[0])
            members[id(bracket)].append(trial)
        coming = _shares(self.app.to_come, brackets)
        return side_by_side(
            [
                self._of_bracket(bracket, members[id(bracket)], count)
                for bracket, count in zip(brackets, coming, strict=True)
            ]
        )

    def _of_bracket(self, bracket: Any, trials: list[TrialInfo], to_come: int) -> Phases:
        # The last rung is where trials end: at max_t, or by themselves.
        rungs = sorted((milestone, set(seen)) for milestone, seen in bracket._rungs)
        ends = [m for m, _ in rungs if m < self.scheduler._max_t]
        ends.append(self.scheduler._max_t if self.scheduler._stop_last_trials else math.inf)
        here: list[list[TrialInfo]] = [[] for _ in ends]
        for trial in trials:
            here[self._interval(trial, rungs, ends)].append(trial)
        typical = self.app.typical()
        phases: Phases = []
        entering: int = to_come
        like: list[JobInfo] = []
        for k, end in enumerate(ends):
            jobs = [self.until(trial, end) for trial in here[k]]
            like = like or jobs or [self.until(typical, ends[0])]
            span = self._span(typical, ends, k)
            jobs = jobs + (median_jobs(entering, span, like) if entering and span > 0 else [])
            if jobs:
                phases.append(jobs)
            if k < len(ends) - 1:
                seen = rungs[k][1]
                reaching = len(seen) + len(jobs)
                passing = math.ceil(reaching / self.scheduler._reduction_factor)
                ahead = len([t for later in here[k + 1 :] for t in later])
                gone = len(set().union(*(s for _, s in rungs[k + 1 :])) - {t.id for t in trials})
                entering = max(0, passing - ahead - gone) if jobs else 0
        return phases

    def _interval(self, trial: TrialInfo, rungs: list[Any], ends: list[float]) -> int:
        passed = [k for k, (_, seen) in enumerate(rungs) if trial.id in seen]
        return min(max(passed, default=-1) + 1, len(ends) - 1)

    def _span(self, typical: TrialInfo, ends: list[float], k: int) -> float:
        """Iterations from one rung to the next, for a trial that does not exist yet."""
        begin = self.until(typical, ends[k - 1]).iterations_remaining if k else 0.0
        return self.until(typical, ends[k]).iterations_remaining - begin


def _shares(to_come: int, brackets: list[Any]) -> list[int]:
    """Trials to come by bracket: ASHA draws with probability e^(number of rungs)."""
    weights = [math.exp(len(bracket._rungs)) for bracket in brackets]
    exact = [to_come * weight / sum(weights) for weight in weights]
    counts = [int(x) for x in exact]
    by_rest = sorted(range(len(exact)), key=lambda i: counts[i] - exact[i])
    for i in by_rest[: to_come - sum(counts)]:
        counts[i] += 1
    return counts
