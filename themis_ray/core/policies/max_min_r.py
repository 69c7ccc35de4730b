"""``max-min-r``: the smallest possible greatest r."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from themis_ray.core.bids import BidTable
from themis_ray.core.explain import NoAnswer, Reason
from themis_ray.core.policies.auctioning import waited
from themis_ray.core.policies.base import Outcome, Policy, RoundView
from themis_ray.core.policies.dividing import Division
from themis_ray.core.policies.takers import Taker, share_out, takers_of


@dataclass(slots=True)
class _Level:
    """An app on its way down: the sizes that lower its r, and where it stands."""

    app: str
    steps: list[tuple[int, float]]
    r: float
    gpus: int = 0
    order: tuple[float, float, str] = field(default=(0.0, 0.0, ""))


@dataclass(frozen=True)
class MaxMinR(Policy):
    """Minimise the greatest r over the integer divisions of the pool.

    What Gavel (OSDI '20) and Shockwave (NSDI '23) call "Themis" and solve by linear programs over
    time shares. Here GPUs are whole and the division is exact without a program: the app with the
    greatest r takes the fewest GPUs that lower its r, again and again, until it cannot. Then no
    division has a smaller greatest r, since each app was only ever given what any better division
    must give it, too; the other apps go on with what is left, and so the next greatest r is as
    small as it can be (up to ties). r by GPU count is from the bids, at the best placement that
    they list; the GPUs are then placed as near together as they can be.
    """

    timeout_s: float = 5.0

    name: ClassVar[str] = "max-min-r"
    wants_bids: ClassVar[bool] = True
    renews: ClassVar[bool] = True

    def allocate(self, view: RoundView, bids: Mapping[str, BidTable]) -> Outcome:
        """Lower the greatest r as far as it goes."""
        by_app: dict[str, list[Taker]] = {}
        for taker in takers_of(view):
            if taker.app.id in bids:
                by_app.setdefault(taker.app.id, []).append(taker)
        division = Division(view, [t for takers in by_app.values() for t in takers])
        levels = [_level(takers[0], bids[app], view) for app, takers in by_app.items()]
        lower(levels, division.room.size)
        for level in sorted(levels, key=lambda x: (-x.r, x.order)):
            takers = by_app[level.app]
            for taker, count in zip(takers, share_out(takers, level.gpus), strict=True):
                gpus = division.bundle(taker, count)
                if gpus:
                    division.give(taker, gpus, level.r)
                else:
                    division.miss(taker, level.r, gains=bool(level.steps))
        division.settle()
        result = division.outcome(self.name)
        return Outcome(result.awards, {**result.reasons, **self._silent(view, bids)})

    def _silent(self, view: RoundView, bids: Mapping[str, BidTable]) -> dict[str, Reason]:
        return {
            app.id: NoAnswer("bid", self.timeout_s)
            for app in view.apps.values()
            if app.answered and app.needs and app.id not in bids
        }


def _level(taker: Taker, table: BidTable, view: RoundView) -> _Level:
    app = taker.app
    order = (-waited(app, view.now_s), app.joined_s, app.id)
    return _Level(app.id, improvements(table, app.needs), table.r_nothing, 0, order)


def improvements(table: BidTable, most: int) -> list[tuple[int, float]]:
    """``(GPUs, r)``, both strictly better at each entry: the sizes worth having, up to ``most``."""
    best: dict[int, float] = {}
    for row in table.rows:
        best[row.size] = min(row.r, best.get(row.size, row.r))
    out: list[tuple[int, float]] = []
    r = table.r_nothing
    for size in sorted(best):
        if size <= most and best[size] < r:
            r = best[size]
            out.append((size, r))
    return out


def lower(levels: Sequence[_Level], gpus: int) -> None:
    """Lower the greatest r until it cannot be lowered, then the next one, and so on."""
    heap = [(-level.r, level.order, i, 0) for i, level in enumerate(levels)]
    heapq.heapify(heap)
    while heap and gpus:
        _, order, i, done = heapq.heappop(heap)
        level = levels[i]
        if done < len(level.steps):
            size, r = level.steps[done]
            if size - level.gpus <= gpus:
                gpus -= size - level.gpus
                level.gpus, level.r = size, r
                heapq.heappush(heap, (-r, order, i, done + 1))
