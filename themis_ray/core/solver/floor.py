"""The free GPUs of named machines, and placing shapes on them by best fit."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from themis_ray.core.solver.instance import ANYWHERE, ONE_RACK, Shape

Bundle = dict[str, int]


class Floor:
    """Free GPUs by machine, indexed by how many are free.

    Ties go to the machine that came first in the pool's order, or was released last.
    """

    def __init__(self, pool: Mapping[str, int], rack_of: Mapping[str, str]) -> None:
        self._rack_of = rack_of
        self.free: dict[str, int] = {}
        self._most = max(pool.values(), default=0)
        self._all: list[dict[str, None]] = [{} for _ in range(self._most + 1)]
        self._in_rack: dict[str, list[dict[str, None]]] = {}
        self.rack_free: dict[str, int] = {}
        for machine, room in pool.items():
            rack = rack_of[machine]
            self.rack_free[rack] = self.rack_free.get(rack, 0) + room
            buckets = self._in_rack.get(rack)
            if buckets is None:
                buckets = self._in_rack[rack] = [{} for _ in range(self._most + 1)]
            self.free[machine] = room
            self._all[room][machine] = None
            buckets[room][machine] = None

    def change(self, machine: str, by: int) -> None:
        """Take GPUs (negative) or give them back."""
        rack, before = self._rack_of[machine], self.free[machine]
        after = before + by
        buckets = self._in_rack[rack]
        del self._all[before][machine]
        del buckets[before][machine]
        self._all[after][machine] = None
        buckets[after][machine] = None
        self.free[machine] = after
        self.rack_free[rack] += by

    def take(self, bundle: Mapping[str, int]) -> None:
        """Take a bundle that is known to be free."""
        for machine, count in bundle.items():
            self.change(machine, -count)

    def give(self, bundle: Mapping[str, int]) -> None:
        """Give a bundle back."""
        for machine, count in bundle.items():
            self.change(machine, count)

    def place(self, shape: Shape) -> Bundle | None:
        """Take GPUs of a shape, tightly; None (and nothing taken) when it does not fit."""
        if any(self.free[machine] < count for machine, count in shape.pinned):
            return None
        bundle = dict(shape.pinned)
        self.take(bundle)
        if not shape.parts:
            return bundle
        if shape.rack == ONE_RACK:
            done = self._place_in_one_rack(shape, bundle)
        else:
            rack = None if shape.rack == ANYWHERE else shape.rack[1:]
            done = self._place_parts(shape.parts, rack, bundle)
        if done:
            return bundle
        self.give(bundle)
        return None

    def _place_in_one_rack(self, shape: Shape, bundle: Bundle) -> bool:
        size = sum(shape.parts)
        fitting = [rack for rack, free in self.rack_free.items() if free >= size]
        # The tightest rack first, so that empty racks stay empty for large bundles.
        for rack in sorted(fitting, key=self.rack_free.__getitem__):
            if self._place_parts(shape.parts, rack, bundle):
                return True
        return False

    def _place_parts(self, parts: Sequence[int], rack: str | None, bundle: Bundle) -> bool:
        taken: list[tuple[str, int]] = []
        for part in parts:
            machine = self.tightest(part, rack)
            if machine is None:
                for name, count in taken:
                    self._undo(name, count, bundle)
                return False
            self.change(machine, -part)
            bundle[machine] = bundle.get(machine, 0) + part
            taken.append((machine, part))
        return True

    def _undo(self, machine: str, count: int, bundle: Bundle) -> None:
        self.change(machine, count)
        bundle[machine] -= count
        if not bundle[machine]:
            del bundle[machine]

    def tightest(self, part: int, rack: str | None) -> str | None:
        """The machine with the least free GPUs that holds a part."""
        buckets = self._all if rack is None else self._in_rack[rack]
        for room in range(part, self._most + 1):
            for machine in buckets[room]:
                return machine
        return None


def place_all(
    floor: Floor, wanted: Mapping[int, Shape], luck: random.Random | None = None
) -> tuple[dict[int, Bundle], list[int]]:
    """Place one shape for each bidder, the hardest first.

    All named machines first, then parts bound to a rack, the largest shape first, then all other
    parts from large to small, whoever wants them.

    Args:
        floor: The free GPUs; what is placed is taken.
        wanted: Each bidder's shape.
        luck: Shuffles the order a little, for another try.

    Returns:
        The bundles placed, and the bidders whose shape did not fit.
    """

    def rank(size: int) -> float:
        return -size * (luck.uniform(0.6, 1.0) if luck else 1.0)

    bundles: dict[int, Bundle] = {}
    failed: list[int] = []
    for app in sorted(wanted):
        pinned = wanted[app].pinned
        if all(floor.free[machine] >= count for machine, count in pinned):
            bundles[app] = dict(pinned)
            floor.take(bundles[app])
        else:
            failed.append(app)
    rest = {a: wanted[a]._replace(pinned=()) for a in bundles if wanted[a].parts}
    bound = [a for a, shape in rest.items() if shape.rack != ANYWHERE]
    order = {a: (rank(rest[a].size), a) for a in bound}
    for app in sorted(bound, key=order.__getitem__):
        bundle = floor.place(rest.pop(app))
        if bundle is None:
            floor.give(bundles.pop(app))
            failed.append(app)
        else:
            _merge(bundles[app], bundle)
    _place_loose(floor, rest, bundles, failed)
    return bundles, failed


def _merge(bundle: Bundle, more: Bundle) -> None:
    for machine, count in more.items():
        bundle[machine] = bundle.get(machine, 0) + count


def _place_loose(
    floor: Floor, loose: Mapping[int, Shape], bundles: dict[int, Bundle], failed: list[int]
) -> None:
    pieces = sorted(((-part, app) for app, shape in loose.items() for part in shape.parts))
    lost: set[int] = set()
    for part, app in pieces:
        if app in lost:
            continue
        machine = floor.tightest(-part, None)
        if machine is None:
            lost.add(app)
            floor.give(bundles.pop(app))
            continue
        floor.change(machine, part)
        _merge(bundles[app], {machine: -part})
    failed += sorted(lost)
