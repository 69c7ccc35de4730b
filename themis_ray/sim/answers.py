"""What a simulated app tells the arbiter: reports, with its jobs, and bids."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast, overload

from themis_ray.agent.bidder import bid_table
from themis_ray.core import events as ev
from themis_ray.core.bids import BidTable
from themis_ray.core.cluster import Level
from themis_ray.core.commands import SendOffer
from themis_ray.core.fairness import ideal_time_s
from themis_ray.sim.jobrun import JobRun, JobState
from themis_ray.sim.outlook import SimOutlook
from themis_ray.sim.tuners import curve_of

if TYPE_CHECKING:
    from themis_ray.sim.app import SimApp


class LazyJobs(Sequence[ev.JobReport]):
    """The jobs of a report, worked out when a policy looks at them: many never do.

    Policies look in the round that the report was made for, which takes no virtual time, so what
    they see is what was true when the report was made.
    """

    __slots__ = ("_app", "_jobs", "_now")

    def __init__(self, app: SimApp, now: float) -> None:
        self._app = app
        self._now = now
        self._jobs: tuple[ev.JobReport, ...] | None = None

    def _made(self) -> tuple[ev.JobReport, ...]:
        if self._jobs is None:
            app = self._app
            self._jobs = tuple(
                job_report(app, job, most, self._now) for job, most in app.demands() if most
            )
        return self._jobs

    def __len__(self) -> int:
        return len(self._made())

    def __iter__(self) -> Iterator[ev.JobReport]:
        return iter(self._made())

    @overload
    def __getitem__(self, index: int) -> ev.JobReport: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ev.JobReport]: ...
    def __getitem__(self, index: Any) -> Any:
        return self._made()[index]


def job_report(app: SimApp, job: JobRun, max_gpus: int, now: float) -> ev.JobReport:
    """One job, as its AGENT would see it; ``max_gpus`` is what it would be given now."""
    belief = app.belief
    runs = job.state in (JobState.RUNNING, JobState.SAVING)
    if job.curve is None:
        job.curve = curve_of(app.id, job.spec, app.world.config.seed)
    spec, progress = job.spec, job.progress(now)
    done = job.done + job.pending + progress
    left = job.left - job.pending - progress + job.beyond
    return ev.JobReport(
        id=spec.id,
        iterations_left=max(0.0, left * belief),
        serial_iter_s=spec.serial_iter_s,
        min_gpus=min(spec.min_gpus, max_gpus),
        max_gpus=max_gpus,
        iterations_done=done,
        attained_gpu_s=job.attained(now),
        model=spec.model,
        loss_decrease=job.curve.decrease(done),
        held=job.allocation,
        started_ago_s=None if job.started_s is None else now - job.started_s,
        waited_s=0.0 if runs else now - job.stopped_s,
        skew=job.profile.skew if job.started_s is not None else None,
        slowdown=job.slowdowns,
        restart_s=job.move.whole_s,
        spans=True,
    )


def outlook(app: SimApp, now: float) -> SimOutlook:
    """What is left of an app."""
    active = app.active
    jobs = [(max(0.0, job.believed_left(now)), job.spec.serial_iter_s) for job in active]
    return SimOutlook(
        jobs=jobs,
        trial_min=min((job.spec.min_gpus for job in active), default=1),
        trial_max=max((job.spec.max_gpus for job in active), default=1),
        elapsed_s=now - app.joined_s,
        t_ideal_s=t_ideal_s(app),
        slowdown=app.slowdown,
        restart_s=max((job.move.whole_s for job in active), default=0.0),
        future=app.future,
        median_iter_s=app.median_iter_s,
        belief=app.belief,
    )


def t_ideal_s(app: SimApp) -> float:
    """T_id as the app reckons it, in seconds from its start."""
    return ideal_time_s(
        app.phase_work_gpu_s,
        app.phase_gpus,
        cluster_gpus=app.cluster_gpus,
        n_avg=app.n_avg,
        ideal=app.world.config.ideal,
        weight=app.spec.weight,
    )


def report(app: SimApp, now: float, gpus: int) -> ev.AppReport:
    """The report of an app that goes on with ``gpus`` GPUs."""
    ideal_s, wants = t_ideal_s(app), app.wants()
    shared_s = math.inf
    if gpus and len(app.active) == 1 and not app.future:
        shared_s = now - app.joined_s + _lone_job_left_s(app, app.active[0], gpus, now)
    elif gpus:
        view = outlook(app, now)
        shared_s = view.elapsed_s + view.time_left_s(gpus)
    return ev.AppReport(
        r=shared_s / ideal_s,
        t_shared_s=shared_s,
        t_ideal_s=ideal_s,
        wants=wants,
        gang=_gang(app),
        jobs=cast(tuple[ev.JobReport, ...], LazyJobs(app, now)),
        phases=app.phases,
        steady=_steady(app, wants),
    )


def _lone_job_left_s(app: SimApp, job: JobRun, gpus: int, now: float) -> float:
    """Equation 1: what :meth:`SimOutlook.time_left_s` says of one job, without the detour."""
    if gpus < job.spec.min_gpus:
        return math.inf
    usable = min(gpus, job.spec.max_gpus)
    work = max(0.0, job.believed_left(now)) * job.spec.serial_iter_s
    return work * app.slowdown(usable, Level.MACHINE) / usable * app.belief


def _gang(app: SimApp) -> int:
    """The fewest GPUs that would let one more job run."""
    if len(app.active) == 1:
        return app.active[0].spec.min_gpus
    waiting = [job.spec.min_gpus for job in app.active if job.state is JobState.WAITING]
    return min(waiting or [job.spec.min_gpus for job in app.active], default=1)


def _steady(app: SimApp, wants: int) -> bool:
    """Whether it is a last gang, which wants all of its GPUs until it ends.

    An app of several jobs, and one that has given GPUs back, may come to want other numbers
    without a word.
    """
    if len(app.active) != 1 or app.future:
        return False
    spec = app.active[0].spec
    return wants == spec.max_gpus == spec.min_gpus


def bid(app: SimApp, offer: SendOffer, now: float) -> BidTable:
    """The answer to an offer."""
    own = [
        job.allocation
        for job in app.active
        if job.state in (JobState.PLACED, JobState.RUNNING) and job.allocation <= offer.expiring
    ]
    needs = max(0, app.wants() - offer.kept.size)
    return bid_table(app.id, outlook(app, now), offer, own, needs)
