"""How a bidder pays in whole GPUs: it keeps the fraction c of its bundle, rounded by chance.

Rounding down would leave two like apps on two GPUs with nothing at all (each has c = 1/2). So a
bidder keeps ``floor(c * n)`` GPUs and one more with the probability of the fraction: c of its
GPUs on average. An app that cannot run on one GPU (its smallest row is a gang) would get pieces
that it cannot use; it keeps one of the two sizes in its table next to ``c * n``, with the
probabilities that make the average right.
"""

from __future__ import annotations

from collections.abc import Sequence

from themis_ray.core.bids import BidRow, BidTable
from themis_ray.core.cluster import NOTHING, Allocation, Level


def keep_gpus(table: BidTable, won: Allocation, factor: float, draw: float) -> Allocation:
    """The part of a bundle that a bidder keeps.

    Args:
        table: Its bids, which say which parts of the bundle are worth something.
        won: The bundle.
        factor: c, above 0 and at most 1.
        draw: A number drawn evenly from [0, 1).
    """
    if factor >= 1 or not won:
        return won
    inside = [(row, bundle) for row in table.rows if (bundle := _within(row, won)) is not None]
    size = _rounded(factor * won.size, _usable_sizes(inside, won.size), draw)
    return _best_of_size(inside, won, size)


def _usable_sizes(inside: Sequence[tuple[BidRow, Allocation]], most: int) -> list[int]:
    """The sizes that the app could keep, ascending: all of them, unless it runs in gangs."""
    listed = sorted({0, most} | {row.size for row, _ in inside})
    return list(range(most + 1)) if listed[1:2] == [1] else listed


def _rounded(target: float, sizes: Sequence[int], draw: float) -> int:
    """One of the two sizes around ``target``, so that the average is ``target``."""
    # A product such as 1/2 * 4 may miss the whole number by a rounding error.
    target = round(target, 9)
    low = max(size for size in sizes if size <= target)
    high = min(size for size in sizes if size >= target)
    return high if high > low and draw < (target - low) / (high - low) else low


def _within(row: BidRow, won: Allocation) -> Allocation | None:
    """The row's bundle inside ``won``, or None when it does not fit."""
    if row.size > won.size or not row.pinned <= won:
        return None
    if row.level <= Level.MACHINE:
        return _on_one_machine(row, won)
    free = dict(won - row.pinned)
    bundle = dict(row.pinned)
    for part in row.parts:
        fitting = [m for m, room in free.items() if room >= part]
        if not fitting:
            return None
        # Where the bundle is already, then the tightest fit.
        machine = min(fitting, key=lambda m: (m not in bundle, free[m], m))
        free[machine] -= part
        bundle[machine] = bundle.get(machine, 0) + part
    return Allocation(bundle)


def _on_one_machine(row: BidRow, won: Allocation) -> Allocation | None:
    names = list(row.pinned) or [m for m, room in won.items() if room >= row.size]
    fitting = [m for m in names if won.on(m) >= row.size]
    if not fitting:
        return None
    return Allocation({min(fitting, key=lambda m: (won[m], m)): row.size})


def _best_of_size(
    inside: Sequence[tuple[BidRow, Allocation]], won: Allocation, size: int
) -> Allocation:
    """``size`` GPUs of ``won``: the most valuable row among them, the others close by."""
    bundle, value = NOTHING, 0.0
    for row, fitted in inside:
        if row.size <= size and row.value > value:
            bundle, value = fitted, row.value
    counts = dict(bundle)
    missing = size - bundle.size
    while missing:
        room = {m: c - counts.get(m, 0) for m, c in won.items() if c > counts.get(m, 0)}
        machine = min(room, key=lambda m: (m not in counts, -min(room[m], missing), m))
        taken = min(room[machine], missing)
        counts[machine] = counts.get(machine, 0) + taken
        missing -= taken
    return Allocation(counts)
