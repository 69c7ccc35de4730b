"""The split inside a simulated app: which waiting job gets which of the GPUs that the app holds.

For jobs of one size it is the live AGENT's rule (:mod:`themis_ray.agent.split`); a gang that fits
on no machine may lie on several, and jobs of one app may differ in size.
"""

from __future__ import annotations

from collections.abc import Sequence

from themis_ray.agent.split import shares_of
from themis_ray.core.cluster import NOTHING, Allocation, Cluster
from themis_ray.core.commands import LeaseView
from themis_ray.core.valuation import lay_out
from themis_ray.sim.jobrun import JobRun


def divide(waiting: Sequence[JobRun], gpus: int) -> list[tuple[JobRun, int]]:
    """How many GPUs each waiting job gets; jobs for which nothing is left are left out."""
    if not waiting or not gpus:
        return []
    first = waiting[0].spec
    low, high = first.min_gpus, first.max_gpus
    if all(job.spec.min_gpus == low and job.spec.max_gpus == high for job in waiting):
        return list(zip(waiting, shares_of(gpus, len(waiting), low, high), strict=False))
    return _divide_mixed(waiting, gpus)


def _divide_mixed(waiting: Sequence[JobRun], gpus: int) -> list[tuple[JobRun, int]]:
    """The largest gangs that fit, equal ones in order; then one GPU more to each in turn.

    A policy that gives GPUs for a large gang would otherwise see small jobs break them up, and,
    with the rest given back, the same GPUs change hands round after round.
    """
    shares: list[list[int]] = []
    chosen: list[JobRun] = []
    for job in sorted(waiting, key=lambda job: -job.spec.min_gpus):
        if job.spec.min_gpus <= gpus:
            gpus -= job.spec.min_gpus
            chosen.append(job)
            shares.append([job.spec.min_gpus])
    growing = [i for i, job in enumerate(chosen) if job.spec.max_gpus > shares[i][0]]
    while gpus and growing:
        for i in list(growing):
            if not gpus:
                break
            shares[i][0] += 1
            gpus -= 1
            if shares[i][0] >= chosen[i].spec.max_gpus:
                growing.remove(i)
    return [(job, share[0]) for job, share in zip(chosen, shares, strict=True)]


def place_jobs(
    waiting: Sequence[JobRun], idle: Allocation, cluster: Cluster
) -> list[tuple[JobRun, Allocation]]:
    """Give idle GPUs to waiting jobs, each job's as near together as can be.

    A job that would be faster on the GPUs of one machine alone takes only those.
    """
    divided = divide(waiting, idle.size)
    if not divided:
        return []
    if len(divided) == 1 and divided[0][1] == idle.size:
        placed = [idle]
    else:
        placed = lay_out([share for _, share in divided], idle, cluster.racks)
    return [
        (job, best_part(job, allocation, cluster))
        for (job, _), allocation in zip(divided, placed, strict=True)
    ]


def best_part(job: JobRun, allocation: Allocation, cluster: Cluster) -> Allocation:
    """All of an allocation, or the part on its largest machine when that is as fast."""
    if len(allocation) <= 1:
        return allocation
    machine, count = max(allocation.items(), key=lambda item: (item[1], item[0]))
    if count < job.spec.min_gpus:
        return allocation
    part = Allocation({machine: count})
    if rate(job, part, cluster) >= rate(job, allocation, cluster):
        return part
    return allocation


def with_more(job: JobRun, idle: Allocation, cluster: Cluster) -> Allocation:
    """Where a job would move to if it had some idle GPUs besides its own."""
    room = job.allocation + idle
    size = min(room.size, job.spec.max_gpus)
    return best_part(job, lay_out((size,), room, cluster.racks)[0], cluster)


def rate(job: JobRun, allocation: Allocation, cluster: Cluster) -> float:
    """Iterations a second of a job on some GPUs."""
    return job.rate_on(allocation.size, cluster.level(allocation))


def staying(groups: Sequence[JobRun], room: Allocation) -> tuple[set[str], Allocation]:
    """Which jobs' groups fit into what the app keeps; earlier ones have precedence.

    The rule of :func:`themis_ray.agent.split.staying`, for apps of many jobs.

    Returns:
        The groups' names, and the GPUs left over.
    """
    left = dict(room)
    keep = set()
    for job in groups:
        if all(left.get(machine, 0) >= count for machine, count in job.allocation.items()):
            keep.add(job.group)
            for machine, count in job.allocation.items():
                left[machine] -= count
    return keep, Allocation(left) if any(left.values()) else NOTHING


def without(leases: Sequence[LeaseView], gpus: Allocation) -> tuple[LeaseView, ...]:
    """The leases once some GPUs have been given back; the arbiter's own word follows."""
    out = []
    for lease in sorted(leases, key=lambda x: x.expires_s):
        if not lease.final and lease.held:
            taken = lease.held & gpus
            gpus = gpus - taken
            lease = LeaseView(
                lease.id, lease.held - taken, lease.pending, lease.expires_s, lease.final
            )
        out.append(lease)
    return tuple(out)
