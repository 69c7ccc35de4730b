"""What was found without one bidder, used for the auction without another.

Let ``a`` be away, and let ``b`` win some parts then. If ``a`` has a column for just these parts,
then with ``b`` away instead, ``a`` can have them, and all others what they have: an allocation
without ``b``, at no cost. Where many jobs are alike and wait for GPUs that are alike, it is mostly
the best one, and the prices prove it; so few auctions without a bidder need to be solved.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from themis_ray.core.solver.problem import Problem

# So many of the newest answers are looked at.
REMEMBERED = 8


class _Known(NamedTuple):
    """An answer: the columns that are chosen without one bidder."""

    away: int
    chosen: Mapping[int, int]
    gain: float
    slack: float


class Exchanges:
    """Allocations without one bidder, and what they become without another one.

    Args:
        problem: The auction with everyone.
    """

    def __init__(self, problem: Problem) -> None:
        self._gain = problem.gain
        model = problem.model
        kinds: dict[frozenset[object], int] = {}
        # Columns that need the same parts are of one kind.
        of_placed = [kinds.setdefault(frozenset(n.items()), len(kinds)) for n in model.needed]
        self._kind = [of_placed[placed] for placed in model.placed.tolist()]
        self._app = model.app.tolist()
        self._columns = problem.columns.tolist()
        self._known: list[_Known] = []
        self._best: dict[tuple[int, int], int] | None = None

    def learn(self, away: int, chosen: Mapping[int, int], slack: float) -> None:
        """Without a bidder, the others choose these columns.

        Args:
            away: The bidder.
            chosen: The columns.
            slack: How much more than they could be gained at most.
        """
        gain = math.fsum(self._gain[list(chosen.values())].tolist())
        self._known = [*self._known[1 - REMEMBERED :], _Known(away, chosen, gain, slack)]

    def without(self, app: int) -> tuple[dict[int, int], float] | None:
        """The best allocation known without a bidder; None when none is.

        Returns:
            The columns, and the slack of the answer that they come from.
        """
        best, most = None, -math.inf
        for known in self._known:
            lost = known.chosen.get(app)
            column = None if lost is None else self._stand_in(known.away, lost)
            if column is not None:
                gain = known.gain - float(self._gain[lost]) + float(self._gain[column])
                if gain > most:
                    best, most = (known, column), gain
        if best is None:
            return None
        known, column = best
        others = {other: c for other, c in known.chosen.items() if other != app}
        return {**others, known.away: column}, known.slack

    def _stand_in(self, app: int, column: int) -> int | None:
        """The best column of a bidder that needs just the parts of another one's column."""
        if self._best is None:
            self._best = {}
            for mine in self._columns:
                key = (self._app[mine], self._kind[mine])
                if key not in self._best or self._gain[mine] > self._gain[self._best[key]]:
                    self._best[key] = mine
        return self._best.get((app, self._kind[column]))
