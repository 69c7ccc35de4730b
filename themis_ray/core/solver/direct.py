"""The plain integer program: one variable for each part of each row on each machine.

Exact, simple and slow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from themis_ray.core.bids import BidRow, BidTable
from themis_ray.core.cluster import NOTHING, Allocation, Level
from themis_ray.core.solver.outcome import Outcome, Win, log_of


@dataclass
class _Choice:
    app: int
    row: BidRow
    parts: tuple[int, ...]
    machines: tuple[tuple[str, ...], ...]
    gain: float
    var: int = 0
    part_vars: tuple[dict[str, int], ...] = ()


class DirectSolver:
    """See the module's text."""

    def __init__(
        self,
        pool: Allocation,
        racks: Mapping[str, str],
        tables: Sequence[BidTable],
        weights: Sequence[float],
    ) -> None:
        self.pool, self.racks, self.tables, self.weights = pool, racks, tables, weights

    def optimum(self) -> Outcome:
        """The allocation of maximum Nash welfare."""
        everyone = range(len(self.tables))
        zero = [i for i in everyone if self.tables[i].value_nothing == 0]
        count = dict.fromkeys(zero, 1.0)
        best = self._solve(everyone, lambda i, v: count.get(i, 0.0) if v > 0 else 0.0, ())
        served = sum(best[i].value > 0 for i in everyone)
        must = sum(best[i].value > 0 for i in zero)
        wins = self._solve(everyone, self._gain, zero, must)
        return self._outcome(wins, served)

    def without(self, app: int, served: Sequence[int]) -> Outcome:
        """The best for the apps in ``served`` but ``app``."""
        others = [i for i in served if i != app]
        zero = [i for i in others if self.tables[i].value_nothing == 0]
        wins = self._solve(others, self._gain, zero, len(zero))
        return self._outcome(wins, len(others))

    def _gain(self, i: int, value: float) -> float:
        nothing = self.tables[i].value_nothing
        return self.weights[i] * (log_of(value) - (log_of(nothing) if nothing > 0 else 0.0))

    def _outcome(self, wins: Mapping[int, Win], served: int) -> Outcome:
        total = math.fsum(
            self.weights[i] * math.log(win.value) for i, win in wins.items() if win.value > 0
        )
        named = {self.tables[i].app: win for i, win in wins.items()}
        return Outcome(named, total, served, total, served)

    def _solve(self, apps, gain, zero, must=0):  # type: ignore[no-untyped-def]
        choices = [c for i in apps for c in self._choices(i, gain)]
        n, rows, cols, data, lo, hi = 0, [], [], [], [], []

        def row(entries, low, high):  # type: ignore[no-untyped-def]
            for col, value in entries:
                rows.append(len(lo))
                cols.append(col)
                data.append(value)
            lo.append(low)
            hi.append(high)

        use: dict[str, list[tuple[int, float]]] = {m: [] for m in self.pool}
        cost: list[float] = []
        for c in choices:
            c.var, n = n, n + 1
            cost.append(-c.gain)
            for m, k in c.row.pinned.items():
                use[m].append((c.var, k))
            group = []
            for part, machines in zip(c.parts, c.machines, strict=True):
                group.append({m: n + j for j, m in enumerate(machines)})
                n += len(machines)
                cost += [0.0] * len(machines)
                row([(c.var, -1.0)] + [(v, 1.0) for v in group[-1].values()], 0, 0)
                for m, v in group[-1].items():
                    use[m].append((v, part))
            c.part_vars = tuple(group)
        for m, entries in use.items():
            row(entries, -math.inf, self.pool[m])
        for i in apps:
            row([(c.var, 1.0) for c in choices if c.app == i], -math.inf, 1)
        row([(c.var, 1.0) for c in choices if c.app in set(zero)], must, math.inf)
        wins = {i: self._nothing(i) for i in apps}
        if not choices:
            return wins
        matrix = coo_array((data, (rows, cols)), shape=(len(lo), n)).tocsc()
        res = milp(
            cost,
            integrality=np.ones(n),
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(matrix, lo, hi),
            options={"mip_rel_gap": 0.0},
        )
        for c in choices:
            if res.x[c.var] > 0.5:
                gpus = c.row.pinned
                for part, group in zip(c.parts, c.part_vars, strict=True):
                    gpus = gpus + Allocation({m: part for m, v in group.items() if res.x[v] > 0.5})
                wins[c.app] = Win(c.row, gpus, c.row.value)
        return wins

    def _nothing(self, i: int) -> Win:
        return Win(None, NOTHING, self.tables[i].value_nothing)

    def _choices(self, i: int, gain):  # type: ignore[no-untyped-def]
        out = []
        for row in self.tables[i].rows:
            if row.value <= self.tables[i].value_nothing or not row.pinned <= self.pool:
                continue
            for machines in self._places(row):
                parts = row.parts
                fits = tuple(tuple(m for m in machines if self.pool[m] >= part) for part in parts)
                if all(fits):
                    out.append(_Choice(i, row, parts, fits, gain(i, row.value)))
        return out

    def _places(self, row: BidRow) -> list[tuple[str, ...]]:
        """The groups of machines within one of which the row's parts may lie."""
        if row.level >= Level.CLUSTER or not row.parts:
            ids = {self.racks.get(m, "") for m in row.pinned}
            if row.level == Level.RACK and len(ids) > 1:
                return []
            return [tuple(self.pool)]
        if row.level == Level.RACK:
            groups: dict[str, list[str]] = {}
            for m in self.pool:
                groups.setdefault(self.racks.get(m, ""), []).append(m)
            places = [tuple(g) for g in groups.values()]
        else:
            places = [(m,) for m in self.pool]
        return [p for p in places if all(m in p for m in row.pinned)]
