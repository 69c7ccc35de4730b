"""T_id by three definitions, to judge a finished run by.

Policies decide with what apps report; these are worked out afterwards, from the trace and from
what really happened, so that no policy can talk its way to a good result.

- ``paper``: T_cluster * N_avg, as printed (THEMIS, section 3.2). An app that cannot use its whole
  share gets more time than it would take alone.
- ``exclusive``: alone on R_C / N_avg GPUs, phase by phase, and no faster than the longest job.
- ``fluid``: the time that the same app takes in a fluid fair-share run of the same arrivals,
  without slowdown and without restarts. It does not depend on the policy: an app that is delayed
  cannot make its own T_id longer by meeting more apps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from themis_ray.core.fairness import water_fill
from themis_ray.sim.jobs import Trace, TraceApp
from themis_ray.sim.records import AppRecord
from themis_ray.sim.tuners import plan_of

Judge = Literal["fluid", "exclusive", "paper"]
JUDGES: tuple[Judge, ...] = ("fluid", "exclusive", "paper")


@dataclass(frozen=True, slots=True)
class PlannedPhase:
    """What a phase takes.

    Attributes:
        work_gpu_s: GPU-seconds, without slowdown.
        max_gpus: The most GPUs that its jobs can use together.
        longest_s: Its longest job on as many GPUs as that job can use.
    """

    work_gpu_s: float
    max_gpus: int
    longest_s: float

    def time_s(self, gpus: float) -> float:
        """How long it takes on ``gpus`` GPUs, divided as is best, fractions allowed."""
        return max(self.work_gpu_s / min(gpus, self.max_gpus), self.longest_s)


def phases_of(app: TraceApp, seed: int) -> tuple[PlannedPhase, ...]:
    """What the phases of an app take."""
    out = []
    for phase in plan_of(app, seed):
        jobs = [(app.jobs[i], steps * app.jobs[i].serial_iter_s) for i, steps in phase.runs]
        out.append(
            PlannedPhase(
                math.fsum(work for _, work in jobs),
                sum(job.max_gpus for job, _ in jobs),
                max(work / job.max_gpus for job, work in jobs),
            )
        )
    return tuple(out)


def ideal_times_s(
    judge: Judge, trace: Trace, records: Sequence[AppRecord], gpus: int, seed: int
) -> dict[str, float]:
    """T_id of each app, in seconds from its arrival.

    Args:
        judge: The definition.
        trace: The workload.
        records: What happened to each app.
        gpus: R_C.
        seed: As in the run: it makes up learning curves that the trace does not give.
    """
    if judge == "fluid":
        return fluid_times_s(trace, gpus, seed)
    contention = mean_apps(records)
    out = {}
    for app in trace.apps:
        phases = phases_of(app, seed)
        share = contention[app.id] / app.weight
        if judge == "paper":
            most = min(gpus, max(phase.max_gpus for phase in phases))
            out[app.id] = math.fsum(phase.work_gpu_s for phase in phases) / most * share
        else:
            out[app.id] = math.fsum(
                phase.time_s(max(min(gpus / share, gpus), 1e-9)) for phase in phases
            )
    return out


def mean_apps(records: Sequence[AppRecord]) -> Mapping[str, float]:
    """N_avg of each app: the time-weighted mean number of apps present during its life."""
    arrivals = np.array([record.arrival_s for record in records])
    finishes = np.array([record.finish_s for record in records])
    times = np.concatenate([arrivals, finishes])
    steps = np.concatenate([np.ones(len(arrivals)), -np.ones(len(finishes))])
    order = np.argsort(times, kind="stable")
    times, present = times[order], np.cumsum(steps[order])
    integral = np.concatenate([[0.0], np.cumsum(present[:-1] * np.diff(times))])
    lives = finishes - arrivals
    sums = np.interp(finishes, times, integral) - np.interp(arrivals, times, integral)
    means = np.where(lives > 0, sums / np.where(lives > 0, lives, 1), 1.0)
    return {record.id: max(1.0, float(mean)) for record, mean in zip(records, means, strict=True)}


def fluid_times_s(trace: Trace, gpus: int, seed: int) -> dict[str, float]:
    """How long each app takes when GPUs are divided like water.

    At any time an app gets its fair share: GPUs in proportion to its weight, but no more than its
    phase can use, and what it cannot use goes to the others. Within an app, jobs make progress in
    proportion to their work, so a phase is done at its longest job's pace at the earliest.
    """
    return _Fluid(trace, gpus, seed).run()


class _Fluid:
    """The fluid run, with the present apps in arrays."""

    def __init__(self, trace: Trace, gpus: int, seed: int) -> None:
        self.trace = trace
        self.gpus = float(gpus)
        self.seed = seed
        self.out: dict[str, float] = {}
        self.apps: list[TraceApp] = []
        self.todo: list[list[PlannedPhase]] = []
        self.left = np.empty(0)
        self.most = np.empty(0)
        self.weight = np.empty(0)

    def run(self) -> dict[str, float]:
        now, upcoming = 0.0, 0
        apps = self.trace.apps
        while self.apps or upcoming < len(apps):
            rate = water_fill(self.most, self.weight, self.gpus)
            ends = self.left / rate if len(rate) else np.empty(0)
            end_s = now + float(ends.min()) if len(ends) else math.inf
            arrival_s = apps[upcoming].arrival_s if upcoming < len(apps) else math.inf
            then = min(end_s, arrival_s)
            if len(rate):
                # An instant is rounded to what its size allows, so that it may lie beyond the end
                # of a phase; below 0, that phase would never end.
                self.left = np.maximum(self.left - rate * (then - now), 0.0)
            now = then
            if end_s <= arrival_s:
                self._end_phases(np.flatnonzero(ends <= ends.min() * (1 + 1e-12)), now)
            while upcoming < len(apps) and apps[upcoming].arrival_s <= now:
                self._arrive(apps[upcoming])
                upcoming += 1
        return self.out

    def _arrive(self, app: TraceApp) -> None:
        phases = list(phases_of(app, self.seed))
        first = phases.pop(0)
        self.apps.append(app)
        self.todo.append(phases)
        self.left = np.append(self.left, first.work_gpu_s)
        self.most = np.append(self.most, self._most(first))
        self.weight = np.append(self.weight, app.weight)

    def _most(self, phase: PlannedPhase) -> float:
        return min(self.gpus, phase.work_gpu_s / phase.time_s(phase.max_gpus))

    def _end_phases(self, which: npt.NDArray[np.intp], now: float) -> None:
        gone = []
        for i in which:
            if self.todo[i]:
                phase = self.todo[i].pop(0)
                self.left[i], self.most[i] = phase.work_gpu_s, self._most(phase)
            else:
                self.out[self.apps[i].id] = now - self.apps[i].arrival_s
                gone.append(int(i))
        for i in reversed(gone):
            del self.apps[i], self.todo[i]
        self.left, self.most, self.weight = (
            np.delete(array, gone) for array in (self.left, self.most, self.weight)
        )
