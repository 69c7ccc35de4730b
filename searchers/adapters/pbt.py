"""``PopulationBasedTraining`` (and ``PB2``, which is derived from it)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ray.tune.schedulers import PopulationBasedTraining

from ..api import AllTrials
from ..registry import register
from .phased import PhasedAdapter, Phases

# A population that meets very often is looked at so many meetings ahead one by one.
MEETINGS = 50


class PopulationAdapter(AllTrials):
    """Without ``synch`` nobody waits for anybody: each member runs to its end."""


class SynchronousPopulationAdapter(PhasedAdapter):
    """With ``synch=True`` the whole population meets at each perturbation: these are its phases."""

    def phases(self) -> Phases:
        """From one meeting to the next, and after the last to the end."""
        members = [*self.app.live, *[self.app.typical()] * self.app.to_come]
        ends = [[trial.job().iterations_remaining] for trial in members]
        meeting = float(self.scheduler._next_perturbation_sync)
        interval = float(self.scheduler._perturbation_interval)
        for trial, end in zip(members, ends, strict=True):
            until = (self.until(trial, meeting + k * interval) for k in range(MEETINGS))
            end[:0] = [job.iterations_remaining for job in until]
        phases = []
        for k in range(MEETINGS + 1):
            jobs = [
                replace(trial.job(), iterations_remaining=end[k] - (end[k - 1] if k else 0.0))
                for trial, end in zip(members, ends, strict=True)
            ]
            phases.append([job for job in jobs if job.iterations_remaining > 0])
        return [jobs for jobs in phases if jobs]


@register(PopulationBasedTraining)
def population(scheduler: Any) -> PopulationAdapter | SynchronousPopulationAdapter:
    """The adapter for a population that meets, or for one that does not."""
    cls = SynchronousPopulationAdapter if scheduler._synch else PopulationAdapter
    return cls(scheduler)
