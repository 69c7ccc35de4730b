"""The AGENT's state: trials, leases, and what follows from them. No I/O, no clock.

The Tune scheduler tells it what trials do, the session hands it what the arbiter says, and both
send on the events that it returns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from themis_ray.agent.bidder import bid_table
from themis_ray.agent.predictions import PredictionErrors
from themis_ray.agent.split import growth_saves_s, place, staying, without
from themis_ray.agent.standing import AgentSettings, Standing
from themis_ray.agent.trials import IterationTimer, TrialPhase, TrialState, heads
from themis_ray.core import events as ev
from themis_ray.core.cluster import NOTHING, Allocation, total
from themis_ray.core.commands import (
    GroupRefused,
    LeasesChanged,
    RequestReport,
    SendOffer,
)
from themis_ray.core.explain import Reason, TrialGrows, TrialKeepsSize
from themis_ray.core.slowdown import SlowdownTable, skewed_priors
from themis_ray.core.valuation import lay_out

# An app gives GPUs back when they have been idle for so long: trials start within this time.
IDLE_BEFORE_RETURN_S = 1.5
# A trial that could start on some of its GPUs waits so long for the rest to be leased, too.
AWAIT_MORE_S = 2.0
# How often the arbiter is told r unasked, for those who watch.
TELL_EVERY_S = 2.0


__all__ = ["Agent", "AgentSettings"]


@dataclass(slots=True)
class Agent(Standing):
    """One app, as the arbiter's counterpart: its standing, and what it does about it.

    Attributes:
        reason: Why it has the leases it has, as last heard.
        split_reasons: Remarks on which trial has which GPUs, by trial.
        errors: How far finish times predicted for trials were off.
    """

    reason: Reason | None = None
    split_reasons: dict[str, Reason] = field(default_factory=dict)
    errors: PredictionErrors = field(default_factory=PredictionErrors)
    _told_wants: int | None = None
    _told_s: float = -math.inf
    _idle_since_s: float | None = None

    # -- trials ---------------------------------------------------------------------------

    def add_trial(self, trial_id: str, iterations_total: float, model: str = "") -> TrialState:
        """Tune has a trial (again)."""
        known = self.trials.get(trial_id)
        self.changed()
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
        trial.asked_s = None
        self.content = False

    def trial_ran(
        self,
        trial_id: str,
        now: float,
        iterations_done: float,
        iter_s: float | None,
        *,
        step_s: float | None = None,
        skew: float | None = None,
    ) -> bool:
        """A trial has reported.

        Args:
            trial_id: Which.
            now: The time.
            iterations_done: In its whole life.
            iter_s: Seconds of one iteration, as measured in the trial.
            step_s: Seconds of a training step by the trial's own timer, if it has one.
            skew: The largest tensor's share of what a step sends, if it has watched.

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
            trial.timer.record_first(iter_s, self.signature(trial.allocation))
        elif iter_s:
            trial.timer.record(iter_s, self.signature(trial.allocation), step_s)
        if skew is not None and skew != trial.skew:
            trial.skew = skew
            self._table(trial).priors = skewed_priors(skew)
        trial.iterations_done = iterations_done
        self.changed()
        if trial.reports_in_lease > 1:
            self.errors.note(trial, self._finish_s(trial, now), now)
        return trial.leave_by_s is not None

    def trial_left(self, trial_id: str, now: float, *, done: bool) -> None:
        """A trial gives up its GPUs: paused, or over."""
        trial = self.trials.get(trial_id)
        if trial is None:
            return
        if trial.allocation and trial.granted_s:
            seconds = max(0.0, now - trial.granted_s)
            trial.attained_gpu_s += trial.allocation.size * seconds / self.settings.sharers
        if done:
            self.errors.finished(trial, now)
        self.changed()
        trial.phase = TrialPhase.DONE if done else TrialPhase.IDLE
        trial.allocation, trial.leave_by_s, trial.group = NOTHING, None, ""
        trial.reports_in_lease, trial.idle_since_s = 0, now

    def _finish_s(self, trial: TrialState, now: float) -> float:
        """When a trial will be done, if it keeps its GPUs."""
        serial = trial.timer.serial_iter_s
        if serial is None or not trial.allocation:
            return math.inf
        slowed = serial * self._table(trial).s(self.signature(trial.allocation))
        return now + max(0.0, trial.iterations_total - trial.iterations_done) * slowed / (
            trial.allocation.size
        )

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
            self.content = False  # a new lease is a new chance to grow
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
            self.content = False  # its leases are renewed: the time to ask for more, if it can be
        return ev.Reported(
            self.settings.app, self.state_of_app(now, command.kept.size), command.round_id
        )

    def bid(self, command: SendOffer, now: float) -> ev.BidReceived:
        """Answer an offer."""
        self.n_avg, self.cluster_gpus = command.n_avg, command.cluster_gpus
        self.lease_s = command.lease_s
        self.racks.update(command.racks)
        self.hear(command.measured)
        own = [
            t.allocation
            for t in heads(self._by_precedence())
            if t.holds and t.allocation <= command.expiring
        ]
        needs = max(0, self.wants() - command.kept.size)
        table = bid_table(self.settings.app, self.outlook(now), command, own, needs)
        return ev.BidReceived(command.round_id, table)

    # -- planning -------------------------------------------------------------------------

    def plan(self, now: float) -> list[ev.Event]:
        """Bring trials and leases into line; returns what to tell the arbiter."""
        out: list[ev.Event] = []
        idle = self._decide_who_leaves(now)
        ranked = self._by_precedence(starting=True)
        waiting = heads([t for t in ranked if t.phase is TrialPhase.WAITING])
        for trial in waiting:
            if trial.asked_s is None:
                trial.asked_s, trial.asked_with = now, self._lease_names()
        given, remarks = self._split(waiting, idle, now)
        for trial_id, allocation in given.items():
            self.split_reasons.pop(trial_id, None)
            for trial in self._sharing(self.trials[trial_id]):
                self._start(trial, allocation, now)
            group = self.trials[trial_id].group
            out.append(ev.GroupRequested(self.settings.app, group, allocation))
            idle = idle - allocation
        self.split_reasons.update(remarks)
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

    def remarks(self) -> list[str]:
        """What people should know: why trials have the GPUs they have, and how estimates fare."""
        live = [str(r) for i, r in self.split_reasons.items() if self.trials[i].live]
        return [text for text in (self.forecast.trouble, str(self.errors), *live) if text]

    def next_expiry_s(self) -> float | None:
        """When the first lease ends; None without a lease."""
        return min((x.expires_s for x in self.leases if x.held), default=None)

    def _decide_who_leaves(self, now: float) -> Allocation:
        """Mark the trials whose GPUs are lost; returns the GPUs that are kept and idle."""
        holders = heads([t for t in self._by_precedence() if t.holds])
        groups = [(t.id, t.allocation) for t in holders]
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
        for head in holders:
            for trial in self._sharing(head):
                if trial.phase is not TrialPhase.LEAVING:
                    trial.leave_by_s = head.leave_by_s
        return idle

    def _sharing(self, trial: TrialState) -> list[TrialState]:
        """The trials in a trial's placement group, itself included."""
        if self.settings.sharers == 1 or not trial.group:
            return [trial]
        return [t for t in self.trials.values() if t.group == trial.group]

    def join_group(self, trial_id: str, own: str, now: float) -> str:
        """A trial that needs a part of a GPU waits for a group; which it will be.

        It takes a place in a group that has one, those with the fewest free places first, and
        else starts one of its own, called ``own``.
        """
        trial = self.trials[trial_id]
        members: dict[str, list[TrialState]] = {}
        for other in self.trials.values():
            if other.group and other is not trial:
                members.setdefault(other.group, []).append(other)
        stays = [
            (-len(trials), group)
            for group, trials in members.items()
            if len(trials) < self.settings.sharers and all(t.leave_by_s is None for t in trials)
        ]
        group = min(stays)[1] if stays else own
        self.trial_waits(trial_id, group)
        held = next((t for t in members.get(group, ()) if t.holds), None)
        if held is not None:
            self._start(trial, held.allocation, now)
        return group

    def _start(self, trial: TrialState, allocation: Allocation, now: float) -> None:
        trial.phase, trial.allocation = TrialPhase.PLACED, allocation
        trial.leases += 1
        trial.history.append(str(allocation))
        trial.granted_s, trial.reports_in_lease, trial.leave_by_s = now, 0, None

    def _split(
        self, waiting: list[TrialState], idle: Allocation, now: float
    ) -> tuple[dict[str, Allocation], dict[str, Reason]]:
        """Which of the waiting trials gets which of the idle GPUs, and remarks on it."""
        if not waiting or not idle:
            return {}, {}
        median = self._median_iter_s()
        jobs = []
        for trial in waiting:
            least, most = self.limits(trial.id)
            job = self._trial_info(trial, median).job()
            jobs.append(replace(job, min_gpus=least, max_gpus=most))
        given, remarks = place(jobs, idle, self.signature, self.racks)
        if self.wants() > self.held(final=False).size:  # there may be more to come
            given = {i: gpus for i, gpus in given.items() if not self._awaits_more(i, gpus, now)}
        return given, {i: remark for i, remark in remarks.items() if i in given}

    def _awaits_more(self, trial_id: str, gpus: Allocation, now: float) -> bool:
        """Whether a trial that would start small is to wait for the arbiter's answer.

        To grow later costs a restart: it waits no longer than that takes.
        """
        trial = self.trials[trial_id]
        if gpus.size >= self.limits(trial_id)[1] or trial.asked_s is None:
            return False
        answered = trial.asked_with != self._lease_names()
        if answered and not any(x.pending for x in self.leases):
            return False
        return now - trial.asked_s < min(AWAIT_MORE_S, trial.timer.restart_s)

    def _grow(self, idle: Allocation, now: float) -> bool:
        """Have a running trial pause, to go on with the idle GPUs too; whether one does."""
        if any(t.leave_by_s == math.inf for t in self.trials.values()):
            return True
        ends_s = max((x.expires_s for x in self.leases if not x.final), default=now)
        able = [t for t in self.trials.values() if self._may_grow(t)]
        for trial in sorted(able, key=self.left_s, reverse=True):
            more = min(idle.size, self.limits(trial.id)[1] - trial.allocation.size)
            saves_s = self._growth_saves_s(trial, idle, more, ends_s - now)
            restart_s = trial.timer.restart_s
            if saves_s > 0:
                trial.leave_by_s, trial.grown_for = math.inf, self._lease_names()
                self.split_reasons[trial.id] = TrialGrows(
                    trial.id, trial.allocation, more, restart_s, saves_s
                )
                return True
            self.split_reasons[trial.id] = TrialKeepsSize(
                trial.id, trial.allocation, more, restart_s, max(0.0, ends_s - now)
            )
        return False

    def _may_grow(self, trial: TrialState) -> bool:
        return (
            trial.phase is TrialPhase.RUNNING
            and trial.preemptible
            and trial.leave_by_s is None
            and trial.allocation.size < self.limits(trial.id)[1]
            and trial.reports_in_lease > 1
            and trial.grown_for != self._lease_names()
        )

    def _growth_saves_s(
        self, trial: TrialState, idle: Allocation, more: int, window_s: float
    ) -> float:
        """What a restart with ``more`` of the idle GPUs would save, within the lease."""
        table = self._table(trial)
        room = trial.allocation + idle
        known = {machine: self.racks.get(machine, "r0") for machine in room}
        [grown] = lay_out([trial.allocation.size + more], room, known)
        serial = trial.timer.serial_iter_s or self._median_iter_s()
        return growth_saves_s(
            trial.iterations_left * serial,
            trial.allocation.size / table.s(self.signature(trial.allocation)),
            grown.size / table.s(self.signature(grown)),
            trial.timer.restart_s,
            window_s,
        )

    def _lease_names(self) -> str:
        return ",".join(x.id for x in self.leases)

    def _give_back(self, idle: Allocation, now: float) -> list[ev.Event]:
        """Return what has been idle for a while; the report before it lowers the demand."""
        if self._idle_since_s is None:
            self._idle_since_s = now
        if now - self._idle_since_s < IDLE_BEFORE_RETURN_S:
            return []
        self._idle_since_s, self.content = None, True
        self._told_wants = self.wants()
        self.leases = without(self.leases, idle)
        return [
            ev.Reported(self.settings.app, self.state_of_app(now)),
            ev.GpusReturned(self.settings.app, idle),
        ]
