"""Where GPUs are taken from: near together, on the tightest fit, and without moving who runs.

All policies that give out counts of GPUs (everything but the auctions) place with these helpers,
so that they differ in whom they serve and not in how well they place. The exceptions are the
policies that *are* placement rules: Tiresias' spreading and YARN's strict consolidation.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from themis_ray.core.cluster import NOTHING, Allocation, Cluster


class Room:
    """GPUs that are still to be had, per machine.

    The choosing methods return a bundle and do not take it.

    Args:
        free: The GPUs.
        cluster: The machines with their racks.
    """

    def __init__(self, free: Allocation, cluster: Cluster) -> None:
        self.free = free.counts()
        self.size = free.size
        self._cluster = cluster
        # The machines with so many free GPUs, as heaps, once they have been asked for. A machine
        # stays in the heaps of earlier numbers until it comes up there.
        self._heaps: dict[int, list[str]] | None = None

    def has(self, gpus: Allocation) -> bool:
        """Whether these GPUs are all to be had."""
        free = self.free
        # A loop is faster than all(), and this is asked very often.
        for machine, count in gpus.items():  # noqa: SIM110
            if free.get(machine, 0) < count:
                return False
        return True

    def part(self, gpus: Allocation) -> Allocation:
        """As many of these GPUs as are to be had."""
        free = self.free
        return Allocation.summed({m: min(c, free[m]) for m, c in gpus.items() if m in free})

    def take(self, gpus: Allocation) -> None:
        """Take GPUs out."""
        free = self.free
        for machine, count in gpus.items():
            left = free[machine] - count
            if left:
                free[machine] = left
                self._note(machine, left)
            else:
                del free[machine]
        self.size -= gpus.size

    def give(self, gpus: Allocation) -> None:
        """Put GPUs back."""
        for machine, count in gpus.items():
            self.free[machine] = self.free.get(machine, 0) + count
            self._note(machine, self.free[machine])
        self.size += gpus.size

    def nearest(self, count: int, near: Allocation = NOTHING) -> Allocation:
        """``count`` GPUs (no more than there are) as near together as can be.

        One machine (where ``near`` lies, else the tightest that holds all); else one rack, on
        the fewest machines; else anywhere, on the fewest machines.
        """
        if count <= 0:
            return NOTHING
        best = self._tightest(count, near)
        if best is not None:
            return Allocation.on_one(best, count)
        racks = self._by_rack()
        whole = [ms for ms in racks.values() if sum(self.free[m] for m in ms) >= count]
        if not whole:
            return self._largest_first(self.free, count, near)
        bundles = [self._largest_first(ms, count, near) for ms in whole]
        return min(bundles, key=lambda b: (not b & near, len(b), self._left_over(b), tuple(b)))

    def fewest(self, count: int) -> Allocation:
        """``count`` GPUs (no more than there are) on the fewest machines, whatever their rack."""
        near = self.nearest(count)
        anywhere = self._largest_first(self.free, count, NOTHING)
        return near if len(near) <= len(anywhere) else anywhere

    def spread(self, count: int) -> Allocation:
        """``count`` GPUs (no more than there are) that leave the most whole machines free.

        Fills machines that are in use already, those with the fewest free GPUs first.
        """
        counts: dict[str, int] = {}
        for machine in sorted(self.free, key=lambda m: (not self._in_use(m), self.free[m], m)):
            if count:
                counts[machine] = min(count, self.free[machine])
                count -= counts[machine]
        return Allocation(counts)

    def _note(self, machine: str, free: int) -> None:
        """A machine now has so many free GPUs."""
        if self._heaps is not None:
            heapq.heappush(self._heaps.setdefault(free, []), machine)

    def _tightest(self, count: int, near: Allocation) -> str | None:
        """The machine that holds so many GPUs: where ``near`` lies, else the tightest."""
        free = self.free
        mine = [(free[m], m) for m in near if free.get(m, 0) >= count]
        if mine:
            return min(mine)[1]
        if self._heaps is None:
            self._heaps = {}
            for machine in sorted(free):  # sorted lists are heaps
                self._heaps.setdefault(free[machine], []).append(machine)
        for room in sorted(self._heaps):
            heap = self._heaps[room]
            if room < count:
                continue
            while heap and free.get(heap[0]) != room:
                heapq.heappop(heap)
            if heap:
                return heap[0]
        return None

    def _in_use(self, machine: str) -> bool:
        known = self._cluster.by_id.get(machine)
        return known is not None and self.free[machine] < known.gpus

    def _by_rack(self) -> dict[str, list[str]]:
        racks: dict[str, list[str]] = {}
        for machine in self.free:
            racks.setdefault(self._cluster.racks.get(machine, ""), []).append(machine)
        return racks

    def _left_over(self, bundle: Allocation) -> int:
        return sum(self.free[m] for m in bundle) - bundle.size

    def _largest_first(self, machines: Iterable[str], count: int, near: Allocation) -> Allocation:
        """On the fewest machines; the rest that is no whole machine goes to the tightest fit."""
        counts: dict[str, int] = {}
        order = sorted(machines, key=lambda m: (-self.free[m], not near.on(m), m))
        for i, machine in enumerate(order):
            if self.free[machine] < count:
                counts[machine] = self.free[machine]
                count -= self.free[machine]
                continue
            fits = [m for m in order[i:] if self.free[m] >= count]
            best = min(fits, key=lambda m: (not near.on(m), self.free[m], m))
            counts[best] = count
            break
        return Allocation(counts)


Style = Callable[[Room, int, Allocation], Allocation]
"""Chooses GPUs for a job that does not run: ``(room, how many, near) -> bundle``."""


def nearest(room: Room, count: int, near: Allocation) -> Allocation:
    """The default style, :meth:`Room.nearest`."""
    return room.nearest(count, near)


@dataclass(frozen=True, slots=True)
class Request:
    """GPUs to be placed for one job.

    Attributes:
        count: How many GPUs.
        own: GPUs of the pool on which it runs now.
        near: GPUs that it has anyway.
        style: How to choose when it does not run.
        spans: Whether its GPUs may lie on several machines.
    """

    count: int
    own: Allocation = NOTHING
    near: Allocation = NOTHING
    style: Style = nearest
    spans: bool = True


def place(
    requests: Sequence[Request], pool: Allocation, cluster: Cluster
) -> list[Allocation] | None:
    """Place jobs, the first ones choosing first, and move as few as possible.

    Whoever runs keeps its own GPUs, before anybody else chooses: a renewal costs no restart. A
    job that grows stays where it is and grows there, unless it can have all its GPUs at a better
    placement level elsewhere (it restarts in either case).

    Args:
        requests: What to place; together no more than the pool, and own GPUs do not overlap.
        pool: The GPUs.
        cluster: The machines.

    Returns:
        The GPUs of each request; None when one that has to lie on one machine does not find one.
    """
    room = Room(pool, cluster)
    out: list[Allocation] = []
    for request in requests:
        kept = request.own
        if kept and not room.has(kept):
            kept = room.part(kept)
        if kept.size > request.count:
            kept = Room(kept, cluster).nearest(request.count, request.near)
        room.take(kept)
        out.append(kept)
    for i, request in enumerate(requests):
        if out[i].size < request.count:
            out[i] = _grow(room, cluster, request, out[i])
        if not request.spans and len(out[i]) > 1:
            return None
    return out


def _grow(room: Room, cluster: Cluster, request: Request, kept: Allocation) -> Allocation:
    """The whole bundle of a request that has ``kept`` (taken already) of it."""
    if not kept:
        bundle = request.style(room, request.count, request.near)
        room.take(bundle)
        return bundle
    stay = kept + room.nearest(request.count - kept.size, kept + request.near)
    room.give(kept)
    move = room.nearest(request.count, request.near)
    around = request.near
    bundle = move if cluster.level(move + around) < cluster.level(stay + around) else stay
    room.take(bundle)
    return bundle
