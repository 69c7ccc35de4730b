"""What the adapters of rung-based schedulers share."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from ..api import AppState, JobInfo, PhaseSearch, TrialInfo, median_jobs, share_out

ITERATION = "training_iteration"

Phases = list[list[JobInfo]]


class PhasedAdapter(PhaseSearch):
    """An adapter that lists the jobs of all its phases at once.

    Args:
        scheduler: The Tune scheduler.
    """

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self._phases: Phases = []

    @abstractmethod
    def phases(self) -> Phases:
        """The jobs of each phase still to do, the current one first, without GPUs."""

    def observe(self, app: AppState) -> None:
        """Take the scheduler's state as it is now."""
        super().observe(app)
        self._phases = self.phases()

    def num_phases(self) -> int:
        """Phases still to do."""
        return len(self._phases)

    def jobs_in_phase(self, phase: int, allocation: Sequence[int]) -> Sequence[JobInfo]:
        """The jobs, sharing the allocation so that the slowest is done soonest."""
        return share_out(self._phases[phase], allocation, at_most=self.app.concurrency)

    def until(self, trial: TrialInfo, value: float) -> JobInfo:
        """A trial's job until the scheduler's ``time_attr`` has come to ``value``."""
        return trial.job(until=in_iterations(trial, self.time_attr, value))

    @property
    def time_attr(self) -> str:
        """What the scheduler counts progress in."""
        return str(self.scheduler._time_attr)


def in_iterations(trial: TrialInfo, time_attr: str, value: float) -> float:
    """At which iteration a trial's ``time_attr`` comes to ``value``, judged by its progress."""
    if time_attr == ITERATION or not math.isfinite(value):
        return value
    reached = trial.last_result.get(time_attr)
    if trial.iterations_done > 0 and isinstance(reached, int | float) and reached > 0:
        return value * trial.iterations_done / float(reached)
    if time_attr.startswith("time_"):
        return value / max(trial.serial_iter_s, 1e-9)
    return value


def halving(jobs: list[JobInfo], steps: Sequence[tuple[int, float]]) -> Phases:
    """The phases of successive halving.

    Args:
        jobs: The jobs of the current phase.
        steps: ``(jobs, iterations)`` of each phase to come.
    """
    if not jobs:
        return []
    later = [median_jobs(count, iterations, jobs) for count, iterations in steps if iterations > 0]
    return [jobs, *[phase for phase in later if phase]]


def side_by_side(searches: Sequence[Phases]) -> Phases:
    """Brackets that run at once, as one: phase k has the jobs of every bracket's phase k."""
    together = zip_longest(*searches, fillvalue=())
    return [[job for part in parts for job in part] for parts in together]
