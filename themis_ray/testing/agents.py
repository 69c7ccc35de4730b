"""An app in memory: jobs that need so many GPU-seconds, and an AGENT that answers the arbiter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from themis_ray.core import events as ev
from themis_ray.core.bids import BidRow, BidTable
from themis_ray.core.cluster import NOTHING, Allocation
from themis_ray.core.commands import (
    GroupRefused,
    LeasesChanged,
    LeaseView,
    RequestReport,
    SendOffer,
)
from themis_ray.testing.loop import Told

Releases = Literal["at once", "at expiry", "never"]


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job of an app.

    Attributes:
        work_gpu_s: GPU-seconds until it is done.
        gpus: It runs on exactly so many GPUs, on one machine.
    """

    work_gpu_s: float
    gpus: int = 1


@dataclass(slots=True)
class _Job:
    """A job's progress; ``group`` is empty while it waits."""

    spec: JobSpec
    left_gpu_s: float
    group: str = ""
    allocation: Allocation = NOTHING
    since_s: float | None = None
    ready: bool = False
    leaving: bool = False

    @property
    def done_s(self) -> float | None:
        """When it will be done; None while it does not run."""
        if self.since_s is None:
            return None
        return self.since_s + self.left_gpu_s / self.spec.gpus

    def left_at(self, now: float) -> float:
        """GPU-seconds that are left; never quite none, until it is found to be done."""
        if self.since_s is None:
            return self.left_gpu_s
        return max(1e-9, self.left_gpu_s - (now - self.since_s) * self.spec.gpus)

    def stop(self, now: float) -> None:
        """Bring the work left up to ``now``; the job does not run from here on."""
        if self.since_s is not None:
            self.left_gpu_s = max(0.0, self.left_gpu_s - (now - self.since_s) * self.spec.gpus)
            self.since_s = None


