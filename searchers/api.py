"""The AGENT API: what a tuning algorithm tells of itself, so that its app can bid.

An algorithm is one of two kinds, and answers two questions each (THEMIS, section 3.2):

- :class:`PhaseSearch` (successive halving and its kin) runs in phases, each with fewer jobs than
  the one before: ``num_phases()`` and ``jobs_in_phase(phase, allocation)``;
- :class:`RemainingSearch` (curve stopping, plain searches) has jobs that each end by themselves:
  ``jobs_remaining(allocation)``.

``allocation`` is a list of GPU counts, one for each machine, as in a bid row's ``parts``:
``(4, 2)`` is four GPUs on one machine and two on another. The algorithm decides how its jobs
share these GPUs, and returns each job with its own (:func:`share_out` does the usual split).
From the answers :func:`time_left_s` works out when the app would be done. Adapters get what is
known of the app's trials as an :class:`AppState` through ``observe``.

A whole adapter for a Tune scheduler of one's own::

    @register(MyScheduler)
    class MyAdapter(RemainingSearch):
        def __init__(self, scheduler: MyScheduler) -> None:
            self.scheduler = scheduler

        def jobs_remaining(self, allocation: Sequence[int]) -> Sequence[JobInfo]:
            jobs = [trial.job(until=self.scheduler.last_iteration) for trial in self.app.live]
            return share_out(jobs, allocation)
"""

from __future__ import annotations

import heapq
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from ..core.cluster import Level
from ..errors import AdapterError
from .jobs import AppState, JobInfo, Parts, TrialInfo, median_jobs, share_out

__all__ = [
    "AllTrials",
    "AppState",
    "JobInfo",
    "Parts",
    "PhaseSearch",
    "RemainingSearch",
    "Search",
    "TrialInfo",
    "checked",
    "finish_s",
    "jobs_of",
    "median_jobs",
    "share_out",
    "time_left_s",
    "time_of",
]


class Search:
    """What both kinds share; derive from :class:`PhaseSearch` or :class:`RemainingSearch`."""

    app: AppState = AppState()

    def observe(self, app: AppState) -> None:
        """The AGENT tells what is known of the trials; called before it asks anything."""
        self.app = app

    def gpus_per_trial(self) -> tuple[int, int] | None:
        """The fewest and the most GPUs of any trial, if the search itself decides on them."""
        return None

    def note(self) -> str:
        """A remark for people on how the search is understood; empty when there is none."""
        return ""


class PhaseSearch(Search, ABC):
    """A search in phases: the next starts when the last job of this one has ended."""

    @abstractmethod
    def num_phases(self) -> int:
        """Phases still to do, the current one included; 0 when all is done."""

    @abstractmethod
    def jobs_in_phase(self, phase: int, allocation: Sequence[int]) -> Sequence[JobInfo]:
        """The jobs of a phase, with their GPUs.

        Args:
            phase: 0 is the current one, with its real jobs. Who survives until a later one is
                not known: each of its jobs is the median job (see :func:`median_jobs`).
            allocation: GPUs for each machine; may be empty.
        """


class RemainingSearch(Search, ABC):
    """A search whose jobs end one by one, each by itself."""

    @abstractmethod
    def jobs_remaining(self, allocation: Sequence[int]) -> Sequence[JobInfo]:
        """The jobs not yet done, with their GPUs, the most deserving first.

        Args:
            allocation: GPUs for each machine; may be empty.
        """


class AllTrials(RemainingSearch):
    """Every trial runs to its own end; those that the search will still create are work left too.

    Args:
        scheduler: The scheduler that this tells of, for those derived from it.
    """

    def __init__(self, scheduler: Any = None) -> None:
        self.scheduler = scheduler

    def jobs_remaining(self, allocation: Sequence[int]) -> Sequence[JobInfo]:
        """The live trials in Tune's order, then those to come."""
        return share_out(self.app.jobs(), allocation, at_most=self.app.concurrency)


def time_left_s(search: Search, allocation: Sequence[int], level: Level = Level.MACHINE) -> float:
    """Seconds until a search is done, if it keeps an allocation until then.

    For a :class:`PhaseSearch` it is Equation 2: the sum over phases of the time of the slowest
    job (jobs that do not all fit take turns, longest first); for a :class:`RemainingSearch`, when
    the last job ends (they take turns in the order given). With a single job both are Equation 1.

    Args:
        search: The search.
        allocation: GPUs for each machine.
        level: How far apart the machines are, when there are several.

    Returns:
        0 when nothing is left to do, ``inf`` when the allocation is too small for a job.

    Raises:
        AdapterError: The search's answer cannot be used; the message says why.
    """
    return time_of(search, jobs_of(search, allocation), sum(allocation), level)


