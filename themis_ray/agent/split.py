"""The split inside an app: which trial gets which of the GPUs that the app holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from themis_ray.core.cluster import NOTHING, Allocation
from themis_ray.core.valuation import lay_out, split_even


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
    """How many GPUs each waiting trial gets.

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
    waiting: Sequence[str],
    idle: Allocation,
    smallest: int,
    largest: int,
    racks: Mapping[str, str],
) -> dict[str, Allocation]:
    """Give idle GPUs to waiting trials, each trial's as near together as can be."""
    shares = shares_of(idle.size, len(waiting), smallest, largest)
    known = {machine: racks.get(machine, "r0") for machine in idle}
    placed = lay_out(shares, idle, known)
    return dict(zip(waiting, placed, strict=False))


def total(allocations: Sequence[Allocation]) -> Allocation:
    """All GPUs of some allocations together."""
    out = NOTHING
    for allocation in allocations:
        out = out + allocation
    return out
