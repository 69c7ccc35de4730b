"""The AGENT's state: trials, leases, and what follows from them. No I/O, no clock.

The Tune scheduler tells it what trials do, the session hands it what the arbiter says, and both
send on the events that it returns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from themis_ray.agent.bidder import Outlook, bid_table
from themis_ray.agent.split import place, staying, total
from themis_ray.agent.trials import IterationTimer, TrialPhase, TrialState
from themis_ray.core import events as ev
from themis_ray.core.cluster import NOTHING, Allocation, Cluster, Level, Machine
from themis_ray.core.commands import (
    GroupRefused,
    LeasesChanged,
    LeaseView,
    RequestReport,
    SendOffer,
)
from themis_ray.core.explain import Reason
from themis_ray.core.fairness import Ideal, ideal_time_s
from themis_ray.core.slowdown import Signature, SlowdownTable

# What an iteration is taken to last before the first has been timed. Any figure will do: it
# scales T_sh and T_id alike.
UNKNOWN_ITER_S = 1.0
# An app gives GPUs back when they have been idle for so long: trials start within this time.
IDLE_BEFORE_RETURN_S = 1.5
# How often the arbiter is told r unasked, for those who watch.
TELL_EVERY_S = 2.0
# Growing a running trial costs a restart; it is done when the lease lasts so many times longer.
GROW_WORTH = 3.0


@dataclass(slots=True)
class AgentSettings:
    """An app's own options; see :class:`themis_ray.tune.scheduler.ThemisScheduler`."""

    app: str
    weight: float = 1.0
    trial_min: int = 1
    trial_max: int = 1
    ideal: Ideal = "paper"
    preempt_without_checkpoint: bool = False


