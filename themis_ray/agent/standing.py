"""How an app stands: the work left, T_id and r, from what its trials have reported.

Whatever is worth an evaluation goes through the search's own answers (:mod:`.forecast`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from themis_ray.agent.forecast import Forecast
from themis_ray.agent.split import growth_saves_s
from themis_ray.agent.trials import TrialPhase, TrialState, heads
from themis_ray.core import events as ev
from themis_ray.core.cluster import Allocation, Cluster, Level, Machine, total
from themis_ray.core.commands import LeaseView
from themis_ray.core.fairness import Ideal, PhaseWork, ideal_time_s
from themis_ray.core.slowdown import MeasuredSlowdown, Signature, SlowdownTable
from themis_ray.searchers.api import AppState, Search, TrialInfo

# What an iteration is taken to last before the first has been timed. Any figure will do: it
# scales T_sh and T_id alike.
UNKNOWN_ITER_S = 1.0
# Remarks sent with a report; a search of a thousand trials is not to send a thousand.
MOST_NOTES = 4


@dataclass(slots=True)
class AgentSettings:
    """An app's own options; see :class:`themis_ray.tune.scheduler.ThemisScheduler`."""

    app: str
    weight: float = 1.0
    trial_min: int = 1
    trial_max: int = 1
    ideal: Ideal = "paper"
    preempt_without_checkpoint: bool = False
    sharers: int = 1  # trials that share one GPU


