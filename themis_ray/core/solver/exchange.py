"""The auction without one bidder, from what is known of it with everyone, or without another one.

With everyone there, let ``b`` win some parts. Whoever gains most by these parts can have them when
``b`` is away, and all others keep what they have. And let ``a`` be away, and ``b`` win some parts
then: if ``a`` has a column that these parts are enough for, then with ``b`` away instead, ``a`` can
have it. Both are allocations without ``b``, at no cost. Where many jobs are alike and wait for GPUs
that are alike, one of them is mostly the best there is, and the prices prove it; so few auctions
without a bidder need to be solved.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from themis_ray.core.solver.model import ROOT, Part
from themis_ray.core.solver.problem import Problem

# So many of the newest answers are looked at.
REMEMBERED = 8


class Known(NamedTuple):
    """An allocation without one bidder.

    Attributes:
        chosen: The columns by bidder.
        gain: What they gain.
        slack: How much more could be gained at most, as far as is known, than in the answer that
            it comes from.
    """

    chosen: Mapping[int, int]
    gain: float
    slack: float


class Exchanges:
    """Allocations without one bidder.

    Args:
        problem: The auction with everyone.
        planned: The columns that are chosen then.
    """

    def __init__(self, problem: Problem, planned: Mapping[int, int]) -> None:
        model = problem.model
        kinds: dict[frozenset[tuple[Part, int]], int] = {}
        # Columns that need the same parts are of one kind.
        of_placed = [kinds.setdefault(frozenset(n.items()), len(kinds)) for n in model.needed]
        self._kind = [of_placed[placed] for placed in model.placed.tolist()]
        self._needs = [Counter(dict(kind)) for kind in kinds]
        self._fitting: dict[int, tuple[int, ...]] = {}
        self._app: list[int] = model.app.tolist()
        self._gain: list[float] = problem.gain.tolist()
        self._columns: list[int] = problem.columns.tolist()
        self._planned = Known(planned, math.fsum(self._gain[c] for c in planned.values()), 0.0)
        self._answers: list[tuple[int, Known]] = []

    def learn(self, away: int, chosen: Mapping[int, int], slack: float) -> None:
        """Without a bidder, the others choose these columns, and could gain so much more."""
        known = Known(chosen, math.fsum(self._gain[column] for column in chosen.values()), slack)
        self._answers = [*self._answers[1 - REMEMBERED :], (away, known)]

    def without(self, app: int) -> Known | None:
        """The best allocation known without a bidder; None when none is."""
        best: tuple[float, int, Known] | None = None
        for column, known in self._successors(app):
            gain = known.gain - self._gain[known.chosen[app]] + self._more(column, known)
            if best is None or gain > best[0]:
                best = (gain, column, known)
        if best is None:
            return None
        gain, column, known = best
        others = {other: c for other, c in known.chosen.items() if other != app}
        return Known({**others, self._app[column]: column}, gain, known.slack)

    def _more(self, column: int, known: Known) -> float:
        """By how much a bidder gains more with a column than with its own."""
        own = known.chosen.get(self._app[column])
        return self._gain[column] - (0.0 if own is None else self._gain[own])

    def _successors(self, app: int) -> Iterator[tuple[int, Known]]:
        """Columns that could take the place of a bidder's in what is known."""
        if app in self._planned.chosen:
            for kind in self._fits_into(self._kind[self._planned.chosen[app]]):
                for column in self._keenest.get(kind, ()):
                    if self._app[column] != app:
                        yield column, self._planned
        for away, known in self._answers:
            if app in known.chosen:
                for kind in self._fits_into(self._kind[known.chosen[app]]):
                    if (away, kind) in self._best:
                        yield self._best[away, kind], known

    @cached_property
    def _best(self) -> dict[tuple[int, int], int]:
        """Each bidder's best column of each kind."""
        best: dict[tuple[int, int], int] = {}
        for column in self._columns:
            key = (self._app[column], self._kind[column])
            if key not in best or self._gain[column] > self._gain[best[key]]:
                best[key] = column
        return best

    @cached_property
    def _keenest(self) -> dict[int, list[int]]:
        """For each kind, the columns of the two bidders that gain most by them."""
        keen: dict[int, list[int]] = {}
        for (_, kind), column in self._best.items():
            if self._more(column, self._planned) > 0:
                keen.setdefault(kind, []).append(column)
        for columns in keen.values():
            columns.sort(key=lambda column: -self._more(column, self._planned))
            del columns[2:]
        return keen

    def _fits_into(self, kind: int) -> tuple[int, ...]:
        """The kinds for which the parts of a kind are enough."""
        if kind not in self._fitting:
            mine = self._needs[kind]
            self._fitting[kind] = tuple(
                other for other, needs in enumerate(self._needs) if enough(mine, needs)
            )
        return self._fitting[kind]


def enough(parts: Mapping[Part, int], needs: Mapping[Part, int]) -> bool:
    """Whether parts can be cut into those that are needed (never said of too few).

    Args:
        parts: Numbers of parts, which may be cut into smaller ones.
        needs: Numbers of parts needed; those of the scope ``ROOT`` may come from anywhere.
    """
    rooms = sorted((size, scope) for (scope, size), number in parts.items() for _ in range(number))
    for (scope, size), number in sorted(needs.items(), key=lambda item: -item[0][1]):
        for _ in range(number):
            for i, (room, where) in enumerate(rooms):
                if room >= size and scope in (where, ROOT):
                    rooms[i] = (room - size, where)
                    rooms.sort()
                    break
            else:
                return False
    return True
