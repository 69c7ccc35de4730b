"""What a search's answers amount to, worked out once for as long as nothing changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from themis_ray.core.cluster import Level
from themis_ray.errors import AdapterError
from themis_ray.searchers.api import (
    AllTrials,
    AppState,
    JobInfo,
    PhaseSearch,
    RemainingSearch,
    Search,
    checked,
    time_left_s,
)


@dataclass(frozen=True, slots=True)
class PhaseSum:
    """A phase as T_id sees it: its work in GPU-seconds, and the most GPUs that it can use."""

    work_gpu_s: float
    demand: int


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
    _seen: AppState | None = None
    _times: dict[tuple[int, Level], float] = field(default_factory=dict)
    _shares: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _demand: int = 0

    def see(self, app: AppState, done_gpu_s: float) -> None:
        """Take in what is known of the trials.

        Args:
            app: The app's trials.
            done_gpu_s: Work that they have done so far, in GPU-seconds on one GPU.
        """
        before = len(self.phases)
        self._seen = app
        self._times.clear()
        self._shares.clear()
        try:
            self._look(app)
        except Exception as error:
            self._distrust(error)
        if isinstance(self.search, PhaseSearch) and len(self.phases) < before:
            # The work done since the phase before ended was that of the phase that has ended now.
            done = done_gpu_s - sum(phase.work_gpu_s for phase in self.past)
            self.past.append(PhaseSum(max(0.0, done), self._demand))
            self._demand = 0
        if self.phases:
            self._demand = max(self._demand, self.phases[0].demand)

    def _look(self, app: AppState) -> None:
        search = self.search
        search.observe(app)
        if isinstance(search, PhaseSearch):
            count = search.num_phases()
            if not isinstance(count, int) or count < 0:
                raise AdapterError(f"num_phases() returned {count!r}")
            jobs = [checked(search, search.jobs_in_phase(p, ()), ()) for p in range(count)]
        elif isinstance(search, RemainingSearch):
            jobs = [checked(search, search.jobs_remaining(()), ())]
        else:
            raise AdapterError(f"{search!r} is neither a PhaseSearch nor a RemainingSearch")
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
        self._times.clear()
        self._shares.clear()
        if self._seen is not None:
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
                known = time_left_s(self.search, allocation, key[1])
            except Exception as error:
                self._distrust(error)
                known = time_left_s(self.search, allocation, key[1])
            self._times[key] = known
        return known

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
        if isinstance(self.search, PhaseSearch):
            jobs = self.search.jobs_in_phase(0, (gpus,)) if self.search.num_phases() else []
        else:
            assert isinstance(self.search, RemainingSearch)
            jobs = self.search.jobs_remaining((gpus,))
        sizes = [sum(job.gpus) for job in checked(self.search, jobs, (gpus,))]
        return tuple(sorted((size for size in sizes if size), reverse=True))

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

    @property
    def work_left_gpu_s(self) -> float:
        """All work still to do, in GPU-seconds."""
        return math.fsum(phase.work_gpu_s for phase in self.phases)

    def whole(self, done_gpu_s: float) -> list[PhaseSum]:
        """All phases from the app's first to its last, for T_id."""
        over = sum(phase.work_gpu_s for phase in self.past)
        if not self.phases:
            return [*self.past, PhaseSum(max(0.0, done_gpu_s - over), max(1, self._demand))]
        now = self.phases[0]
        begun = max(0.0, done_gpu_s - over) + now.work_gpu_s
        return [*self.past, PhaseSum(begun, max(self._demand, now.demand)), *self.phases[1:]]


def _sum_up(jobs: Sequence[JobInfo], concurrency: float) -> PhaseSum:
    most = sorted((job.max_gpus for job in jobs if job.work_gpu_s > 0), reverse=True)
    at_once = most[: int(min(concurrency, len(most)))]
    return PhaseSum(math.fsum(job.work_gpu_s for job in jobs), max(1, sum(at_once)))