@dataclass
class SimpleAgent:
    """An app with jobs of fixed size, for tests and for trying policies out.

    Attributes:
        app: Its name.
        jobs: Its jobs, in order of precedence. It leaves when all are done.
        joins_s: When it registers.
        weight: Its share relative to the others.
        answers_after_s: How long it takes to report and to bid.
        silent: It answers neither report requests nor offers.
        bad_bids: It bids for more GPUs than it was offered.
        releases: When it gives up the groups of a lost lease: ``at once``, at the lease's end, or
            never, so that the arbiter has to take them.
        pinned: Its jobs cannot be preempted.
        restart_s: What it reckons that moving all of its jobs costs.
    """

    app: str
    jobs: Sequence[JobSpec]
    joins_s: float = 0.0
    weight: float = 1.0
    answers_after_s: float = 0.0
    silent: bool = False
    bad_bids: bool = False
    releases: Releases = "at once"
    pinned: bool = False
    restart_s: float = 1.0
    left_s: float | None = field(default=None, init=False)
    n_avg: float = field(default=1.0, init=False)
    cluster_gpus: int = field(default=1, init=False)
    leases: tuple[LeaseView, ...] = field(default=(), init=False)
    _jobs: list[_Job] = field(default_factory=list, init=False)
    _groups: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._jobs = [_Job(spec, spec.work_gpu_s) for spec in self.jobs]

    # -- how it stands ----------------------------------------------------------------------

    @property
    def live(self) -> list[_Job]:
        """Jobs that are not done."""
        return [job for job in self._jobs if job.left_gpu_s > 0]

    @property
    def wants(self) -> int:
        """GPUs that it can use."""
        return sum(job.spec.gpus for job in self.live)

    @property
    def running(self) -> int:
        """GPUs on which jobs make progress now."""
        return sum(job.spec.gpus for job in self._jobs if job.since_s is not None)

    def work_left_gpu_s(self, now: float) -> float:
        """GPU-seconds that are left."""
        return sum(
            job.left_gpu_s - (0.0 if job.since_s is None else (now - job.since_s) * job.spec.gpus)
            for job in self._jobs
        )

    def t_ideal_s(self) -> float:
        """Its finish time alone on a 1/N share (Equation 1)."""
        work = sum(job.work_gpu_s for job in self.jobs)
        demand = min(self.cluster_gpus, sum(job.gpus for job in self.jobs))
        return work / max(1, demand) * self.n_avg

    def r(self, gpus: int, now: float, restart_s: float = 0.0) -> float:
        """Its finish-time fairness with a number of GPUs from now on."""
        if gpus < min((job.spec.gpus for job in self.live), default=1):
            return math.inf
        usable = max(1, min(gpus, self.wants))
        left_s = max(0.0, self.work_left_gpu_s(now)) / usable + restart_s
        return max(1e-9, (now - self.joins_s + left_s) / self.t_ideal_s())

    def report(self, gpus: int, now: float) -> ev.AppReport:
        """The report for when it holds a number of GPUs."""
        r = self.r(gpus, now)
        held = [job.allocation for job in self._jobs if job.group and not job.leaving]
        return ev.AppReport(
            r=r,
            t_shared_s=r * self.t_ideal_s(),
            t_ideal_s=self.t_ideal_s(),
            wants=self.wants,
            gang=min((job.spec.gpus for job in self.live), default=1),
            jobs=tuple(
                self._job_report(i, job, now)
                for i, job in enumerate(self._jobs)
                if job.left_gpu_s > 0
            ),
            pinned=_sum(held) if self.pinned else NOTHING,
        )

    def _job_report(self, index: int, job: _Job, now: float) -> ev.JobReport:
        left, held = job.left_at(now), job.allocation if job.since_s is not None else NOTHING
        return ev.JobReport(
            id=f"{self.app}/{index}",
            iterations_left=left,
            serial_iter_s=1.0,
            min_gpus=job.spec.gpus,
            max_gpus=job.spec.gpus,
            iterations_done=job.spec.work_gpu_s - left,
            held=held,
        )

    # -- the loop's side ----------------------------------------------------------------------

    def join(self, now: float) -> ev.AppJoined:
        """Register."""
        return ev.AppJoined(self.app, self.report(0, now), self.weight)

    def hear(self, command: Told, now: float) -> Sequence[ev.Event]:
        """Answer the arbiter."""
        match command:
            case RequestReport():
                self.n_avg, self.cluster_gpus = command.n_avg, command.cluster_gpus
                if self.silent:
                    return ()
                report = self.report(command.kept.size, now)
                return (ev.Reported(self.app, report, command.round_id),)
            case SendOffer():
                if self.silent:
                    return ()
                return (ev.BidReceived(command.round_id, self._bid(command, now)),)
            case LeasesChanged():
                self.leases = command.leases
                return self._rearrange(now)
            case GroupRefused():
                for job in self._jobs:
                    if job.group == command.group:
                        self._forget(job, now)
                return ()

    def group_ready(self, group: str, now: float) -> Sequence[ev.Event]:
        """A job starts."""
        for job in self._jobs:
            if job.group == group and not job.leaving:
                job.ready, job.since_s = True, now
        return ()

    def group_removed(self, group: str, now: float) -> Sequence[ev.Event]:
        """A job has lost its GPUs; the others move up."""
        for job in self._jobs:
            if job.group == group:
                self._forget(job, now)
        return self._rearrange(now)

    def wakeup_s(self) -> float | None:
        """When a job will be done, or has to leave."""
        done = [job.done_s for job in self._jobs if job.done_s is not None]
        return min([*done, *self._leave_times()], default=None)

    def wake(self, now: float) -> Sequence[ev.Event]:
        """Give up what is done or has to leave."""
        out: list[ev.Event] = []
        for job in self._jobs:
            if job.done_s is not None and job.done_s <= now:
                job.left_gpu_s, job.since_s = 0.0, None
                out.append(self._release(job, now))
        if not self.live and self.left_s is None:
            self.left_s = now
            return (ev.AppLeft(self.app),)
        if out:
            out.insert(0, ev.Reported(self.app, self.report(self._held().size, now)))
        if any(time_s <= now for time_s in self._leave_times()):
            out.extend(self._release(job, now) for job in self._losing())
        return out

    # -- leases -------------------------------------------------------------------------------

    def _held(self, *, final: bool = False) -> Allocation:
        return _sum([x.held for x in self.leases if final or not x.final])

    def _losing(self) -> list[_Job]:
        """Jobs whose GPUs are not covered by leases that go on."""
        room, out = self._held(), []
        for job in self._jobs:
            if not job.group or job.leaving:
                continue
            if job.allocation <= room:
                room = room - job.allocation
            else:
                out.append(job)
        return out

    def _leave_times(self) -> list[float]:
        if self.releases != "at expiry" or not self._losing():
            return []
        return [max((x.expires_s for x in self.leases if x.final), default=-math.inf)]

    def _rearrange(self, now: float) -> list[ev.Event]:
        """Leave what is lost, start waiting jobs on what is idle, give back what is no use."""
        if self.left_s is not None:
            return []
        out: list[ev.Event] = []
        losing = self._losing()
        if self.releases == "at once":
            out.extend(self._release(job, now) for job in losing)
        idle = self._held()
        for job in self._jobs:
            if job.group and job not in losing:
                idle = idle.minus(job.allocation)
        for job in self.live:
            if job.group:
                continue
            fits = [(count, machine) for machine, count in idle.items() if count >= job.spec.gpus]
            if fits:
                job.allocation = Allocation({min(fits)[1]: job.spec.gpus})
                idle = idle - job.allocation
                self._groups += 1
                job.group = f"{self.app}-g{self._groups}"
                out.append(ev.GroupRequested(self.app, job.group, job.allocation))
        if idle and all(job.group for job in self.live):
            out.append(ev.Reported(self.app, self.report(self._held().size, now)))
            out.append(ev.GpusReturned(self.app, idle))
        return out

    def _release(self, job: _Job, now: float) -> ev.Event:
        event = ev.GroupReleased(self.app, job.group)
        job.stop(now)
        if job.ready:
            job.leaving = True
        else:
            self._forget(job, now)  # it may never have existed: nobody will say that it is gone
        return event

    def _forget(self, job: _Job, now: float) -> None:
        job.stop(now)
        job.group, job.allocation, job.ready, job.leaving = "", NOTHING, False, False

    # -- bids ---------------------------------------------------------------------------------

    def _bid(self, offer: SendOffer, now: float) -> BidTable:
        r_nothing = self.r(offer.kept.size, now)
        if self.bad_bids:
            greedy = Allocation({m: c + 1 for m, c in offer.offer.items()})
            return BidTable(self.app, r_nothing, (BidRow(1.0, greedy),))
        kept, todo = offer.kept.size, []
        # Jobs that run on what is offered come first: they may stay where they are.
        for job in sorted(
            self.live, key=lambda j: not (j.group and j.allocation <= offer.expiring)
        ):
            if kept >= job.spec.gpus and not (job.group and job.allocation <= offer.expiring):
                kept -= job.spec.gpus
            else:
                todo.append(job)
        rows: list[BidRow] = []
        largest = max(offer.offer.values(), default=0)
        own, parts, size = NOTHING, [], 0
        for job in todo:
            size += job.spec.gpus
            if size > offer.offer.size or job.spec.gpus > largest:
                break
            if job.group and own + job.allocation <= offer.expiring:
                own = own + job.allocation
            else:
                parts.append(job.spec.gpus)
            r = self.r(offer.kept.size + size, now, self.restart_s * sum(parts) / size)
            rows.append(BidRow(r, own, tuple(sorted(parts, reverse=True))))
        return BidTable(self.app, r_nothing, tuple(rows))


def _sum(allocations: Sequence[Allocation]) -> Allocation:
    total = NOTHING
    for allocation in allocations:
        total = total + allocation
    return total
