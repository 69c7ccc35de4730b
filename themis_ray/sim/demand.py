"""How many GPUs the jobs of a simulated app can use, and how much being apart slows them down."""

from __future__ import annotations

from collections.abc import Sequence

from themis_ray.core.cluster import Level
from themis_ray.sim.jobrun import JobRun


def demands(jobs: Sequence[JobRun], now: float, *, content: bool) -> list[tuple[JobRun, int]]:
    """How many GPUs an app would give each of its jobs now, if it had them.

    Jobs that wait come first: while there are some, none grows. Nor does a job grow that would
    not make up for the move before its end. Policies that divide GPUs among jobs would otherwise
    give a job GPUs that its app then uses for another, round after round.

    Args:
        jobs: The jobs with work left in this phase.
        now: The virtual time, in seconds.
        content: The app has just given GPUs back, and asks for no more than it uses.
    """
    if content:
        return [(job, job.allocation.size) for job in jobs]
    if len(jobs) == 1 and not jobs[0].allocation:
        return [(jobs[0], jobs[0].spec.max_gpus)]
    waits = any(job.leaves for job in jobs)
    return [
        (
            job,
            job.spec.max_gpus
            if job.leaves or (not waits and job.worth_growing(now))
            else job.allocation.size,
        )
        for job in jobs
    ]


def gpus_of_use(jobs: Sequence[JobRun], now: float, *, content: bool) -> int:
    """GPUs in total of :func:`demands`."""
    if len(jobs) == 1:  # the usual case
        job = jobs[0]
        most = job.allocation.size
        if not content and (most == 0 or job.leaves or job.worth_growing(now)):
            most = job.spec.max_gpus
        return most
    return sum(most for _, most in demands(jobs, now, content=content))


def worst_slowdown(jobs: Sequence[JobRun], gpus: int, level: Level, slot_gpus: int) -> float:
    """S of a job on ``gpus`` GPUs: the worst over the jobs' models.

    Args:
        jobs: The jobs.
        gpus: How many GPUs.
        level: How far they are apart; on one machine, as many as a slot has count as one slot.
        slot_gpus: GPUs in the largest slot of any machine.
    """
    if gpus <= 1:
        return 1.0
    if level <= Level.MACHINE:
        level = Level.SLOT if gpus <= slot_gpus else Level.MACHINE
    return max((job.profile.by_level[level] for job in jobs), default=1.0)
