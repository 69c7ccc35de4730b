"""What a search's answers amount to, worked out once for as long as nothing changes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from themis_ray.core.cluster import Level
from themis_ray.searchers.api import (
    AllTrials,
    AppState,
    JobInfo,
    Parts,
    PhaseSearch,
    Search,
    jobs_of,
    time_of,
)


@dataclass(frozen=True, slots=True)
class PhaseSum:
    """A phase as T_id sees it.

    Attributes:
        work_gpu_s: Its work in GPU-seconds.
        demand: The most GPUs that its jobs can use at once.
        longest_s: Its longest job, in seconds, on as many GPUs as that job can use.
    """

    work_gpu_s: float
    demand: int
    longest_s: float = 0.0

    @property
    def gpus(self) -> float:
        """The most GPUs that make it shorter: the longest job sets the pace."""
        if self.longest_s <= 0:
            return float(self.demand)
        return min(float(self.demand), self.work_gpu_s / self.longest_s)


@dataclass(slots=True)
class Forecast:
    """A search's outlook as of the last :meth:`see`.

    An adapter that fails, or answers what cannot be used, is told of in ``trouble`` and replaced:
    from then on all trials are taken to run to their ends.

    Attributes:
        search: The search.
        trouble: What was wrong with the search's adapter; empty while nothing is.
        phases: The phases still to do, the current one first; one for a remaining-type search.
        current: The jobs of the current phase, without GPUs: those that exist have ids.
        past: The phases that are over.
        limits: The fewest and the most GPUs of each trial of the current phase.
    """

    search: Search = field(default_factory=AllTrials)
    trouble: str = ""
    phases: tuple[PhaseSum, ...] = ()
    current: tuple[JobInfo, ...] = ()
    past: list[PhaseSum] = field(default_factory=list)
    limits: dict[str, tuple[int, int]] = field(default_factory=dict)
    _seen: AppState = field(default_factory=AppState)
    # Iterations that each trial had done when the current phase began.
    _begun: dict[str, float] = field(default_factory=dict)
    # What the search has answered since, by allocation: not even the level changes that.
    _answers: dict[Parts, list[Sequence[JobInfo]]] = field(default_factory=dict)
    _times: dict[tuple[int, Level], float] = field(default_factory=dict)
    _shares: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _demand: int = 0

    def see(self, app: AppState, done_gpu_s: float) -> None:
        """Take in what is known of the trials.

        Args:
            app: The app's trials.
            done_gpu_s: Work that they have done so far, in GPU-seconds on one GPU.
        """
        before, limits = len(self.phases), self.limits
        self._seen = app
        self._forget()
        try:
            self._look(app)
        except Exception as error:
            self._distrust(error)
        if isinstance(self.search, PhaseSearch) and len(self.phases) < before:
            # The work done since the phase before ended was that of the phase that has ended now.
            done = done_gpu_s - sum(phase.work_gpu_s for phase in self.past)
            self.past.append(PhaseSum(max(0.0, done), self._demand, self._longest_s((), limits)))
            self._demand = 0
            self._begun = {trial.id: trial.iterations_done for trial in app.trials}
        if self.phases:
            self._demand = max(self._demand, self.phases[0].demand)

    def _forget(self) -> None:
        self._answers.clear()
        self._times.clear()
        self._shares.clear()

    def _look(self, app: AppState) -> None:
        self.search.observe(app)
        jobs = jobs_of(self.search, ())
        self.phases = tuple(_sum_up(phase, app.concurrency) for phase in jobs if phase)
        self.current = tuple(jobs[0]) if jobs else ()
        self.limits = {job.id: (job.min_gpus, job.max_gpus) for job in self.current if job.id}

    def _distrust(self, error: Exception) -> None:
        name = type(self.search).__name__
        self.trouble = (
            f"the adapter {name} cannot be used ({type(error).__name__}: {error}); from now on all "
            "trials are taken to run to their ends. themis_ray.testing.adapter_contract finds "
            "such faults"
        )
        self.search = AllTrials()
        self._forget()
        self._look(self._seen)

    def time_left_s(self, gpus: int, level: Level = Level.MACHINE) -> float:
        """Seconds until the search is done on ``gpus`` GPUs.

        Args:
            gpus: How many; up to ``MACHINE`` level as if all were on one machine, beyond it each
                on a machine of its own.
            level: How far apart they are.
        """
        key = (gpus, level if gpus > 1 else Level.MACHINE)
        known = self._times.get(key)
        if known is None:
            allocation = (gpus,) if key[1] <= Level.MACHINE else (1,) * gpus
            limit = self._most_at_once()
            if sum(allocation) > limit:
                allocation = (limit,) if len(allocation) == 1 else (1,) * limit
            try:
                known = self._ask_time_s(allocation, key[1])
            except Exception as error:
                self._distrust(error)
                known = self._ask_time_s(allocation, key[1])
            self._times[key] = known
        return known

    def _ask_time_s(self, allocation: Parts, level: Level) -> float:
        return time_of(self.search, self._ask(allocation), sum(allocation), level)

    def _most_at_once(self) -> int:
        """More GPUs than these are of no use to any phase."""
        return max((phase.demand for phase in self.phases), default=1)

    def shares(self, gpus: int) -> tuple[int, ...]:
        """How many GPUs the jobs of the current phase would run on, the largest first."""
        known = self._shares.get(gpus)
        if known is None:
            try:
                known = self._ask_shares(gpus)
            except Exception as error:
                self._distrust(error)
                known = self._ask_shares(gpus)
            self._shares[gpus] = known
        return known

    def _ask_shares(self, gpus: int) -> tuple[int, ...]:
        current = next(iter(self._ask((gpus,))), ())
        sizes = (sum(job.gpus) for job in current)
        return tuple(sorted((size for size in sizes if size), reverse=True))

    def _ask(self, allocation: Parts) -> list[Sequence[JobInfo]]:
        """What the search answers about an allocation."""
        known = self._answers.get(allocation)
        if known is None:
            known = self._answers[allocation] = jobs_of(self.search, allocation)
        return known

    def precedence(self, *, starting: bool) -> dict[str, float]:
        """Trials with a smaller figure get GPUs first, and give them up last.

        Args:
            starting: Among trials that wait. Among those that run, the order must not change
                with every report.
        """
        if isinstance(self.search, PhaseSearch) and not starting:
            return {}
        if isinstance(self.search, PhaseSearch):
            # The phase is over when the last of its jobs is: the longest go first.
            return {job.id: -job.work_gpu_s for job in self.current if job.id}
        return {job.id: float(i) for i, job in enumerate(self.current) if job.id}

    def whole(self, done_gpu_s: float) -> list[PhaseSum]:
        """All phases from the app's first to its last, for T_id."""
        done = max(0.0, done_gpu_s - sum(phase.work_gpu_s for phase in self.past))
        longest_s = self._longest_s(self.current, self.limits)
        if not self.phases:
            return [*self.past, PhaseSum(done, max(1, self._demand), longest_s)]
        now = self.phases[0]
        begun = PhaseSum(done + now.work_gpu_s, max(self._demand, now.demand), longest_s)
        return [*self.past, begun, *self.phases[1:]]

    def _longest_s(
        self, current: Sequence[JobInfo], limits: Mapping[str, tuple[int, int]]
    ) -> float:
        """The longest job of a phase from its beginning, when ``current`` are those not done."""
        left = {job.id: job.iterations_remaining for job in current if job.id}
        longest_s = max((job.work_gpu_s / job.max_gpus for job in current), default=0.0)
        for trial in self._seen.trials:
            done = max(0.0, trial.iterations_done - self._begun.get(trial.id, 0.0))
            work_gpu_s = (done + left.get(trial.id, 0.0)) * trial.serial_iter_s
            most = limits.get(trial.id, (1, trial.max_gpus))[1]
            longest_s = max(longest_s, work_gpu_s / most)
        return longest_s


def _sum_up(jobs: Sequence[JobInfo], concurrency: float) -> PhaseSum:
    most = sorted((job.max_gpus for job in jobs if job.work_gpu_s > 0), reverse=True)
    at_once = most[: int(min(concurrency, len(most)))]
    return PhaseSum(
        math.fsum(job.work_gpu_s for job in jobs),
        max(1, sum(at_once)),
        max((job.work_gpu_s / job.max_gpus for job in jobs), default=0.0),
    )
