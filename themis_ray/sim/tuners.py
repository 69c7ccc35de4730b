"""What a tuner will do with an app's jobs: how many iterations each one runs, and in which phase.

This is what happens, not what anybody knows beforehand: it follows from the learning curves of
the trace alone, so it is the same under every policy.

Learning curves have the form ``loss(i) = L + (S - L) exp(-decay i)`` with L the job's final loss
and S = 1, or L + 1 where the final loss is 1 or more: losses fall. A trace that gives none gets
seeded ones.

- ``single``: every job runs all its iterations.
- ``successive_halving``: with n jobs there are ``ceil(log2 n) + 1`` phases; after each, the better
  half (rounded up) goes on. Each phase lasts twice as many iterations as the one before, and a job
  that survives to the end has run its ``iterations``; so the phases are about equal work.
- ``curve_stopping``: at every tenth of its iterations a job is stopped if the loss that the best
  job reaches by then is below the job's final loss, since it cannot win any more.
"""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from themis_ray.core.fairness import PhaseWork
from themis_ray.sim.jobs import TraceApp, TraceJob

CHECKS = 10
# A curve of unknown decay has fallen by 99% at the end of the job.
TYPICAL_FALL = math.log(100)
TYPICAL_LOSS = (0.1, 0.9)


@dataclass(frozen=True, slots=True)
class PhasePlan:
    """One phase: ``runs`` are (index of the job, iterations of it in this phase)."""

    runs: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Curve:
    """A learning curve."""

    final_loss: float
    decay: float

    def loss(self, iterations: float) -> float:
        """The loss after so many iterations."""
        fall = 1 - self.final_loss if self.final_loss < 1 else 1.0
        return self.final_loss + fall * math.exp(-self.decay * iterations)

    def decrease(self, iterations: float) -> float:
        """By how much the next iteration lowers the loss."""
        return self.loss(iterations) - self.loss(iterations + 1)


def curve_of(app: str, job: TraceJob, seed: int) -> Curve:
    """A job's learning curve, as the trace has it or seeded."""
    loss = job.final_loss
    if loss is None:
        key = zlib.crc32(f"{seed}/{app}/{job.id}".encode())
        loss = random.Random(key).uniform(*TYPICAL_LOSS)
    return Curve(loss, TYPICAL_FALL / job.iterations if job.decay is None else job.decay)


def plan_of(app: TraceApp, seed: int) -> tuple[PhasePlan, ...]:
    """All phases of an app."""
    if app.tuner == "successive_halving" and len(app.jobs) > 1:
        return _halving(app, seed)
    if app.tuner == "curve_stopping" and len(app.jobs) > 1:
        return (_stopping(app, seed),)
    return (PhasePlan(tuple((i, job.iterations) for i, job in enumerate(app.jobs))),)


def halvings(jobs: int) -> list[int]:
    """How many jobs each phase has."""
    counts = [jobs]
    while counts[-1] > 1:
        counts.append(-(-counts[-1] // 2))
    return counts


def phase_iterations(iterations: float, phase: int, phases: int) -> float:
    """Iterations of a job in a phase, of the ``iterations`` that it runs if it survives."""
    return float(iterations * 2.0**phase / (2.0**phases - 1))


def expected_phases(app: TraceApp) -> tuple[list[float], list[int]]:
    """GPU-seconds and demand of each phase as an app expects them at its start.

    Who survives is unknown then, so in later phases each job counts as the median job.
    """
    jobs = app.jobs
    if app.tuner != "successive_halving" or len(jobs) == 1:
        return [app.work_gpu_s], [app.max_gpus]
    counts = halvings(len(jobs))
    first = [phase_iterations(job.iterations, 0, len(counts)) * job.serial_iter_s for job in jobs]
    works, demands = [math.fsum(first)], [app.max_gpus]
    median = sorted(jobs, key=lambda job: job.serial_iter_s)[len(jobs) // 2]
    for phase, count in enumerate(counts[1:], 1):
        steps = phase_iterations(median.iterations, phase, len(counts))
        works.append(count * steps * median.serial_iter_s)
        demands.append(count * median.max_gpus)
    return works, demands


def expected_work(app: TraceApp) -> tuple[PhaseWork, ...]:
    """The phases of :func:`expected_phases`, with the GPUs that make each one shorter."""
    works, demands = expected_phases(app)
    first_s = 0.0
    for job in app.jobs:
        steps = job.iterations
        if len(works) > 1:
            steps = phase_iterations(job.iterations, 0, len(works))
        first_s = max(first_s, steps * job.serial_iter_s / job.max_gpus)
    paced = min(float(demands[0]), works[0] / first_s) if first_s > 0 else float(demands[0])
    later = zip(works[1:], demands[1:], strict=True)
    return (PhaseWork(works[0], paced), *(PhaseWork(w, float(d)) for w, d in later))


def _halving(app: TraceApp, seed: int) -> tuple[PhasePlan, ...]:
    curves = [curve_of(app.id, job, seed) for job in app.jobs]
    counts = halvings(len(app.jobs))
    alive: Sequence[int] = range(len(app.jobs))
    done = [0.0] * len(app.jobs)
    plans = []
    for phase, count in enumerate(counts):
        alive = sorted(alive, key=lambda i: (curves[i].loss(done[i]), i))[:count]
        runs = []
        for i in sorted(alive):
            steps = phase_iterations(app.jobs[i].iterations, phase, len(counts))
            runs.append((i, steps))
            done[i] += steps
        plans.append(PhasePlan(tuple(runs)))
    return tuple(plans)


def _stopping(app: TraceApp, seed: int) -> PhasePlan:
    curves = [curve_of(app.id, job, seed) for job in app.jobs]
    runs = []
    for i, job in enumerate(app.jobs):
        steps = job.iterations
        for check in range(1, CHECKS):
            part = check / CHECKS
            best = min(
                curve.loss(other.iterations * part)
                for curve, other in zip(curves, app.jobs, strict=True)
            )
            if best < curves[i].final_loss:
                steps = job.iterations * part
                break
        runs.append((i, steps))
    return PhasePlan(tuple(runs))
