"""Jobs and trials as tuning algorithms see them, and how jobs share GPUs."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..core.cluster import Level
from ..core.slowdown import Signature, SlowdownTable
from ..core.valuation import Split, median_iter_s, split_even, split_makespan
from ..errors import AdapterError

Parts = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class JobInfo:
    """One job (trial), as its algorithm sees it.

    Attributes:
        id: The trial's id; empty for a job that does not exist yet.
        iterations_remaining: Training iterations still to do (an estimate; of a phase, in it).
        serial_iter_s: Seconds of one iteration on one GPU.
        min_gpus: The fewest GPUs that it runs on.
        max_gpus: The most GPUs that it can use, d in Equation 1.
        gpus: Its GPUs out of the allocation asked about, one count for each machine; empty while
            it waits for others to end.
        sensitivity: Its placement sensitivity, S(G).
    """

    id: str
    iterations_remaining: float
    serial_iter_s: float
    min_gpus: int = 1
    max_gpus: int = 1
    gpus: Parts = ()
    sensitivity: SlowdownTable = field(default_factory=SlowdownTable, compare=False, repr=False)

    @property
    def work_gpu_s(self) -> float:
        """GPU-seconds left, without any slowdown."""
        return self.iterations_remaining * self.serial_iter_s

    def on(self, gpus: Parts) -> JobInfo:
        """The same job on other GPUs; what ``dataclasses.replace`` does, in half the time."""
        return JobInfo(
            self.id,
            self.iterations_remaining,
            self.serial_iter_s,
            self.min_gpus,
            self.max_gpus,
            gpus,
            self.sensitivity,
        )

    def time_s(self, level: Level = Level.MACHINE) -> float:
        """Seconds that it still takes on its GPUs (on ``min_gpus`` of one machine if it waits).

        Args:
            level: How far apart the machines are, when its GPUs are on several.
        """
        parts = self.gpus or (self.min_gpus,)
        gpus = sum(parts)
        apart = level if len(parts) > 1 else Level.MACHINE
        return self.work_gpu_s * self.sensitivity.s(Signature(parts, apart)) / gpus


@dataclass(frozen=True, slots=True)
class TrialInfo:
    """One trial, as the AGENT knows it.

    Attributes:
        id: Tune's trial id.
        iterations_done: As of its last report.
        iterations_total: Iterations until it ends by itself, as far as is known.
        serial_iter_s: Seconds of one iteration on one GPU; the other trials' median before its
            own first report.
        min_gpus: The fewest GPUs of a trial of this app.
        max_gpus: The most.
        live: It has not ended.
        running: It has GPUs now.
        sensitivity: Its placement sensitivity, S(G).
        last_result: What it last reported.
    """

    id: str
    iterations_done: float = 0.0
    iterations_total: float = 1.0
    serial_iter_s: float = 1.0
    min_gpus: int = 1
    max_gpus: int = 1
    live: bool = True
    running: bool = False
    sensitivity: SlowdownTable = field(default_factory=SlowdownTable, compare=False, repr=False)
    last_result: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def job(self, until: float = math.inf) -> JobInfo:
        """The trial as a job that ends at iteration ``until``, or by itself before that."""
        end = min(until, self.iterations_total)
        # One that is a little late still has something to do.
        left = max(1.0, end - self.iterations_done)
        return JobInfo(
            self.id,
            left,
            self.serial_iter_s,
            self.min_gpus,
            self.max_gpus,
            sensitivity=self.sensitivity,
        )


@dataclass(frozen=True, slots=True)
class AppState:
    """An app, as the AGENT knows it, and what it hands to adapters.

    Attributes:
        trials: All its trials in the order in which Tune made them, those that have ended too.
        to_come: Trials that the search will still create.
        concurrency: The most trials that run at once; ``inf`` when that is not limited.
    """

    trials: tuple[TrialInfo, ...] = ()
    to_come: int = 0
    concurrency: float = math.inf

    @property
    def live(self) -> tuple[TrialInfo, ...]:
        """The trials that have not ended."""
        return tuple(trial for trial in self.trials if trial.live)

    def trial(self, trial_id: str) -> TrialInfo | None:
        """The trial of that id; None when there is none."""
        return next((trial for trial in self.trials if trial.id == trial_id), None)

    def typical(self) -> TrialInfo:
        """What a trial that does not exist yet is taken to be: the median of those that do."""
        if not self.trials:
            return TrialInfo("")
        totals = sorted(trial.iterations_total for trial in self.trials)
        return replace(
            self.trials[-1],
            id="",
            iterations_done=0.0,
            iterations_total=totals[len(totals) // 2],
            serial_iter_s=median_iter_s([trial.serial_iter_s for trial in self.trials]),
            live=True,
            running=False,
            last_result={},
        )

    def jobs(self) -> list[JobInfo]:
        """All work left when every trial runs to its end: those that live and those to come."""
        return [trial.job() for trial in self.live] + [self.typical().job()] * self.to_come


def median_jobs(
    count: int, iterations: float, like: Sequence[JobInfo], **changes: int
) -> list[JobInfo]:
    """The jobs of a phase to come: all as slow as the (upper) median of the jobs of this one.

    Args:
        count: How many jobs.
        iterations: What each has to do in that phase.
        like: The jobs of the current phase.
        **changes: Other fields of the jobs, such as ``max_gpus``.
    """
    if not like:
        raise AdapterError("median_jobs needs the jobs of the current phase, and got none")
    model = sorted(like, key=lambda job: job.serial_iter_s)[len(like) // 2]
    job = replace(model, id="", gpus=(), iterations_remaining=iterations)
    for name, value in changes.items():
        job = replace(job, **{name: value})  # type: ignore[arg-type]
    return [job] * count


def share_out(
    jobs: Sequence[JobInfo],
    allocation: Sequence[int],
    split: Split = "makespan",
    at_most: float = math.inf,
) -> list[JobInfo]:
    """Divide an allocation among jobs.

    As many jobs as can be get their least number of GPUs, in the order given; the rest wait. What
    remains makes jobs larger: ``makespan`` gives each further GPU to the job that would end
    last, so that the slowest is done soonest; ``even`` gives equal shares and the remainder to
    the slowest. Each job is then laid on as few machines as can be, the more sensitive first.

    Args:
        jobs: The jobs.
        allocation: GPUs for each machine.
        split: See above.
        at_most: The most jobs that run at once (the search's ``concurrency``).

    Returns:
        The jobs with their ``gpus``, in the order given.
    """
    room = sum(allocation)
    started: list[int] = []
    for i, job in enumerate(jobs):
        if job.min_gpus <= room and len(started) < at_most:
            started.append(i)
            room -= job.min_gpus
    sizes = {i: jobs[i].min_gpus for i in started}
    if room and started:
        sizes = _grow([jobs[i] for i in started], started, sizes, room, split)
    placed = _lay_out(jobs, sizes, allocation)
    return [job.on(placed.get(i, ())) for i, job in enumerate(jobs)]


def _grow(
    jobs: Sequence[JobInfo], names: Sequence[int], sizes: dict[int, int], room: int, split: Split
) -> dict[int, int]:
    same = all((j.min_gpus, j.max_gpus) == (1, jobs[0].max_gpus) for j in jobs)
    if same:  # the common case, which core.valuation knows how to do
        order = sorted(range(len(jobs)), key=lambda k: -jobs[k].work_gpu_s)
        work, gpus, most = [jobs[k].work_gpu_s for k in order], len(jobs) + room, jobs[0].max_gpus
        if split == "even":
            shares = tuple(min(n, most) for n in split_even(gpus, len(jobs)))
        else:
            shares = split_makespan(work, gpus, most)
        return {names[k]: share for k, share in zip(order, shares, strict=True)}
    out = dict(sizes)

    def key(k: int, size: int) -> tuple[float, float]:
        if split == "even":
            return (size, -jobs[k].work_gpu_s)
        return (-jobs[k].work_gpu_s / size, 0.0)

    heap = [(key(k, out[i]), k, i) for k, i in enumerate(names) if out[i] < jobs[k].max_gpus]
    heapq.heapify(heap)
    while heap and room:
        _, k, i = heapq.heappop(heap)
        out[i] += 1
        room -= 1
        if out[i] < jobs[k].max_gpus:
            heapq.heappush(heap, (key(k, out[i]), k, i))
    return out


def _lay_out(
    jobs: Sequence[JobInfo], sizes: dict[int, int], allocation: Sequence[int]
) -> dict[int, Parts]:
    """Each job's GPUs by machine: the tightest machine that holds it, or else the fewest."""
    if all(size == 1 for size in sizes.values()) or len(allocation) == 1:
        return {i: (size,) for i, size in sizes.items()}
    room = sorted(allocation)
    out: dict[int, Parts] = {}

    def first(i: int) -> tuple[float, int]:
        size = sizes[i]
        apart = Signature((1,) * size, Level.CLUSTER)
        return (-jobs[i].sensitivity.s(apart) if size > 1 else 0.0, -size)

    for i in sorted(sizes, key=first):
        out[i] = _take(room, sizes[i])
    return out


def _take(room: list[int], gpus: int) -> Parts:
    """Take GPUs from ``room``, which is kept in ascending order."""
    fit = next((k for k, free in enumerate(room) if free >= gpus), None)
    taken = []
    if fit is not None:
        taken.append(gpus)
        room[fit] -= gpus
    while sum(taken) < gpus:
        k = max(range(len(room)), key=lambda k: room[k])
        part = min(room[k], gpus - sum(taken))
        taken.append(part)
        room[k] -= part
    room.sort()
    return tuple(sorted(taken, reverse=True))
