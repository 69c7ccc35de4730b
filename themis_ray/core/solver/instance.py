"""An auction in arrays: options (what a bidder may win), and the shapes that they share.

A *shape* is a bundle without its price: GPUs on named machines, parts on any machine, within one
rack or anywhere. Bidders ask for the same shapes again and again, so geometry is worked out once
for each shape, and numbers live in arrays over *options* (a bidder and a shape).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from themis_ray.core.bids import BidRow, BidTable
from themis_ray.core.cluster import Allocation, Level

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

ANYWHERE = ""
ONE_RACK = "*"


class Shape(NamedTuple):
    """A bundle's geometry.

    Attributes:
        pinned: GPUs on named machines, ``((machine, count), ...)``.
        parts: GPUs on any machine, each part on one, largest first.
        rack: Where the parts may lie: ``ANYWHERE``, ``ONE_RACK`` (any, but all in one), or a
            rack's name with ``=`` in front, when the pinned machines leave no other.
    """

    pinned: tuple[tuple[str, int], ...]
    parts: tuple[int, ...]
    rack: str

    @property
    def size(self) -> int:
        """The number of GPUs."""
        return sum(count for _, count in self.pinned) + sum(self.parts)


@dataclass(frozen=True, eq=False)
class Instance:
    """An auction in arrays.

    Attributes:
        pool: GPUs on offer, by machine.
        rack_of: The rack of each machine of the pool.
        tables: The bids.
        weights: w of each bidder.
        shapes: The different shapes.
        app: The bidder of each option, ascending.
        shape: The index of its shape.
        row: Its row in the bidder's table.
        gain: ``w * log V``, less that of winning nothing when V > 0 with nothing.
        needy: For each bidder, whether V = 0 with nothing won.
    """

    pool: Allocation
    rack_of: Mapping[str, str]
    tables: Sequence[BidTable]
    weights: Floats
    shapes: Sequence[Shape]
    app: Ints
    shape: Ints
    row: Ints
    gain: Floats
    needy: Bools

    @property
    def apps(self) -> int:
        """The number of bidders."""
        return len(self.tables)

    def bid(self, option: int) -> BidRow:
        """The row behind an option."""
        return self.tables[int(self.app[option])].rows[int(self.row[option])]


def build_instance(
    pool: Allocation,
    racks: Mapping[str, str],
    tables: Sequence[BidTable],
    weights: Sequence[float],
) -> Instance:
    """Put an auction into arrays, without rows that nobody would choose or that fit nowhere."""
    rack_of = {machine: racks.get(machine, "") for machine in pool}
    reader = _ShapeReader(pool, rack_of)
    shape_ids: dict[Shape, int] = {}
    entries: list[tuple[int, int, int, float]] = []
    for i, table in enumerate(tables):
        best: dict[Shape, tuple[float, int]] = {}
        for number, row in enumerate(table.rows):
            value = row.value
            shape = reader.read(row) if value > table.value_nothing else None
            if shape is not None and value > best.get(shape, (0.0, 0))[0]:
                best[shape] = (value, number)
        floor = math.log(table.value_nothing) if table.value_nothing > 0 else 0.0
        for shape, value, number in _undominated(best):
            shape_id = shape_ids.setdefault(shape, len(shape_ids))
            entries.append((i, shape_id, number, weights[i] * (math.log(value) - floor)))
    columns = list(zip(*entries, strict=True)) or [(), (), (), ()]
    return Instance(
        pool,
        rack_of,
        tables,
        np.asarray(weights, dtype=np.float64),
        tuple(shape_ids),
        np.asarray(columns[0], dtype=np.int64),
        np.asarray(columns[1], dtype=np.int64),
        np.asarray(columns[2], dtype=np.int64),
        np.asarray(columns[3], dtype=np.float64),
        np.asarray([table.value_nothing == 0 for table in tables], dtype=np.bool_),
    )


class _ShapeReader:
    """Reads rows into shapes; each different row geometry is worked out once."""

    def __init__(self, pool: Allocation, rack_of: Mapping[str, str]) -> None:
        self._pool = pool
        self._rack_of = rack_of
        self._rooms: dict[str, list[int]] = {}
        for machine, room in pool.items():
            self._rooms.setdefault(rack_of[machine], []).append(room)
        self._known: dict[tuple[Allocation, tuple[int, ...], Level], Shape | None] = {}

    def read(self, row: BidRow) -> Shape | None:
        """The shape of a row; None when it can never be had."""
        key = (row.pinned, row.parts, row.level)
        if key not in self._known:
            self._known[key] = self._read(row)
        return self._known[key]

    def _read(self, row: BidRow) -> Shape | None:
        if not row.pinned <= self._pool:
            return None
        if row.level <= Level.MACHINE:
            return self._one_machine(row)
        pinned = tuple(row.pinned.items())
        if row.level == Level.RACK and len(self._rooms) > 1:
            homes = {self._rack_of[machine] for machine in row.pinned}
            if len(homes) > 1:
                return None
            if homes and row.parts:
                return Shape(pinned, row.parts, "=" + homes.pop())
            if len(row.parts) > 1:
                fits = any(might_hold(rooms, row.parts) for rooms in self._rooms.values())
                return Shape(pinned, row.parts, ONE_RACK) if fits else None
        return Shape(pinned, row.parts, ANYWHERE)

    def _one_machine(self, row: BidRow) -> Shape | None:
        for machine in row.pinned:
            if row.size > self._pool.on(machine):
                return None
            return Shape(((machine, row.size),), (), ANYWHERE)
        if row.size > max(self._pool.values(), default=0):
            return None
        return Shape((), (row.size,), ANYWHERE)


def might_hold(rooms: Sequence[int], parts: Sequence[int]) -> bool:
    """Whether parts might fit into rooms: never False when they do."""
    return sum(rooms) >= sum(parts) and all(
        sum(room // part for room in rooms) >= i + 1 for i, part in enumerate(parts)
    )


def _undominated(
    best: Mapping[Shape, tuple[float, int]],
) -> Iterator[tuple[Shape, float, int]]:
    """Leave out shapes that are worth no more than a shape that asks for less."""
    by_value: dict[float, list[Shape]] = {}
    for shape, (value, _) in best.items():
        by_value.setdefault(value, []).append(shape)
    for shape, (value, number) in best.items():
        if not any(_asks_less(other, shape) for other in by_value[value]):
            yield shape, value, number


def _asks_less(one: Shape, other: Shape) -> bool:
    """Whether ``one`` fits wherever ``other`` does, and they differ."""
    if one == other or one.pinned != other.pinned or len(one.parts) > len(other.parts):
        return False
    if one.rack not in (ANYWHERE, other.rack):
        return False
    return all(a <= b for a, b in zip(one.parts, other.parts, strict=False))
