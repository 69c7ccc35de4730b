"""``HyperBandScheduler`` and ``HyperBandForBOHB``: each bracket halves by itself."""

from __future__ import annotations

import math
from typing import Any

from ray.tune.schedulers import HyperBandForBOHB, HyperBandScheduler

from ..api import JobInfo, TrialInfo
from ..registry import register
from .phased import PhasedAdapter, Phases, halving, side_by_side


@register(HyperBandScheduler)
class HyperBandAdapter(PhasedAdapter):
    """A bracket's phase ends at its milestone; brackets run side by side.

    Trials to come first fill the open bracket, then brackets that do not exist yet.
    """

    def phases(self) -> Phases:
        """The phases of all brackets, existing and to come."""
        by_id = {trial.id: trial for trial in self.app.live}
        to_come = self.app.to_come
        parts: list[Phases] = []
        brackets = [b for band in self.scheduler._hyperbands for b in band if b is not None]
        for bracket in brackets:
            trials = [by_id[t.trial_id] for t in bracket._live_trials if t.trial_id in by_id]
            room = 0
            if bracket is self.scheduler._state["bracket"]:
                room = min(to_come, max(0, bracket._n - len(bracket._live_trials)))
                to_come -= room
            parts.append(self._of_bracket(bracket, [*trials, *[self.app.typical()] * room]))
        return side_by_side(parts + self._of_new_brackets(to_come))

    def _of_bracket(self, bracket: Any, trials: list[TrialInfo]) -> Phases:
        last = bracket._halves == 0
        end = math.inf if last and not bracket.stop_last_trials else bracket._cumul_r
        # One that has come to the milestone waits for the others.
        jobs = [self.until(t, end) for t in trials if last or not self._there(t, bracket)]
        waiting = [_done(t) for t in trials if not last and self._there(t, bracket)]
        steps = self._steps(bracket._n, bracket._cumul_r, bracket._halves)
        return halving(jobs + waiting, steps)

    def _there(self, trial: TrialInfo, bracket: Any) -> bool:
        reached = trial.last_result.get(self.time_attr, 0.0)
        return bool(reached >= bracket._cumul_r)

    def _steps(self, n: int, milestone: float, halves: int) -> list[tuple[int, float]]:
        steps = []
        typical = self.app.typical()
        eta, end = self.scheduler._eta, self.scheduler._max_t_attr
        for k in range(halves):
            n = math.ceil(n / eta)
            before, milestone = milestone, int(min(milestone * eta, end))
            last = k == halves - 1 and not self.scheduler._stop_last_trials
            to = math.inf if last else milestone
            job, done = self.until(typical, to), self.until(typical, before)
            steps.append((n, job.iterations_remaining - done.iterations_remaining))
        return steps

    def _of_new_brackets(self, to_come: int) -> list[Phases]:
        """The brackets that the scheduler will make for trials beyond those it has."""
        position = len(self.scheduler._hyperbands[self.scheduler._state["band_idx"]])
        out = []
        while to_come > 0:
            s = self._exponent(position % self.scheduler._s_max_1)
            position += 1
            milestone = self.scheduler._get_r0(s)
            if milestone == 0:
                continue
            n = self.scheduler._get_n0(s)
            count = min(n, to_come)
            to_come -= count
            jobs = [self.until(self.app.typical(), milestone)] * count
            out.append(halving(jobs, self._steps(count, milestone, s)))
        return out

    def _exponent(self, position: int) -> int:
        """How often the bracket at a position of its band halves."""
        return position


@register(HyperBandForBOHB)
class BOHBAdapter(HyperBandAdapter):
    """As HyperBand, with the largest bracket first."""

    def _exponent(self, position: int) -> int:
        return int(self.scheduler._s_max_1) - position - 1


def _done(trial: TrialInfo) -> JobInfo:
    """A job that has nothing to do in this phase."""
    return JobInfo(
        trial.id,
        0.0,
        trial.serial_iter_s,
        trial.min_gpus,
        trial.max_gpus,
        sensitivity=trial.sensitivity,
    )
