"""What an app would get from a bundle: its finish time by Equations 1 and 2 of THEMIS.

Within a phase of successive halving, the jobs share the bundle. With fewer GPUs than jobs, each
job runs on one GPU and the jobs queue on the GPUs, longest first. Otherwise there are two rules:

- ``even`` (the default): ``floor(gpus / jobs)`` GPUs each and the remainder one each to the
  slowest jobs. This is the rule behind the paper's worked example: on 16 GPUs its four jobs get
  4 each and the first phase takes 240 s.
- ``makespan``: whatever split finishes the slowest job soonest. In the worked example it gives
  the slow job more than its even share and the first phase takes 213.3 s. It is never slower
  than ``even``, but promises a time that an app which shares evenly does not keep.

Times are in seconds from the app's start; iteration times are those of one GPU.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from themis_ray.core.cluster import Allocation, Cluster, Level, Machine
from themis_ray.core.fairness import Phase
from themis_ray.errors import InvalidInputError

Split = Literal["even", "makespan"]

# S(G): one figure for every job that runs on more than one GPU, or a function from the jobs'
# GPU counts to the S of each.
Slowdown = float | Callable[[Sequence[int]], Sequence[float]]


class JobWork(NamedTuple):
    """What a job still has to do.

    Attributes:
        iterations: Iterations left.
        serial_iter_s: Seconds of one iteration on one GPU.
    """

    iterations: float
    serial_iter_s: float

    @property
    def gpu_s(self) -> float:
        """GPU-seconds left, without any slowdown."""
        return self.iterations * self.serial_iter_s


def split_even(gpus: int, n: int) -> tuple[int, ...]:
    """Divide ``gpus`` among ``n`` takers, the larger shares first; shares differ by at most one.

    Raises:
        InvalidInputError: ``gpus`` is negative or ``n`` is not positive.
    """
    if gpus < 0 or n < 1:
        raise InvalidInputError(
            f"cannot divide {gpus} GPUs among {n} jobs; use 0 or more GPUs and 1 or more jobs"
        )
    base, rest = divmod(gpus, n)
    return (base + 1,) * rest + (base,) * (n - rest)


def split_makespan(work_gpu_s: Sequence[float], gpus: int, demand_max: int) -> tuple[int, ...]:
    """Divide ``gpus`` (at least one per job) so that the slowest job ends soonest.

    Every job gets one GPU, and each further GPU goes to the job that would end last. This is
    optimal, since a job's time falls with every GPU and no job's GPU helps another.

    Returns:
        The GPUs of each job, in the order given, none above ``demand_max``.
    """
    shares = [1] * len(work_gpu_s)
    heap = [(-work, i) for i, work in enumerate(work_gpu_s) if demand_max > 1]
    heapq.heapify(heap)
    for _ in range(gpus - len(shares)):
        if not heap:
            break
        _, i = heap[0]
        shares[i] += 1
        if shares[i] < demand_max:
            heapq.heapreplace(heap, (-work_gpu_s[i] / shares[i], i))
        else:
            heapq.heappop(heap)
    return tuple(shares)


def pack_longest_first(durations_s: Iterable[float], gpus: int) -> float:
    """The time in which one-GPU jobs are done on ``gpus`` GPUs, longest job first, in seconds."""
    ends = [0.0] * gpus
    for duration in sorted(durations_s, reverse=True):
        heapq.heapreplace(ends, ends[0] + duration)
    return max(ends)


def phase_time_s(
    jobs_work: Sequence[tuple[float, float]],
    gpus: int,
    demand_max: int,
    slowdown: Slowdown = 1.0,
    split: Split = "even",
) -> float:
    """How long a phase takes: until its last job is done, in seconds.

    Args:
        jobs_work: ``(iterations, serial_iter_s)`` of each job, see :class:`JobWork`.
        gpus: GPUs that the jobs share.
        demand_max: The most GPUs that one job can use, d.
        slowdown: S(G) of the jobs. A job on one GPU has S = 1 whatever is said here.
        split: How the jobs share the GPUs, see the module's text.

    Returns:
        0 when there is nothing to do, ``inf`` when there is work and no GPU.

    Raises:
        InvalidInputError: A count, a time or the slowdown is out of range.
    """
    work = [JobWork(*job) for job in jobs_work]
    _check(work, gpus, demand_max)
    if split not in ("even", "makespan"):
        raise InvalidInputError(f"split {split!r} is unknown; use 'even' or 'makespan'")
    # Longest first: the order in which jobs are packed and in which "even" gives the remainder.
    durations = sorted((job.gpu_s for job in work if job.gpu_s > 0), reverse=True)
    if not durations:
        return 0.0
    if gpus == 0:
        return math.inf
    if gpus < len(durations):
        return pack_longest_first(durations, gpus)
    if split == "even":
        shares = tuple(min(k, demand_max) for k in split_even(gpus, len(durations)))
    else:
        shares = split_makespan(durations, gpus, demand_max)
    factors = _slowdowns(slowdown, shares)
    return max(
        duration * s / share for duration, share, s in zip(durations, shares, factors, strict=True)
    )


def _check(work: Sequence[JobWork], gpus: int, demand_max: int) -> None:
    if gpus < 0 or demand_max < 1:
        raise InvalidInputError(
            f"{gpus} GPUs for jobs that use at most {demand_max}; "
            "use 0 or more GPUs and a demand of 1 or more"
        )
    for job in work:
        if not (0 <= job.iterations < math.inf and 0 <= job.serial_iter_s < math.inf):
            raise InvalidInputError(
                f"a job has {job.iterations} iterations of {job.serial_iter_s} s; "
                "both must be finite and 0 or more"
            )


def _slowdowns(slowdown: Slowdown, shares: Sequence[int]) -> Sequence[float]:
    factors = slowdown(shares) if callable(slowdown) else [slowdown] * len(shares)
    if not all(1 <= s < math.inf for s in factors):
        raise InvalidInputError(f"slowdown {list(factors)}; S(G) is a number of 1 or more")
    return [1.0 if share == 1 else s for share, s in zip(shares, factors, strict=True)]


def median_iter_s(serial_iter_s: Sequence[float]) -> float:
    """The median job's serial iteration time; of an even number of jobs, the slower of the two.

    The slower one, because that is how the paper revises its estimate when two jobs are left
    (120 and 100 s: phase 3 is expected to take ``120 * 36 / 2`` s).
    """
    if not serial_iter_s:
        raise InvalidInputError("no jobs are listed; list the jobs of the current phase")
    return sorted(serial_iter_s)[len(serial_iter_s) // 2]


def future_phases_work(
    serial_iter_s: Sequence[float], future: Sequence[Phase]
) -> list[list[JobWork]]:
    """The jobs of phases to come: who survives is unknown, so each is the median job."""
    median = median_iter_s(serial_iter_s)
    return [[JobWork(phase.iterations, median)] * phase.jobs for phase in future]


def successive_halving_t_shared_s(
    current: Sequence[tuple[float, float]],
    future: Sequence[Phase],
    *,
    gpus: int,
    demand_max: int,
    elapsed_s: float = 0.0,
    slowdown: Slowdown = 1.0,
    split: Split = "even",
) -> float:
    """T_sh of an app under successive halving (Equation 2), in seconds from its start.

    The bundle is assumed to stay until the app is done; the next rounds correct that.

    Args:
        current: ``(iterations left, serial_iter_s)`` of each job of the current phase.
        future: The phases after it, in order.
        gpus: GPUs in the bundle.
        demand_max: The most GPUs that one job can use, d.
        elapsed_s: Seconds since the app started.
        slowdown: S(G) of the jobs.
        split: How the jobs of a phase share the GPUs.

    Returns:
        T_sh; ``inf`` without GPUs.
    """
    phases = [[JobWork(*job) for job in current]]
    phases += future_phases_work([job.serial_iter_s for job in phases[0]], future)
    return elapsed_s + math.fsum(
        phase_time_s(jobs, gpus, demand_max, slowdown, split) for jobs in phases
    )


def single_job_t_shared_s(
    iterations_left: float,
    serial_iter_s: float,
    *,
    gpus: int,
    demand_max: int,
    elapsed_s: float = 0.0,
    slowdown: Slowdown = 1.0,
) -> float:
    """T_sh of an app of one job (Equation 1), in seconds from its start; ``inf`` without GPUs."""
    job = (iterations_left, serial_iter_s)
    return elapsed_s + phase_time_s([job], gpus, demand_max, slowdown)


def lay_out(
    shares: Sequence[int],
    bundle: Mapping[str, int],
    racks: Mapping[str, str],
    sensitivity: Sequence[float] = (),
) -> list[Allocation]:
    """Place jobs on the GPUs of a bundle, each as near together as what is left allows.

    More sensitive jobs choose first, and of equally sensitive ones the larger: the machine with the
    least room that still holds the job, or else the machines of one rack, or else any machines,
    those with the most room first.

    Args:
        shares: GPUs of each job; together no more than the bundle has.
        bundle: GPUs per machine.
        racks: The rack of each machine.
        sensitivity: How much each job suffers when its GPUs are apart; all alike when empty.

    Returns:
        The GPUs of each job, in the order given.
    """
    room = dict(bundle)
    placed: dict[int, Allocation] = {}
    feels = sensitivity or [1.0] * len(shares)
    for i in sorted(range(len(shares)), key=lambda i: (-feels[i], -shares[i])):
        placed[i] = _nearest(shares[i], room, racks)
        for machine, count in placed[i].items():
            room[machine] -= count
    return [placed[i] for i in range(len(shares))]


def _nearest(gpus: int, room: Mapping[str, int], racks: Mapping[str, str]) -> Allocation:
    """``gpus`` GPUs out of ``room`` at the best level, on the fewest machines of that level."""
    if gpus == 0:
        return Allocation()
    fits = [(free, machine) for machine, free in room.items() if free >= gpus]
    if fits:
        return Allocation({min(fits)[1]: gpus})
    by_rack: dict[str, list[tuple[int, str]]] = {}
    for machine, free in room.items():
        by_rack.setdefault(racks[machine], []).append((-free, machine))
    in_rack = [
        _largest_first(gpus, sorted(machines))
        for machines in by_rack.values()
        if -sum(free for free, _ in machines) >= gpus
    ]
    if in_rack:
        return min(in_rack, key=lambda a: (len(a), sorted(a)))
    return _largest_first(gpus, sorted((-free, machine) for machine, free in room.items()))


def _largest_first(gpus: int, machines: Iterable[tuple[int, str]]) -> Allocation:
    taken: dict[str, int] = {}
    for negative_free, machine in machines:
        taken[machine] = min(-negative_free, gpus - sum(taken.values()))
    if sum(taken.values()) < gpus:
        raise InvalidInputError(
            f"{gpus} GPUs do not fit on {len(taken)} machines with {sum(taken.values())} in all"
        )
    return Allocation(taken)


def place_best_first(gpus: int, machines: Sequence[Machine]) -> Allocation:
    """The best-placed bundle of ``gpus`` GPUs on empty machines.

    Raises:
        InvalidInputError: The machines do not have that many GPUs.
    """
    return _nearest(gpus, {m.id: m.gpus for m in machines}, {m.id: m.rack for m in machines})


def placed_slowdown(
    bundle: Allocation, cluster: Cluster, by_level: Mapping[Level, float]
) -> Callable[[Sequence[int]], list[float]]:
    """S(G_j) of each job that runs in a bundle, from the level at which the job itself lies.

    A job that fits on one machine is not slowed down by the bundle's other machines.

    Args:
        bundle: The GPUs that the jobs share.
        cluster: The machines with their racks and slots.
        by_level: S for each placement level.
    """

    def slowdowns(shares: Sequence[int]) -> list[float]:
        parts = lay_out(shares, bundle, cluster.racks)
        return [by_level[cluster.level(part)] for part in parts]

    return slowdowns