@dataclass(frozen=True, slots=True)
class Worth:
    """What GPUs are worth to an app now: the figures behind its bids and reports.

    Attributes:
        forecast: Times left.
        trial_min: The fewest GPUs of a trial.
        trial_max: The most.
        elapsed_s: The app's age.
        t_ideal_s: Its T_id.
        restart_s: What moving a trial costs.
        sharers: Trials that share one GPU; to the search, each place is a GPU.
    """

    forecast: Forecast
    trial_min: int
    trial_max: int
    elapsed_s: float
    t_ideal_s: float
    restart_s: float = 0.0
    sharers: int = 1

    def time_left_s(self, gpus: int, level: Level = Level.MACHINE) -> float:
        """Seconds until the app is done on ``gpus`` GPUs."""
        return self.forecast.time_left_s(gpus * self.sharers, level)

    def r(self, gpus: int, level: Level = Level.MACHINE, moved: float = 0.0) -> float:
        """r with ``gpus`` GPUs; ``moved`` is the part of them that costs a restart."""
        left = self.time_left_s(gpus, level)
        return max((self.elapsed_s + left + self.restart_s * moved) / self.t_ideal_s, 1e-9)

    def shares(self, gpus: int) -> tuple[int, ...]:
        """How the trials would divide some GPUs, the largest share first."""
        return self.forecast.shares(gpus) if self.sharers == 1 else (1,) * gpus


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
        shared: Models whose names mean the same to all apps: what is measured of them is told, and
            what others have measured is heard.
        content: After idle GPUs were given back: it asks for no more than it uses, until a trial
            asks again.
        forecast: What the search's answers amount to.
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
    shared: set[str] = field(default_factory=set)
    content: bool = False
    forecast: Forecast = field(default_factory=Forecast)
    _peak: int = 1
    _changes: int = 0
    _forecast_of: tuple[object, ...] = ()

    # -- the search ---------------------------------------------------------------------------

    def use(self, search: Search) -> None:
        """Have a search tell what GPUs are worth to the app."""
        self.forecast = Forecast(search)
        self.changed()

    def changed(self) -> None:
        """Something that the search's answers depend on has changed."""
        self._changes += 1

    def look(self) -> Forecast:
        """The forecast, brought up to date if anything has changed since."""
        trials = tuple(
            (t.iterations_done, t.iterations_total, t.live) for t in self.trials.values()
        )
        now = (self._changes, self.to_come, self.concurrency, trials)
        if now != self._forecast_of:
            self._forecast_of = now
            self.forecast.see(self.app_state(), self.work_done_gpu_s())
        return self.forecast

    def app_state(self) -> AppState:
        """The trials, as adapters are told of them."""
        median = self._median_iter_s()
        return AppState(
            tuple(self._trial_info(t, median) for t in self.trials.values()),
            self.to_come,
            self.concurrency,
        )

    def _trial_info(self, trial: TrialState, median: float) -> TrialInfo:
        return TrialInfo(
            trial.id,
            trial.iterations_done,
            trial.iterations_total,
            trial.timer.serial_iter_s or median,
            self.settings.trial_min,
            self.settings.trial_max,
            trial.live,
            trial.phase is TrialPhase.RUNNING,
            self._table(trial),
            trial.last_result,
        )

    def limits(self, trial_id: str) -> tuple[int, int]:
        """The fewest and the most GPUs of a trial, as of the last :meth:`look`."""
        own = (self.settings.trial_min, self.settings.trial_max)
        return self.forecast.limits.get(trial_id, own)

    # -- what follows -------------------------------------------------------------------------

    def wants(self) -> int:
        """GPUs in total that the app can use now."""
        active = [t for t in self.trials.values() if t.live and t.phase is not TrialPhase.IDLE]
        used = sum(t.allocation.size for t in heads(active) if t.holds)
        if self.content:
            return used
        self.look()
        more = self.to_come and min(self.to_come, max(0.0, self.concurrency - len(active)))
        wants = int(more) * self._next_trial_max()
        for trial in active:
            # A running trial would have to restart to use more: it asks only if that pays.
            grows = trial.phase is not TrialPhase.RUNNING or self.worth_growing(trial)
            most = self.limits(trial.id)[1] if grows else 0
            wants += max(most, trial.allocation.size)
        wants = -(-wants // self.settings.sharers)
        return max(used, min(wants, max(1, self.cluster_gpus)))

    def _next_trial_max(self) -> int:
        """The most GPUs of a trial that does not exist yet."""
        coming = [job.max_gpus for job in self.look().current if not job.id]
        return max(coming, default=self.settings.trial_max)

    def outlook(self, now: float) -> Worth:
        """What GPUs are worth to the app."""
        forecast = self.look()
        sizes = [(job.min_gpus, job.max_gpus) for job in forecast.current]
        sizes = sizes or [(self.settings.trial_min, self.settings.trial_max)]
        live = [t for t in self.trials.values() if t.live]
        return Worth(
            forecast,
            trial_min=min(least for least, _ in sizes),
            trial_max=max(most for _, most in sizes),
            elapsed_s=max(0.0, now - self.started_s),
            t_ideal_s=self.t_ideal_s(),
            restart_s=max((t.timer.restart_s for t in live), default=0.0),
            sharers=self.settings.sharers,
        )

    def t_ideal_s(self) -> float:
        """T_id of the app, in seconds from its start."""
        phases = self.look().whole(self.work_done_gpu_s())
        self._peak = max(self._peak, self.wants())
        places = max(1, self.cluster_gpus) * self.settings.sharers
        demands = [min(phase.demand, places) for phase in phases]
        if len(phases) == 1:
            demands = [max(self._peak * self.settings.sharers, demands[0])]
        work = [phase.work_gpu_s for phase in phases]
        if sum(work) <= 0:
            work, demands = [1e-6], [1]
        return ideal_time_s(
            work,
            demands,
            cluster_gpus=places,
            n_avg=self.n_avg,
            ideal=self.settings.ideal,
            weight=self.settings.weight,
        )

    def work_done_gpu_s(self) -> float:
        """Work that the app has done, in GPU-seconds."""
        median = self._median_iter_s()
        return math.fsum(
            t.iterations_done * (t.timer.serial_iter_s or median) for t in self.trials.values()
        )

    def state_of_app(self, now: float, kept: int | None = None) -> ev.AppReport:
        """The report: r with ``kept`` GPUs, or with all that are held when None."""
        outlook = self.outlook(now)
        gpus = self.held().size if kept is None else kept
        left_s = outlook.time_left_s(gpus) if gpus or not self.forecast.phases else math.inf
        t_shared = outlook.elapsed_s + left_s
        return ev.AppReport(
            r=t_shared / outlook.t_ideal_s,
            t_shared_s=t_shared,
            t_ideal_s=outlook.t_ideal_s,
            wants=self.wants(),
            gang=outlook.trial_min,
            jobs=self._job_reports(now),
            elapsed_s=outlook.elapsed_s,
            pinned=total(
                [
                    t.allocation
                    for t in heads(self._by_precedence())
                    if t.holds and not t.preemptible
                ]
            ),
            measured=tuple(
                MeasuredSlowdown(model, signature, s)
                for model in sorted(self.shared & self.slowdowns.keys())
                for signature, s in self.slowdowns[model].measured.items()
            ),
            notes=tuple(self.remarks()[:MOST_NOTES]),
            phases=self.phase_works(),
        )

    def phase_works(self) -> tuple[PhaseWork, ...]:
        """All work of the app, done and left: the current phase from its beginning."""
        sharers = self.settings.sharers
        return tuple(
            PhaseWork(phase.work_gpu_s / sharers, phase.gpus / sharers)
            for phase in self.look().whole(self.work_done_gpu_s())
            if phase.work_gpu_s > 0
        )

    def remarks(self) -> list[str]:
        """What people should know."""
        return [self.forecast.trouble] if self.forecast.trouble else []

    def hear(self, measured: Iterable[MeasuredSlowdown]) -> None:
        """Other apps have measured S(G) of models that this one has too."""
        for entry in measured:
            if entry.model in self.shared & self.slowdowns.keys():
                heard = self.slowdowns[entry.model].heard
                if heard.get(entry.signature) != entry.s:
                    heard[entry.signature] = entry.s
                    self.changed()

    def trial_r(self, trial_id: str, now: float) -> float | None:
        """r of one trial by Equation 1; None before its first iteration has been timed."""
        trial = self.trials[trial_id]
        serial = trial.timer.serial_iter_s
        if serial is None or not trial.holds:
            return None
        most = self.limits(trial_id)[1]
        gpus = min(trial.allocation.size, most)
        s = self._table(trial).s(self.signature(trial.allocation))
        left = trial.iterations_left if trial.live else 0.0
        t_shared = now - self.started_s + left * serial * s / max(1, gpus)
        t_ideal = ideal_time_s(
            [trial.iterations_total * serial],
            [most],
            cluster_gpus=self.cluster_gpus * self.settings.sharers,
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
        most = self.limits(trial.id)[1]
        if not trial.preemptible or most <= trial.allocation.size or not trial.allocation:
            return False
        left = self.left_s(trial) * trial.allocation.size
        gpus, restart_s = trial.allocation.size, trial.timer.restart_s
        return growth_saves_s(left, gpus, most, restart_s, self.lease_s) > 0

    def left_s(self, trial: TrialState) -> float:
        """Seconds that a trial still runs on the GPUs that it has."""
        serial = trial.timer.serial_iter_s or UNKNOWN_ITER_S
        return trial.iterations_left * serial / max(1, trial.allocation.size)

    def signature(self, allocation: Allocation) -> Signature:
        """The placement signature of some GPUs, racks as far as they are known."""
        machines = tuple(Machine(m, c, self.racks.get(m, "r0")) for m, c in allocation.items())
        return Signature.of(allocation, Cluster(machines))

    def _by_precedence(self, *, starting: bool = False) -> list[TrialState]:
        """Trials that cannot be preempted first, then as the search ranks them, then by age."""
        rank = self.look().precedence(starting=starting)
        return sorted(
            self.trials.values(),
            key=lambda t: (t.preemptible, rank.get(t.id, math.inf), t.order),
        )

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

    def _job_reports(self, now: float) -> tuple[ev.JobReport, ...]:
        median = self._median_iter_s()
        return tuple(self._job_report(t, median, now) for t in self.trials.values() if t.live)

    def _job_report(self, trial: TrialState, median: float, now: float) -> ev.JobReport:
        least, size = self.limits(trial.id)
        return ev.JobReport(
            id=trial.id,
            iterations_left=trial.iterations_left,
            serial_iter_s=trial.timer.serial_iter_s or median,
            min_gpus=least,
            max_gpus=size,
            iterations_done=trial.iterations_done,
            attained_gpu_s=trial.attained_gpu_s,
            model=trial.model,
            held=trial.allocation,
            started_ago_s=max(0.0, now - trial.granted_s) if trial.leases else None,
            waited_s=0.0 if trial.holds else max(0.0, now - trial.idle_since_s),
            slowdown=tuple(self._slowdown(size, level) for level in Level),
            restart_s=trial.timer.restart_s,
            skew=trial.skew,
            spans=True,  # each GPU has a process of its own
        )
