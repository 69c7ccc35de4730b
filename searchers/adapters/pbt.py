"""``PopulationBasedTraining`` (and ``PB2``, which is derived from it)."""

from __future__ import annotations

from typing import Any

from ray.tune.schedulers import PopulationBasedTraining

from ..api import AllTrials, TrialInfo
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
        live = list(self.app.live)
        if not live:
            return []
        meeting = float(self.scheduler._next_perturbation_sync)
        interval = float(self.scheduler._perturbation_interval)
        phases: Phases = []
        done = {trial.id: 0.0 for trial in live}
        for k in range(MEETINGS):
            jobs = []
            for trial in live:
                job = self.until(trial, meeting + k * interval)
                jobs.append(_less(trial, job.iterations_remaining, done))
            phases.append([job for job in jobs if job.iterations_remaining > 0])
            if not phases[-1]:
                return phases[:-1]
        rest = [_less(trial, trial.job().iterations_remaining, done) for trial in live]
        return [*phases, [job for job in rest if job.iterations_remaining > 0]]


def _less(trial: TrialInfo, until: float, done: dict[str, float]) -> Any:
    """What a trial has to do beyond what earlier phases have counted."""
    job = trial.job()
    left, done[trial.id] = until - done[trial.id], until
    return type(job)(
        job.id, left, job.serial_iter_s, job.min_gpus, job.max_gpus, sensitivity=job.sensitivity
    )


@register(PopulationBasedTraining)
def population(scheduler: Any) -> PopulationAdapter | SynchronousPopulationAdapter:
    """The adapter for a population that meets, or for one that does not."""
    cls = SynchronousPopulationAdapter if scheduler._synch else PopulationAdapter
    return cls(scheduler)
