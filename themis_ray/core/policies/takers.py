"""The jobs among which a round's GPUs are divided, and what each could use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from themis_ray.core.cluster import NOTHING, Allocation, Level
from themis_ray.core.events import JobReport
from themis_ray.core.policies.base import AppView, RoundView
from themis_ray.core.policies.placing import Room
from themis_ray.core.slowdown import PRIORS


@dataclass(frozen=True, slots=True)
class Taker:
    """A job that could use GPUs of the pool.

    Attributes:
        app: Its app. GPUs that cannot be taken from it count as kept.
        job: The job.
        index: Its place in its app's list.
        kept: GPUs that it has whatever the round decides.
        own: GPUs of the pool that it runs on now.
    """

    app: AppView
    job: JobReport
    index: int
    kept: Allocation = NOTHING
    own: Allocation = NOTHING

    @property
    def gang(self) -> int:
        """The fewest GPUs of the pool that are of any use to it."""
        return max(1, self.job.min_gpus - self.kept.size)

    @property
    def most(self) -> int:
        """The most GPUs of the pool that it can use."""
        return max(0, self.job.max_gpus - self.kept.size)

    @property
    def runs(self) -> bool:
        """Whether it runs now."""
        return bool(self.own or self.kept)

    @property
    def start_s(self) -> float:
        """Seconds until it would get on: those of a restart, unless it runs."""
        return 0.0 if self.runs else self.job.restart_s

    @property
    def spans(self) -> bool:
        """Whether it can run on several machines."""
        return self.job.spans or self.job.min_gpus < self.job.max_gpus

    @property
    def arrival(self) -> tuple[float, str, int]:
        """Orders jobs by their arrival."""
        return (self.app.joined_s, self.app.id, self.index)

    def fit(self, available: int) -> int:
        """How many of the available GPUs it takes; 0 when they are too few for it."""
        return 0 if available < self.gang else min(self.most, available)

    def rate(self, gpus: int, view: RoundView) -> float:
        """Its speed on a number of GPUs as well placed as this cluster allows, serial = 1."""
        if gpus <= 1:
            return float(gpus)
        return gpus / slowdown(self.job, view.cluster.nearest_level(gpus))


def slowdown(job: JobReport, level: Level) -> float:
    """S of a job at a placement level: its own figures, or the priors."""
    if not job.slowdown:
        return PRIORS[level]
    return job.slowdown[min(level, len(job.slowdown) - 1)]


def pinned(view: RoundView) -> dict[str, Allocation]:
    """GPUs of the pool from which jobs must not be taken, by app: they save no checkpoint."""
    left, out = view.pool, {}
    for name, app in view.apps.items():
        if app.report.pinned:
            out[name] = app.expiring & app.report.pinned & left
            left = left - out[name]
    return out


def takers_of(view: RoundView) -> list[Taker]:
    """All jobs that could use GPUs of the pool, in order of app and list.

    Apps that have not reported sit the round out.
    """
    out: list[Taker] = []
    fixed = pinned(view)
    # Leases may have received GPUs since the round began: what expires may exceed the pool.
    left = Room(view.pool, view.cluster)
    for gpus in fixed.values():
        left.take(gpus)
    for name, app in view.apps.items():
        if not app.answered or app.report.wants <= app.kept.size:
            continue
        stays = fixed.get(name, NOTHING)
        expiring = app.expiring
        if expiring:
            if stays:
                expiring = expiring - stays
            if not left.has(expiring):
                expiring = left.part(expiring)
            left.take(expiring)
        if stays or expiring.size != app.expiring.size:
            app = replace(app, kept=app.kept + stays, expiring=expiring)
        if app.needs:
            out.extend(taker for taker in takers_of_app(app, view) if taker.most)
    return out


def takers_of_app(app: AppView, view: RoundView) -> list[Taker]:
    """The jobs of an app, those included that can use no more than they have."""
    jobs = tuple(app.report.jobs) or unlisted(app, view)
    if not app.kept and not app.expiring:
        return [Taker(app, job, i) for i, job in enumerate(jobs)]
    kept = _dealt(app.kept, jobs, [job.max_gpus for job in jobs], view)
    room = [max(0, job.max_gpus - k.size) for job, k in zip(jobs, kept, strict=True)]
    own = _dealt(app.expiring, jobs, room, view)
    return [Taker(app, job, i, kept[i], own[i]) for i, job in enumerate(jobs)]


def _dealt(
    gpus: Allocation, jobs: Sequence[JobReport], most: Sequence[int], view: RoundView
) -> list[Allocation]:
    """Which job has which of its app's GPUs: as the jobs say, the rest to the first ones."""
    if not gpus:
        return [NOTHING] * len(jobs)
    out = []
    for job, limit in zip(jobs, most, strict=True):
        mine = job.held & gpus
        if mine.size > limit:
            mine = Room(mine, view.cluster).nearest(limit)
        gpus = gpus - mine
        out.append(mine)
    for i, (job, limit) in enumerate(zip(jobs, most, strict=True)):
        count = min(limit, gpus.size)
        if gpus and limit and not out[i] and count >= min(job.min_gpus, limit):
            out[i] = Room(gpus, view.cluster).nearest(count)
            gpus = gpus - out[i]
    return out


def unlisted(app: AppView, view: RoundView) -> tuple[JobReport, ...]:
    """Jobs for an app that lists none: one elastic job, or as many gangs as it wants.

    Their work follows from T_id, which is the app's work over its share of the cluster.
    """
    report = app.report
    share = max(min(view.cluster.gpus * app.weight / max(1.0, app.n_avg), report.wants), 1e-9)
    work = max(0.0, report.t_ideal_s * share - app.attained_gpu_s)
    jobs = 1 if report.gang == 1 else report.wants // report.gang
    size = report.wants if report.gang == 1 else report.gang
    return tuple(
        JobReport(
            id=f"{i}",
            iterations_left=work / jobs,
            serial_iter_s=1.0,
            min_gpus=report.gang,
            max_gpus=size,
            attained_gpu_s=app.attained_gpu_s / jobs,
        )
        for i in range(jobs)
    )


def share_out(takers: Sequence[Taker], gpus: int) -> list[int]:
    """Divide an app's GPUs among its jobs: a gang each, running jobs first, then one by one."""
    counts = [0] * len(takers)
    first = sorted(range(len(takers)), key=lambda i: (not takers[i].runs, takers[i].index))
    for i in first:
        if takers[i].gang <= min(gpus, takers[i].most):
            counts[i] = takers[i].gang
            gpus -= counts[i]
    grew = True
    while gpus and grew:
        grew = False
        for i in first:
            taker = takers[i]
            if gpus and counts[i] and counts[i] < taker.most:
                counts[i] += 1
                gpus -= 1
                grew = True
    return counts
