"""The app side of the simulator: a lean AGENT and the jobs behind it.

It speaks to the arbiter as a live AGENT does: reports, bids, group requests, releases, returns.
Its jobs make progress between events; nothing happens in between.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from themis_ray.core import events as ev
from themis_ray.core.cluster import Allocation, Level, total
from themis_ray.core.commands import (
    GroupRefused,
    LeasesChanged,
    LeaseView,
    RequestReport,
    SendOffer,
)
from themis_ray.core.fairness import Phase, PhaseWork
from themis_ray.core.valuation import median_iter_s
from themis_ray.sim import answers
from themis_ray.sim.demand import demands, gpus_of_use, worst_slowdown
from themis_ray.sim.jobrun import JobRun, JobState
from themis_ray.sim.jobs import TraceApp
from themis_ray.sim.sharing import divide, place_jobs, rate, staying, with_more, without
from themis_ray.sim.tally import Tally
from themis_ray.sim.tuners import PhasePlan, expected_phases, expected_work, plan_of
from themis_ray.sim.world import World

# After GPUs were given back as too few for a gang, ask again so much later.
RETRY_S = 10.0


class SimApp:
    """One app.

    Attributes:
        id: Its name.
        spec: What the trace says of it.
        world: The simulation.
        joined_s: When it arrived.
        jobs: Its jobs.
        active: Those with work left in this phase.
        leases: What the arbiter said last.
        n_avg: Mean number of apps in its life, as last heard.
        cluster_gpus: R_C, as last heard.
        tally: What it has been given.
    """

    def __init__(self, spec: TraceApp, world: World, cluster_gpus: int, now: float) -> None:
        self.id = spec.id
        self.spec = spec
        self.world = world
        self.joined_s = now
        self.belief = world.config.belief(spec.id)
        self.plan_of_phases = plan_of(spec, world.config.seed)
        self.jobs = [self._job(i) for i in range(len(spec.jobs))]
        self.median_iter_s = median_iter_s([job.serial_iter_s for job in spec.jobs])
        self.leases: tuple[LeaseView, ...] = ()
        self.n_avg = 1.0
        self.cluster_gpus = cluster_gpus
        self.tally = Tally(idle_since_s=now)
        self.active: list[JobRun] = []
        self.future: Sequence[Phase] = ()
        self._expect(spec)
        self._groups: dict[str, JobRun] = {}
        self._ending: set[str] = set()
        self._group_serial = 0
        self._phase = -1
        self._told_wants = 0
        self._content_until_s = -math.inf
        # GPUs not under notice at the last plan; None when it has to plan anew in any case.
        self._room: Allocation | None = None
        self._next_phase(now)

    def _job(self, index: int) -> JobRun:
        spec = self.spec.jobs[index]
        profile = self.world.sim.profile(spec.model)
        return JobRun(index, spec, profile, profile.move or self.world.config.move)

    # -- phases ---------------------------------------------------------------------------

    def _expect(self, known: TraceApp) -> None:
        """Reckon with an app of these jobs: its own, as far as it knows how long they are."""
        self.known = known
        self.phase_work_gpu_s, self.phase_gpus = expected_phases(known)
        self.phases = tuple(PhaseWork(w * self.belief, gpus) for w, gpus in expected_work(known))

    def _stopped_early(self, job: JobRun) -> None:
        """A job will not do what it was believed to have left; as a live AGENT, it tells that."""
        jobs = list(self.known.jobs)
        jobs[job.index] = replace(job.spec, iterations=job.spec.iterations - job.beyond)
        self._expect(replace(self.known, jobs=tuple(jobs)))

    def _next_phase(self, now: float) -> None:
        self._phase += 1
        plan: PhasePlan = self.plan_of_phases[self._phase]
        self.active = []
        for index, iterations in plan.runs:
            job = self.jobs[index]
            job.state, job.left, job.stopped_s = JobState.WAITING, iterations, now
            if self.spec.tuner == "curve_stopping":
                job.beyond = max(0.0, job.spec.iterations - iterations)
            self.active.append(job)
        self.future = [
            Phase(len(later.runs), later.runs[0][1])
            for later in self.plan_of_phases[self._phase + 1 :]
        ]
        self._content_until_s = -math.inf

    # -- what the arbiter says --------------------------------------------------------------

    def join(self, now: float) -> ev.AppJoined:
        """Register."""
        return ev.AppJoined(self.id, self._report(now, 0), self.spec.weight)

    def _report(self, now: float, gpus: int) -> ev.AppReport:
        """How it stands with some GPUs; what it wants is known to the arbiter then."""
        report = answers.report(self, now, gpus)
        self._told_wants = report.wants
        return report

    def report(self, command: RequestReport, now: float) -> ev.Reported:
        """Answer how the app stands."""
        self.n_avg, self.cluster_gpus = command.n_avg, command.cluster_gpus
        return ev.Reported(self.id, self._report(now, command.kept.size), command.round_id)

    def bid(self, command: SendOffer, now: float) -> ev.BidReceived:
        """Answer an offer."""
        self.n_avg, self.cluster_gpus = command.n_avg, command.cluster_gpus
        return ev.BidReceived(command.round_id, answers.bid(self, command, now))

    def leases_changed(self, command: LeasesChanged, now: float) -> None:
        """The leases are now these."""
        self.leases = command.leases
        # A renewal: the same GPUs until later.
        if (
            self._room is None
            or any(x.final and x.held for x in self.leases)
            or total([x.held for x in self.leases]) != self._room
        ):
            self.plan(now)

    def refused(self, command: GroupRefused, now: float) -> None:
        """A group cannot be had: its job waits on."""
        job = self._groups.pop(command.group, None)
        if job is not None:
            self._room = None
            self._unplace(job)
            self.world.engine.at(now + 1.0, self._replan)

    def group_created(self, group: str, now: float) -> None:
        """A job starts on its GPUs."""
        job = self._groups.get(group)
        if job is None:
            return
        level = self.world.cluster.level(job.allocation)
        job.state = JobState.RUNNING
        job.s = job.profile.s(job.allocation.size, level)
        job.rate = job.rate_on(job.allocation.size, level)
        job.created_s = job.started_s = now
        job.from_s = now + job.move.start_s
        job.version += 1
        self.tally.started(now)
        self._go_on(job)
        if job.leave_s is not None:
            self._arrange_leaving(job, now)

    def group_removed(self, group: str, now: float) -> None:
        """A group is being removed; if its job did not know, it loses what it has not saved."""
        job = self._groups.get(group)
        if job is None:
            return
        self._room = None
        if job.state is JobState.PLACED:
            del self._groups[group]
            self._unplace(job)
        else:
            since = job.pending + job.progress(now)
            every = self.world.config.checkpoint_every_s * job.rate
            job.keep(math.floor(since / every) * every)
            self.tally.preemptions += 1
            self._part(job, now)
            job.state = JobState.WAITING
            self._content_until_s = -math.inf
        self._ending.add(group)

    def group_gone(self, group: str, now: float) -> None:
        """A group is gone: its GPUs can be used again."""
        self._ending.discard(group)
        self.plan(now)

    # -- how it stands --------------------------------------------------------------------

    @property
    def content(self) -> bool:
        """Whether it has just given GPUs back, and asks for no more than it uses."""
        return self.world.engine.now < self._content_until_s

    def demands(self) -> list[tuple[JobRun, int]]:
        """How many GPUs the app would give each job now, if it had them."""
        return demands(self.active, self.world.engine.now, content=self.content)

    def wants(self) -> int:
        """GPUs in total that the app can use now."""
        most = gpus_of_use(self.active, self.world.engine.now, content=self.content)
        return min(self.cluster_gpus, most)

    def slowdown(self, gpus: int, level: Level) -> float:
        """S of a job on ``gpus`` GPUs: the worst over the app's models."""
        return worst_slowdown(self.active, gpus, level, self.world.slot_gpus)

    # -- planning -------------------------------------------------------------------------

    def _replan(self) -> None:
        self.plan(self.world.engine.now)

    def plan(self, now: float) -> None:
        """Bring jobs and leases into line."""
        if not self.active:
            return
        idle = self._decide_who_leaves(now)
        if idle:
            waiting = [job for job in self.active if job.state is JobState.WAITING]
            if len(waiting) > 1:
                waiting.sort(
                    key=lambda job: (-job.believed_left(now) * job.spec.serial_iter_s, job.index)
                )
            coming = sum(lease.pending.size for lease in self.leases)
            if coming:
                # GPUs come bit by bit: no small job takes those that a gang is about to need.
                waiting = [job for job, _ in divide(waiting, idle.size + coming)]
            for job, allocation in place_jobs(waiting, idle, self.world.cluster):
                idle = idle - allocation
                self._request(job, allocation)
            if self._awaits_more(idle):
                self._room = None  # what comes, or comes no more, is to be looked at
            elif idle and not self._ending and not self._comes_of_use(idle, now):
                self._give_back(idle, now)
        if self.wants() > self._told_wants:
            self._tell(now)

    def _decide_who_leaves(self, now: float) -> Allocation:
        """See to the jobs whose GPUs are lost; returns the GPUs that are kept and idle."""
        room = total([lease.held for lease in self.leases if not lease.final])
        self._room = room
        groups = [job for job in self.active if job.state in (JobState.RUNNING, JobState.PLACED)]
        if not groups:
            return room
        keep, idle = staying(groups, room)
        for job in groups:
            name = job.group
            if name in keep:
                if job.leave_s is not None:
                    job.leave_s = None
                    job.version += 1
                    self._go_on(job)
            elif job.state is JobState.PLACED:
                del self._groups[name]
                self.world.send(ev.GroupReleased(self.id, name))
                self._unplace(job)
            elif job.leave_s is None:
                ends = [x.expires_s for x in self.leases if x.final and x.held]
                job.leave_s = max([now, *ends])
                self._arrange_leaving(job, now)
        return idle

    def _request(self, job: JobRun, allocation: Allocation) -> None:
        self._group_serial += 1
        # Not the job's own name: that may have a "/", at which the simulation finds the app.
        name = f"{self.id}/{job.index}#{self._group_serial}"
        job.state, job.group, job.allocation = JobState.PLACED, name, allocation
        job.leave_s = None
        self._groups[name] = job
        self.world.send(ev.GroupRequested(self.id, name, allocation))

    def _unplace(self, job: JobRun) -> None:
        job.state, job.group, job.allocation = JobState.WAITING, "", Allocation()
        job.leave_s = None
        self._content_until_s = -math.inf

    def _awaits_more(self, idle: Allocation) -> bool:
        """Whether idle GPUs are a part of a gang of which the rest is about to come."""
        if not idle:
            return False
        coming = sum(lease.pending.size for lease in self.leases)
        waiting = [job for job in self.active if job.state is JobState.WAITING]
        return bool(coming and divide(waiting, idle.size + coming))

    def _comes_of_use(self, idle: Allocation, now: float) -> bool:
        """Whether idle GPUs are for a job that leaves its own, which one may now be made to."""
        if any(job.state is JobState.SAVING or job.leave_s is not None for job in self.active):
            return True
        able = [
            job
            for job in self.active
            if job.state is JobState.RUNNING and job.allocation.size < job.spec.max_gpus
        ]
        if not able:
            return False
        job = max(able, key=lambda job: (job.left_at(now) / job.rate, -job.index))
        return self._grows(job, idle, now)

    def _grows(self, job: JobRun, idle: Allocation, now: float) -> bool:
        """Have a job move to its own and the idle GPUs, if it gets further that way."""
        cluster = self.world.cluster
        faster = rate(job, with_more(job, idle, cluster), cluster)
        lease_s = max((x.expires_s for x in self.leases if not x.final), default=now) - now
        left_s = job.left_at(now) / job.rate
        lasts_s = min(lease_s, left_s)
        if (lasts_s - job.move.whole_s) * faster <= lasts_s * job.rate:
            if not any(other.state is JobState.WAITING for other in self.active):
                # Not within this lease; when the job ends before the lease does, not at all.
                self._content_until_s = now + lease_s if lease_s < left_s else math.inf
            return False
        job.growing = True
        self._save(job, job.version)
        return True

    def _give_back(self, idle: Allocation, now: float) -> None:
        """Return GPUs that are of no use; the report before it lowers the demand."""
        if now >= self._content_until_s:
            self._content_until_s = now + RETRY_S
            self.world.engine.at(now + RETRY_S, self._replan)
        self.leases = without(self.leases, idle)
        self._room = None
        self._tell(now)
        self.world.send(ev.GpusReturned(self.id, idle))

    def _tell(self, now: float) -> None:
        held = sum(lease.held.size for lease in self.leases if not lease.final)
        self.world.send(ev.Reported(self.id, self._report(now, held)))

    # -- jobs -----------------------------------------------------------------------------

    def _go_on(self, job: JobRun) -> None:
        """Set the end of a job that may stay."""
        if job.state is JobState.RUNNING:
            self.world.engine.at(job.finish_s(), self._finish, job, job.version)

    def _arrange_leaving(self, job: JobRun, now: float) -> None:
        """A job has to be gone at ``leave_s``, with a checkpoint if it has done anything."""
        assert job.leave_s is not None
        if job.finish_s() <= job.leave_s:
            return
        save_s = max(now, job.leave_s - job.move.checkpoint_s)
        if save_s <= job.from_s:  # it would not get beyond its start
            self._depart(job, now)
        else:
            self.world.engine.at(save_s, self._save, job, job.version)

    def _save(self, job: JobRun, version: int) -> None:
        """A job stops and writes a checkpoint."""
        if version != job.version:
            return
        now = self.world.engine.now
        job.pending = job.progress(now)
        job.state = JobState.SAVING
        job.version += 1
        if job.pending and job.move.checkpoint_s:
            self.world.engine.at(now + job.move.checkpoint_s, self._leave, job, job.version)
        else:
            self._leave(job, job.version)

    def _leave(self, job: JobRun, version: int) -> None:
        """A job gives up its GPUs before its end."""
        if version != job.version:
            return
        now = self.world.engine.now
        self._depart(job, now)
        self.plan(now)

    def _depart(self, job: JobRun, now: float) -> None:
        job.keep(job.pending)
        self.tally.moved(job)
        self._release(job, now)
        job.state = JobState.WAITING
        self._content_until_s = -math.inf

    def _finish(self, job: JobRun, version: int) -> None:
        """A job has done its phase."""
        if version != job.version:
            return
        now = self.world.engine.now
        job.keep(job.left)
        if job.beyond:
            self._stopped_early(job)
        job.left = job.beyond = 0.0
        if len(self.active) == 1 and self._phase + 1 == len(self.plan_of_phases):
            self._end(job, now)
            return
        self._release(job, now)
        job.state = JobState.HELD
        self.active.remove(job)
        if not self.active:
            self._next_phase(now)
        self.plan(now)

    def _end(self, job: JobRun, now: float) -> None:
        """The last job is done: the arbiter takes back all that is left."""
        self._part(job, now)
        job.state = JobState.DONE
        self.active = []
        self.world.send(ev.AppLeft(self.id))
        self.world.finished(self, now)

    def _release(self, job: JobRun, now: float) -> None:
        self._ending.add(job.group)
        self.world.send(ev.GroupReleased(self.id, job.group))
        self._part(job, now)

    def _part(self, job: JobRun, now: float) -> None:
        """A job is off its GPUs: count what it had."""
        self.tally.parted(job, now)
        self.world.used(self, job, now)
        del self._groups[job.group]
        job.part(now)