def jobs_of(search: Search, allocation: Sequence[int]) -> list[Sequence[JobInfo]]:
    """What a search answers: the jobs of each phase, of one for a :class:`RemainingSearch`.

    Raises:
        AdapterError: The search's answer cannot be used; the message says why.
    """
    if isinstance(search, PhaseSearch):
        phases = search.num_phases()
        if not isinstance(phases, int) or phases < 0:
            raise _refused(
                search, f"num_phases() returned {phases!r}; return a whole number of 0 or more"
            )
        answers = [search.jobs_in_phase(phase, allocation) for phase in range(phases)]
    elif isinstance(search, RemainingSearch):
        answers = [search.jobs_remaining(allocation)]
    else:
        raise _refused(search, "derive it from PhaseSearch or RemainingSearch")
    return [checked(search, jobs, allocation) for jobs in answers]


def time_of(
    search: Search, answers: Sequence[Sequence[JobInfo]], gpus: int, level: Level = Level.MACHINE
) -> float:
    """Seconds that the jobs of a search take, its answers for ``gpus`` GPUs being known.

    Args:
        search: The search.
        answers: What :func:`jobs_of` returned.
        gpus: GPUs of the allocation asked about.
        level: How far apart its machines are, when there are several.
    """
    longest_first = isinstance(search, PhaseSearch)
    return math.fsum(finish_s(jobs, gpus, level, longest_first=longest_first) for jobs in answers)


def finish_s(
    jobs: Sequence[JobInfo],
    gpus: int,
    level: Level = Level.MACHINE,
    *,
    longest_first: bool = False,
) -> float:
    """When the last of some jobs ends on ``gpus`` GPUs, seconds from now.

    Jobs that were given GPUs start first; those that wait follow in the order given, as GPUs come
    free. Nothing is taken from a job before it ends.

    Args:
        jobs: The jobs with their GPUs.
        gpus: GPUs that they share.
        level: How far apart the machines are, when there are several.
        longest_first: When they do not all fit, the longest start first, whatever the order.
    """
    left = [job for job in jobs if job.work_gpu_s > 0]
    if not left:
        return 0.0
    sizes = [sum(job.gpus) or job.min_gpus for job in left]
    if max(sizes) > gpus:
        return math.inf
    times = [job.time_s(level) for job in left]
    if sum(sizes) <= gpus:
        return max(times)
    waits = [not job.gpus for job in left]
    order = sorted(range(len(left)), key=lambda i: -times[i] if longest_first else waits[i])
    return _run_in_turn([(times[i], sizes[i]) for i in order], gpus)


def _run_in_turn(work: Sequence[tuple[float, int]], gpus: int) -> float:
    """The makespan of ``(time, GPUs)`` jobs, each of which starts as soon as its GPUs are free."""
    ends = [0.0] * gpus
    for time_s, size in work:
        taken = [heapq.heappop(ends) for _ in range(size)]
        for _ in range(size):
            heapq.heappush(ends, taken[-1] + time_s)
    return max(ends)


def checked(
    search: Search, jobs: Sequence[JobInfo], allocation: Sequence[int]
) -> Sequence[JobInfo]:
    """The answer of a search, once it has been looked at.

    Raises:
        AdapterError: It is no sequence of :class:`JobInfo`, has a job with a figure that is out
            of range, or gives a job GPUs that it cannot use.
    """
    if not isinstance(jobs, Sequence) or not all(isinstance(job, JobInfo) for job in jobs):
        raise _refused(search, f"it answered {jobs!r:.200}; return a list of JobInfo")
    room = sum(allocation)
    for job in jobs:
        name = job.id or "a job to come"
        if not (0 <= job.iterations_remaining < math.inf and 0 <= job.serial_iter_s < math.inf):
            raise _refused(
                search,
                f"{name} has {job.iterations_remaining} iterations of {job.serial_iter_s} s left; "
                "both must be finite and 0 or more",
            )
        if not 1 <= job.min_gpus <= job.max_gpus:
            raise _refused(
                search, f"{name} runs on {job.min_gpus} to {job.max_gpus} GPUs; use 1 or more"
            )
        size = sum(job.gpus)
        if job.gpus and (min(job.gpus) < 1 or not job.min_gpus <= size <= job.max_gpus):
            raise _refused(
                search,
                f"{name} was given GPUs {job.gpus}, but runs on {job.min_gpus} to {job.max_gpus}",
            )
        if size > room:
            raise _refused(search, f"{name} was given {size} GPUs of an allocation of {room}")
    return jobs


def _refused(search: Search, what: str) -> AdapterError:
    return AdapterError(f"{type(search).__name__}: {what}")
