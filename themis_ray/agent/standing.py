"""How an app stands: the work left, T_id and r, from what its trials have reported."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from themis_ray.agent.bidder import Outlook
from themis_ray.agent.split import total
from themis_ray.agent.trials import TrialPhase, TrialState
from themis_ray.core import events as ev
from themis_ray.core.cluster import Allocation, Cluster, Level, Machine
from themis_ray.core.commands import LeaseView
from themis_ray.core.fairness import Ideal, ideal_time_s
from themis_ray.core.slowdown import Signature, SlowdownTable

# What an iteration is taken to last before the first has been timed. Any figure will do: it
# scales T_sh and T_id alike.
UNKNOWN_ITER_S = 1.0
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
class Standing:
    """What is known of an app, and what follows from it for its report.

    Attributes:
        settings: The app's options.
        started_s: When the app began, on the caller's clock.
        cluster_gpus: R_C, as last heard.
        n_avg: Mean number of apps, as last heard.
        to_come: Trials that the search will still create.
        concurrency: The most trials that the search runs at once.
        lease_s: How long a full lease is, as last heard.
        trials: All its trials, by Tune's id.
        leases: Its leases, as last heard.
        racks: The rack of each machine, as far as heard.
        slowdowns: S(G) of each model.
        content: After idle GPUs were given back: it asks for no more than it uses, until a trial
            asks again.
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
    racks: dict[str, str] = field(default_factory=dict)
    slowdowns: dict[str, SlowdownTable] = field(default_factory=dict)
    content: bool = False
    _peak: int = 1

    def wants(self) -> int:
        """GPUs in total that the app can use now."""
        active = [t for t in self.trials.values() if t.live and t.phase is not TrialPhase.IDLE]
        used = sum(t.allocation.size for t in active if t.holds)
        if self.content:
            return used
        more = self.to_come and min(self.to_come, max(0.0, self.concurrency - len(active)))
        wants = int(more) * self.settings.trial_max
        for trial in active:
            # A running trial would have to restart to use more: it asks only if that pays.
            grows = trial.phase is not TrialPhase.RUNNING or self.worth_growing(trial)
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

    def held(self, *, final: bool = True) -> Allocation:
        """GPUs that the app may use now; without ``final`` only those not under notice."""
        return total([x.held for x in self.leases if final or not x.final])

    def worth_growing(self, trial: TrialState) -> bool:
        """Whether a restart on more GPUs would pay, given a full lease."""
        worth_s = GROW_WORTH * trial.timer.restart_s
        return trial.preemptible and min(self.lease_s, self.left_s(trial)) > worth_s

    def left_s(self, trial: TrialState) -> float:
        """Seconds that a trial still runs on the GPUs that it has."""
        serial = trial.timer.serial_iter_s or UNKNOWN_ITER_S
        return trial.iterations_left * serial / max(1, trial.allocation.size)

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
