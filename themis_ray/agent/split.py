"""The split inside an app: which trial gets which of the GPUs that the app holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from themis_ray.core.cluster import Allocation, Level
from themis_ray.core.commands import LeaseView
from themis_ray.core.explain import Reason, TrialSpread, TrialTogether
from themis_ray.core.slowdown import Signature
from themis_ray.core.valuation import lay_out, split_even
from themis_ray.searchers.api import JobInfo, share_out


def staying(
    groups: Sequence[tuple[str, Allocation]], room: Allocation
) -> tuple[set[str], Allocation]:
    """Which groups fit into what the app keeps; earlier ones in the list have precedence.

    Returns:
        Their names, and the GPUs left over.
    """
    keep = set()
    for name, allocation in groups:
        if allocation <= room:
            keep.add(name)
            room = room - allocation
    return keep, room


def shares_of(idle: int, waiting: int, smallest: int, largest: int) -> tuple[int, ...]:
    """How many GPUs each of some waiting trials that are all alike gets.

    As many trials as possible run, each on at least ``smallest``; what remains is spread over
    them evenly, up to ``largest`` each. Trials beyond the first ``len(result)`` wait on.
    """
    count = min(waiting, idle // smallest)
    if count == 0:
        return ()
    if smallest == largest:
        return (smallest,) * count
    return tuple(min(largest, share) for share in split_even(idle, count))


def place(
    waiting: Sequence[JobInfo],
    idle: Allocation,
    signature: Callable[[Allocation], Signature],
    racks: Mapping[str, str],
) -> tuple[dict[str, Allocation], dict[str, Reason]]:
    """Give idle GPUs to waiting trials, each trial's as near together as can be.

    The trials that would suffer most from being spread choose their machines first. One that
    would be slower on several machines than on the best of them alone stays on that one.

    Args:
        waiting: The trials that wait, those to be served first in front.
        idle: The GPUs.
        signature: The placement signature of some of them.
        racks: The rack of each machine.

    Returns:
        The GPUs of each trial that gets any, and the remarks to be made about it.
    """
    started = [job for job in share_out(waiting, (idle.size,)) if job.gpus]
    sizes = [sum(job.gpus) for job in started]
    known = {machine: racks.get(machine, "r0") for machine in idle}
    sensitivity = [_apart(job, size) for job, size in zip(started, sizes, strict=True)]
    placed: dict[str, Allocation] = {}
    reasons: dict[str, Reason] = {}
    for job, spread in zip(started, lay_out(sizes, idle, known, sensitivity), strict=True):
        s = job.sensitivity.s(signature(spread))
        together = _together(job, spread, s, signature)
        placed[job.id] = together or spread
        if together is not None:
            reasons[job.id] = TrialTogether(job.id, together, spread, s)
        elif len(spread) > 1:
            reasons[job.id] = TrialSpread(job.id, spread, s)
    return placed, reasons


def _apart(job: JobInfo, size: int) -> float:
    return job.sensitivity.s(Signature((1,) * size, Level.CLUSTER)) if size > 1 else 1.0


def _together(
    job: JobInfo, spread: Allocation, s: float, signature: Callable[[Allocation], Signature]
) -> Allocation | None:
    """The part of a spread allocation on one machine, if the trial is faster on that alone."""
    if len(spread) < 2:
        return None
    machine = max(spread, key=lambda m: (spread.on(m), m))
    alone = Allocation({machine: spread.on(machine)})
    if alone.size < job.min_gpus:
        return None
    faster = alone.size / job.sensitivity.s(signature(alone)) > spread.size / s
    return alone if faster else None


def growth_saves_s(
    left_gpu_s: float, rate: float, grown: float, restart_s: float, window_s: float
) -> float:
    """How much sooner a trial ends if it restarts on more GPUs, seconds; negative if later.

    Args:
        left_gpu_s: Its work left, in GPU-seconds on one GPU.
        rate: What it does of that in a second now.
        grown: What it would do in a second after its restart.
        restart_s: What the restart takes, checkpoint included.
        window_s: How long the GPUs will be there; ``inf`` when that is open.
    """
    stays_s = left_gpu_s / rate
    grows_s = restart_s + left_gpu_s / grown
    if grows_s > window_s:
        # The GPUs are gone before it ends: it goes on as it does now.
        done = max(0.0, window_s - restart_s) * grown
        grows_s = max(window_s, restart_s) + (left_gpu_s - done) / rate
    return stays_s - grows_s


def without(leases: Sequence[LeaseView], gpus: Allocation) -> tuple[LeaseView, ...]:
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