@dataclass(slots=True)
class Agent:
    """One app, as the arbiter's counterpart.

    Attributes:
        settings: The app's options.
        started_s: When the app began, on the caller's clock.
        cluster_gpus: R_C, as last heard.
        n_avg: Mean number of apps, as last heard.
        to_come: Trials that the search will still create.
        concurrency: The most trials that the search runs at once.
        lease_s: How long a full lease is, as last heard.
    """

    settings: AgentSettings
    started_s: float
    cluster_gpus: int = 1
    n_avg: float = 1.0
    to_come: int = 0
    concurrency: float = math.inf
    lease_s: float = math.inf
    trials: dict[str, TrialState] = field(default_factory=dict)
    leases: tuple[LeaseView, ...] = ()
    reason: Reason | None = None
    racks: dict[str, str] = field(default_factory=dict)
    slowdowns: dict[str, SlowdownTable] = field(default_factory=dict)
    _peak: int = 1
    _told_wants: int | None = None
    _told_s: float = -math.inf
    _idle_since_s: float | None = None
    # After idle GPUs were given back: ask for no more than is used until a trial asks again.
    _content: bool = False

    # -- trials ---------------------------------------------------------------------------

    def add_trial(self, trial_id: str, iterations_total: float, model: str = "") -> TrialState:
        """Tune has a trial (again)."""
        known = self.trials.get(trial_id)
        if known is not None:
            known.phase, known.allocation, known.group = TrialPhase.IDLE, NOTHING, ""
            return known
        table = self.slowdowns.setdefault(model, SlowdownTable())
        trial = TrialState(trial_id, len(self.trials), iterations_total, IterationTimer(table))
        trial.model, trial.idle_since_s = model, self.started_s
        self.trials[trial_id] = trial
        return trial

    def trial_waits(self, trial_id: str, group: str) -> None:
        """Tune has staged a trial: it waits for a placement group of that name."""
        trial = self.trials[trial_id]
        trial.phase, trial.group, trial.allocation = TrialPhase.WAITING, group, NOTHING
        self._content = False

    def trial_ran(
        self, trial_id: str, now: float, iterations_done: float, iter_s: float | None
    ) -> bool:
        """A trial has reported.

        Args:
            trial_id: Which.
            now: The time.
            iterations_done: In its whole life.
            iter_s: Seconds of one iteration, as measured in the trial.

        Returns:
            Whether it is to pause now.
        """
        trial = self.trials[trial_id]
        if trial.phase is TrialPhase.PLACED:
            trial.phase = TrialPhase.RUNNING
        trial.reports_in_lease += 1
        if trial.reports_in_lease == 1 and trial.leases and iter_s:
            restart = now - trial.granted_s - iter_s
            if 0 < restart < 600:
                trial.timer.restart_s = 0.7 * trial.timer.restart_s + 0.3 * restart
        elif iter_s:
            # The first iterations of a lease are slow (caches, autotuning): passed over.
            trial.timer.record(iter_s, self.signature(trial.allocation))
        trial.iterations_done = iterations_done
        return trial.leave_by_s is not None

    def trial_left(self, trial_id: str, now: float, *, done: bool) -> None:
        """A trial gives up its GPUs: paused, or over."""
        trial = self.trials.get(trial_id)
        if trial is None:
            return
        if trial.allocation and trial.granted_s:
            trial.attained_gpu_s += trial.allocation.size * max(0.0, now - trial.granted_s)
        trial.phase = TrialPhase.DONE if done else TrialPhase.IDLE
        trial.allocation, trial.leave_by_s, trial.group = NOTHING, None, ""
        trial.reports_in_lease, trial.idle_since_s = 0, now

    def trial_leaves(self, trial_id: str) -> None:
        """A trial has been told to pause; it keeps its GPUs until it has."""
        trial = self.trials[trial_id]
        if trial.holds:
            trial.phase = TrialPhase.LEAVING

    def overdue(self, now: float) -> list[str]:
        """Trials that should have paused by now."""
        return [
            t.id
            for t in self.trials.values()
            if t.holds and t.leave_by_s is not None and t.leave_by_s <= now
        ]

    # -- what the arbiter says --------------------------------------------------------------

    def leases_changed(self, command: LeasesChanged) -> None:
        """The leases are now these."""
        if {x.id for x in command.leases} - {x.id for x in self.leases}:
            self._content = False  # a new lease is a new chance to grow
        self.leases, self.reason = command.leases, command.reason

    def refused(self, command: GroupRefused) -> None:
        """A placement group cannot be had: its trial waits on."""
        for trial in self.trials.values():
            if trial.group == command.group and trial.phase is TrialPhase.PLACED:
                trial.phase, trial.allocation = TrialPhase.WAITING, NOTHING
                trial.leave_by_s = None

    def report(self, command: RequestReport, now: float) -> ev.Reported:
        """Answer how the app stands."""
        self.n_avg, self.cluster_gpus = command.n_avg, command.cluster_gpus
        if not self.held() <= command.kept:
            self._content = False  # its leases are renewed: the time to ask for more, if it can be
        return ev.Reported(
            self.settings.app, self.state_of_app(now, command.kept.size), command.round_id
        )

    def bid(self, command: SendOffer, now: float) -> ev.BidReceived:
        """Answer an offer."""
        self.n_avg, self.cluster_gpus = command.n_avg, command.cluster_gpus
        self.lease_s = command.lease_s
        self.racks.update(command.racks)
        own = [
            t.allocation
            for t in self._by_precedence()
            if t.holds and t.allocation <= command.expiring
        ]
        needs = max(0, self.wants() - command.kept.size)
        table = bid_table(self.settings.app, self.outlook(now), command, own, needs)
        return ev.BidReceived(command.round_id, table)

    # -- how it stands --------------------------------------------------------------------

    def wants(self) -> int:
        """GPUs in total that the app can use now."""
        active = [t for t in self.trials.values() if t.live and t.phase is not TrialPhase.IDLE]
        used = sum(t.allocation.size for t in active if t.holds)
        if self._content:
            return used
        more = self.to_come and min(self.to_come, max(0.0, self.concurrency - len(active)))
        wants = int(more) * self.settings.trial_max
        for trial in active:
            # A running trial would have to restart to use more: it asks only if that pays.
            grows = trial.phase is not TrialPhase.RUNNING or self._worth_growing(trial)
            wants += self.settings.trial_max if grows else trial.allocation.size
        return max(used, min(wants, max(1, self.cluster_gpus)))

    def outlook(self, now: float) -> Outlook:
        """What is left of the app."""
        live = [t for t in self.trials.values() if t.live]
        median = self._median_iter_s()
        jobs = [(t.iterations_left, t.timer.serial_iter_s or median) for t in live]
        coming = [(self._median_total(), median)] * self.to_come
        restart = max((t.timer.restart_s for t in live), default=0.0)
        return Outlook(
            jobs=[*jobs, *coming],
            trial_min=self.settings.trial_min,
            trial_max=self.settings.trial_max,
            elapsed_s=max(0.0, now - self.started_s),
            t_ideal_s=self.t_ideal_s(),
            slowdown=self._slowdown,
            restart_s=restart,
        )

    def t_ideal_s(self) -> float:
        """T_id of the app, in seconds from its start."""
        self._peak = max(self._peak, self.wants())
        return ideal_time_s(
            [max(self.total_work_gpu_s(), 1e-6)],
            [self._peak],
            cluster_gpus=self.cluster_gpus,
            n_avg=self.n_avg,
            ideal=self.settings.ideal,
            weight=self.settings.weight,
        )

    def total_work_gpu_s(self) -> float:
        """All work of the app, done and to be done, in GPU-seconds."""
        median = self._median_iter_s()
        work = self.to_come * self._median_total() * median
        for trial in self.trials.values():
            iterations = trial.iterations_done
            if trial.live:
                iterations += trial.iterations_left
            work += iterations * (trial.timer.serial_iter_s or median)
        return work

    def state_of_app(self, now: float, kept: int | None = None) -> ev.AppReport:
        """The report: r with ``kept`` GPUs, or with all that are held when None."""
        outlook = self.outlook(now)
        gpus = self.held().size if kept is None else kept
        t_shared = outlook.elapsed_s + (outlook.time_left_s(gpus) if gpus else math.inf)
        if not outlook.jobs:
            t_shared = outlook.elapsed_s
        return ev.AppReport(
            r=t_shared / outlook.t_ideal_s,
            t_shared_s=t_shared,
            t_ideal_s=outlook.t_ideal_s,
            wants=self.wants(),
            gang=self.settings.trial_min,
            jobs=self._job_reports(now),
            elapsed_s=outlook.elapsed_s,
            pinned=total(
                [t.allocation for t in self.trials.values() if t.holds and not t.preemptible]
            ),
        )

    def trial_r(self, trial_id: str, now: float) -> float | None:
        """r of one trial by Equation 1; None before its first iteration has been timed."""
        trial = self.trials[trial_id]
        serial = trial.timer.serial_iter_s
        if serial is None or not trial.holds:
            return None
        gpus = min(trial.allocation.size, self.settings.trial_max)
        s = self._table(trial).s(self.signature(trial.allocation))
        left = trial.iterations_left if trial.live else 0.0
        t_shared = now - self.started_s + left * serial * s / max(1, gpus)
        t_ideal = ideal_time_s(
            [trial.iterations_total * serial],
            [self.settings.trial_max],
            cluster_gpus=self.cluster_gpus,
            n_avg=self.n_avg,
            ideal=self.settings.ideal,
            weight=self.settings.weight,
        )
        return t_shared / t_ideal if t_ideal > 0 else None

    def placement_score(self, trial_id: str) -> float:
        """1 / S(G) of a trial's placement."""
        trial = self.trials[trial_id]
        return 1.0 / self._table(trial).s(self.signature(trial.allocation))

    # -- planning -------------------------------------------------------------------------

    def plan(self, now: float) -> list[ev.Event]:
        """Bring trials and leases into line; returns what to tell the arbiter."""
        out: list[ev.Event] = []
        idle = self._decide_who_leaves(now)
        waiting = [t for t in self._by_precedence() if t.phase is TrialPhase.WAITING]
        given = place(
            [t.id for t in waiting],
            idle,
            self.settings.trial_min,
            self.settings.trial_max,
            self.racks,
        )
        for trial_id, allocation in given.items():
            out.append(self._start(self.trials[trial_id], allocation, now))
            idle = idle - allocation
        # What is on its way may make a gang of what is idle.
        coming = any(x.pending for x in self.leases)
        spare = idle and len(given) == len(waiting) and not coming
        if spare and not self._grow(idle, now):
            out.extend(self._give_back(idle, now))
        else:
            self._idle_since_s = None
        wants = self.wants()
        if wants != self._told_wants or now - self._told_s > TELL_EVERY_S:
            self._told_wants, self._told_s = wants, now
            out.insert(0, ev.Reported(self.settings.app, self.state_of_app(now)))
        return out

    def held(self, *, final: bool = True) -> Allocation:
        """GPUs that the app may use now; without ``final`` only those not under notice."""
        return total([x.held for x in self.leases if final or not x.final])

    def next_expiry_s(self) -> float | None:
        """When the first lease ends; None without a lease."""
        return min((x.expires_s for x in self.leases if x.held), default=None)

    def _decide_who_leaves(self, now: float) -> Allocation:
        """Mark the trials whose GPUs are lost; returns the GPUs that are kept and idle."""
        groups = [(t.id, t.allocation) for t in self._by_precedence() if t.holds]
        keep, idle = staying(groups, self.held(final=False))
        losing = [(i, a) for i, a in groups if i not in keep]
        for trial_id in keep:
            trial = self.trials[trial_id]
            if trial.phase is not TrialPhase.LEAVING and trial.leave_by_s != math.inf:
                trial.leave_by_s = None
        for end_s in [now, *sorted({x.expires_s for x in self.leases if x.final and x.held})]:
            # What is left of the leases from then on, once those that stay have theirs.
            room = total([x.held for x in self.leases if not x.final or x.expires_s > end_s])
            _, room = staying([(i, a) for i, a in groups if i in keep], room)
            still, _ = staying(losing, room)
            for trial_id, _ in losing:
                trial = self.trials[trial_id]
                if trial_id not in still:
                    told_s = math.inf if trial.leave_by_s is None else trial.leave_by_s
                    trial.leave_by_s = min(told_s, end_s)
            losing = [(i, a) for i, a in losing if i in still]
        return idle

    def _start(self, trial: TrialState, allocation: Allocation, now: float) -> ev.GroupRequested:
        trial.phase, trial.allocation = TrialPhase.PLACED, allocation
        trial.leases += 1
        trial.history.append(str(allocation))
        trial.granted_s, trial.reports_in_lease, trial.leave_by_s = now, 0, None
        return ev.GroupRequested(self.settings.app, trial.group, allocation)

    def _grow(self, idle: Allocation, now: float) -> bool:
        """Have a running trial pause, to go on with the idle GPUs too; whether one does."""
        if any(t.leave_by_s == math.inf for t in self.trials.values()):
            return True
        last = max((x.expires_s for x in self.leases if not x.final), default=now)
        able = [
            t
            for t in self.trials.values()
            if t.phase is TrialPhase.RUNNING
            and t.preemptible
            and t.leave_by_s is None
            and t.allocation.size < self.settings.trial_max
            and t.reports_in_lease > 1
            and t.grown_for != self._lease_names()
            and last - now > GROW_WORTH * t.timer.restart_s
            and self._worth_growing(t)
        ]
        if not able:
            return False
        best = max(able, key=self._left_s)
        best.leave_by_s, best.grown_for = math.inf, self._lease_names()
        return True

    def _worth_growing(self, trial: TrialState) -> bool:
        """Whether a restart on more GPUs would pay, given a full lease."""
        worth_s = GROW_WORTH * trial.timer.restart_s
        return trial.preemptible and min(self.lease_s, self._left_s(trial)) > worth_s

    def _lease_names(self) -> str:
        return ",".join(x.id for x in self.leases)

    def _left_s(self, trial: TrialState) -> float:
        serial = trial.timer.serial_iter_s or UNKNOWN_ITER_S
        return trial.iterations_left * serial / max(1, trial.allocation.size)

    def _give_back(self, idle: Allocation, now: float) -> list[ev.Event]:
        """Return what has been idle for a while; the report before it lowers the demand."""
        if self._idle_since_s is None:
            self._idle_since_s = now
        if now - self._idle_since_s < IDLE_BEFORE_RETURN_S:
            return []
        self._idle_since_s, self._content = None, True
        self._told_wants = self.wants()
        self.leases = _without(self.leases, idle)
        return [
            ev.Reported(self.settings.app, self.state_of_app(now)),
            ev.GpusReturned(self.settings.app, idle),
        ]

    # -- helpers --------------------------------------------------------------------------

    def signature(self, allocation: Allocation) -> Signature:
        """The placement signature of some GPUs, racks as far as they are known."""
        machines = tuple(Machine(m, c, self.racks.get(m, "r0")) for m, c in allocation.items())
        return Signature.of(allocation, Cluster(machines))

    def _by_precedence(self) -> list[TrialState]:
        """Trials that cannot be preempted first, then in the order in which Tune made them."""
        return sorted(self.trials.values(), key=lambda t: (t.preemptible, t.order))

    def _table(self, trial: TrialState) -> SlowdownTable:
        return self.slowdowns.setdefault(trial.model, SlowdownTable())

    def _slowdown(self, gpus: int, level: Level) -> float:
        """S of a trial on ``gpus`` GPUs: the worst over the app's models."""
        if gpus <= 1:
            return 1.0
        parts = (gpus,) if level <= Level.MACHINE else (1,) * gpus
        signature = Signature(parts, level)
        return max((t.s(signature) for t in self.slowdowns.values()), default=1.0)

    def _median_iter_s(self) -> float:
        known = sorted(t.timer.serial_iter_s or 0.0 for t in self.trials.values())
        known = [s for s in known if s > 0]
        return known[len(known) // 2] if known else UNKNOWN_ITER_S

    def _median_total(self) -> float:
        totals = sorted(t.iterations_total for t in self.trials.values())
        return totals[len(totals) // 2] if totals else 1.0

    def _job_reports(self, now: float) -> tuple[ev.JobReport, ...]:
        median = self._median_iter_s()
        return tuple(self._job_report(t, median, now) for t in self.trials.values() if t.live)

    def _job_report(self, trial: TrialState, median: float, now: float) -> ev.JobReport:
        size = self.settings.trial_max
        return ev.JobReport(
            id=trial.id,
            iterations_left=trial.iterations_left,
            serial_iter_s=trial.timer.serial_iter_s or median,
            min_gpus=self.settings.trial_min,
            max_gpus=size,
            iterations_done=trial.iterations_done,
            attained_gpu_s=trial.attained_gpu_s,
            model=trial.model,
            held=trial.allocation,
            started_ago_s=max(0.0, now - trial.granted_s) if trial.leases else None,
            waited_s=0.0 if trial.holds else max(0.0, now - trial.idle_since_s),
            slowdown=tuple(self._slowdown(size, level) for level in Level),
            restart_s=trial.timer.restart_s,
            spans=True,  # each GPU has a process of its own
        )


def _without(leases: Sequence[LeaseView], gpus: Allocation) -> tuple[LeaseView, ...]:
    """The leases once some GPUs have been given back; the arbiter's own word follows."""
    out = []
    for lease in sorted(leases, key=lambda x: x.expires_s):
        if lease.final:
            out.append(lease)
            continue
        taken = lease.held & gpus
        gpus = gpus - taken
        out.append(
            LeaseView(lease.id, lease.held - taken, lease.pending, lease.expires_s, lease.final)
        )
    return tuple(out)
