"""An auction solved by trying everything, in exact arithmetic, for small instances only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache

from themis_ray.core.bids import BidRow, BidTable
from themis_ray.core.cluster import Allocation, Level

Score = tuple[int, Fraction]


def value(r: float) -> Fraction:
    """V = 1 / r, exactly; r must be a number that means what its shortest decimals say."""
    return Fraction(0) if r == float("inf") else 1 / Fraction(repr(float(r)))


def bundles(row: BidRow, pool: Allocation, racks: Mapping[str, str]) -> set[Allocation]:
    """Every allocation that a row accepts."""
    found = set()
    for placed in _placements(row.parts, row.pinned, pool):
        if len(placed) > 1 and row.level <= Level.MACHINE:
            continue
        if row.level == Level.RACK and len({racks.get(m, "") for m in placed}) > 1:
            continue
        found.add(placed)
    return found


def _placements(parts: Sequence[int], start: Allocation, pool: Allocation) -> Iterator[Allocation]:
    if not start <= pool:
        return
    if not parts:
        yield start
        return
    for machine in pool:
        yield from _placements(parts[1:], start + Allocation({machine: parts[0]}), pool)


class Oracle:
    """The best allocations of one auction.

    Args:
        pool: GPUs on offer.
        racks: The rack of each machine.
        tables: The bids.
        weights: Whole numbers, so that products stay rational.
    """

    def __init__(
        self,
        pool: Allocation,
        racks: Mapping[str, str],
        tables: Sequence[BidTable],
        weights: Sequence[int] | None = None,
    ) -> None:
        self.machines = tuple(pool)
        self.pool = pool
        self.weights = list(weights or [1] * len(tables))
        self.nothing = [value(table.r_nothing) for table in tables]
        self.choices = [self._choices(table, pool, racks) for table in tables]

    def _choices(
        self, table: BidTable, pool: Allocation, racks: Mapping[str, str]
    ) -> dict[tuple[int, ...], Fraction]:
        best: dict[tuple[int, ...], Fraction] = {}
        for row in table.rows:
            for bundle in bundles(row, pool, racks):
                key = tuple(bundle.on(m) for m in self.machines)
                best[key] = max(best.get(key, Fraction(0)), value(row.r))
        return best

    def best(self, apps: Sequence[int] | None = None) -> Score:
        """How many of ``apps`` can be served, and the greatest product over those."""
        apps = range(len(self.choices)) if apps is None else apps
        order = tuple(apps)

        @cache
        def search(k: int, free: tuple[int, ...]) -> Score:
            if k == len(order):
                return (0, Fraction(1))
            app = order[k]
            best = _add(search(k + 1, free), self.nothing[app], self.weights[app])
            for key, worth in self.choices[app].items():
                if all(a <= b for a, b in zip(key, free, strict=True)):
                    left = tuple(b - a for a, b in zip(key, free, strict=True))
                    best = max(best, _add(search(k + 1, left), worth, self.weights[app]))
            return best

        return search(0, tuple(self.pool.on(m) for m in self.machines))

    def vectors(self) -> set[tuple[Fraction, ...]]:
        """The values of all bidders in every feasible allocation."""
        found: set[tuple[Fraction, ...]] = set()

        def walk(k: int, free: tuple[int, ...], so_far: tuple[Fraction, ...]) -> None:
            if k == len(self.choices):
                found.add(so_far)
                return
            walk(k + 1, free, (*so_far, self.nothing[k]))
            for key, worth in self.choices[k].items():
                if all(a <= b for a, b in zip(key, free, strict=True)):
                    left = tuple(b - a for a, b in zip(key, free, strict=True))
                    walk(k + 1, left, (*so_far, worth))

        walk(0, tuple(self.pool.on(m) for m in self.machines), ())
        return found


def _add(score: Score, worth: Fraction, weight: int) -> Score:
    return (score[0] + 1, score[1] * worth**weight) if worth else score
