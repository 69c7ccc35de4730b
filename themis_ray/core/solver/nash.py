"""Maximum Nash welfare: how many are served first, then the product; and the same without one.

How an answer is found:

1. the merged model's prices (column generation) bound the objective;
2. an integer program over the columns that the prices leave in question solves the merged model;
3. its bundles are placed on named machines by best fit, in several orders;
4. if some do not fit and the auction is small, the full model decides; otherwise bidders without
   a place take the best that fits, and free GPUs go to whom they help.

Whatever is skipped, the answer is feasible, and the bound of step 1 or 2 stands. Counterfactuals
start from the prices of the auction with everyone: they are near enough to leave a few columns in
question.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from themis_ray.core.bids import BidTable
from themis_ray.core.cluster import NOTHING, Allocation
from themis_ray.core.solver.deadline import Deadline
from themis_ray.core.solver.floor import Floor
from themis_ray.core.solver.instance import Floats, Ints, build_instance
from themis_ray.core.solver.model import Model, build_model, needs_full
from themis_ray.core.solver.naming import chosen_by_app, name_machines
from themis_ray.core.solver.nearby import Effort, best_nearby
from themis_ray.core.solver.outcome import EXACT, Outcome, Win
from themis_ray.core.solver.placing import Placement, Placer
from themis_ray.core.solver.problem import Prices, Problem
from themis_ray.core.solver.programs import NONE, solve_integer
from themis_ray.core.solver.relaxation import relax

EXACT_OPTIONS = 3000
EXACT_APPS = 64
SMALL = Effort(
    columns=150, most_columns=50_000, nodes=20_000, tries=30, slack=0.0, full_columns=3000
)
LARGE = Effort(columns=200, most_columns=4000, nodes=500, tries=8, slack=1e-4, full_columns=600)
LARGE_WITHOUT = Effort(columns=80, most_columns=400, nodes=50, tries=1, slack=1e-3, full_columns=0)
BUDGET_FOR_OPTIMUM = 0.5


@dataclass(eq=False)
class _Base:
    """The auction among the served, from which counterfactuals start."""

    problem: Problem
    prices: Prices
    placement: Placement
    floor: Floor


class NashSolver:
    """Solves one auction and its counterfactuals.

    Args:
        pool: The GPUs on offer.
        racks: The rack of each machine.
        tables: The bids.
        weights: The weight of each bidder.
        deadline: When to stop improving.
    """

    def __init__(
        self,
        pool: Allocation,
        racks: Mapping[str, str],
        tables: Sequence[BidTable],
        weights: Sequence[float],
        deadline: Deadline | None = None,
    ) -> None:
        self.instance = build_instance(pool, racks, tables, weights)
        self._deadline = deadline or Deadline()
        self._merged = build_model(self.instance, full=False)
        self._forgets = needs_full(self.instance)
        self._full: Model | None = None
        self._placer = Placer(self.instance)
        small = self.instance.app.size <= EXACT_OPTIONS and self.instance.apps <= EXACT_APPS
        self._effort = SMALL if small else LARGE
        self._effort_without = SMALL if small else LARGE_WITHOUT
        self._base: _Base | None = None

    # -- the allocation ---------------------------------------------------------------------

    def optimum(self) -> Outcome:
        """The allocation of maximum Nash welfare."""
        deadline = self._deadline.share(BUDGET_FOR_OPTIMUM)
        start, most = self._serve_most(deadline)
        instance = self.instance
        must = sum(bool(instance.needy[app]) for app in start.option)
        everything = np.isfinite(instance.gain)
        problem = Problem(self._merged, instance.gain, everything, instance.needy, must)
        first = np.asarray(sorted(start.option.values()), dtype=np.int64)
        prices = relax(problem, first, deadline)
        best, bound = self._maximise(problem, prices, start, deadline)
        self._base = self._served_base(problem, prices, best)
        return self._outcome(best.option, best, range(instance.apps), bound, most)

    def _serve_most(self, deadline: Deadline) -> tuple[Placement, int]:
        """Win something for as many needy bidders as possible; and how many that could be."""
        instance = self.instance
        able = np.unique(instance.app[instance.needy[instance.app]])
        if not able.size:
            return Placement(), 0
        sizes = np.asarray([shape.size for shape in instance.shapes])[instance.shape]
        smallest = {int(a): self._smallest(int(a), sizes) for a in able}
        _, start, failed = self._placer.try_orders(smallest, 3)
        if not failed:
            return start, len(start.option)
        gain = np.where(instance.needy[instance.app], 1.0, -np.inf)
        problem = Problem(self._merged, gain, np.isfinite(gain), instance.needy, 0)
        prices = relax(problem, NONE, deadline)
        best, bound = self._maximise(problem, prices, start, deadline)
        return best, math.floor(bound + EXACT)

    def _smallest(self, app: int, sizes: Ints) -> int:
        start, stop = np.searchsorted(self.instance.app, [app, app + 1])
        return int(start + np.argmin(sizes[start:stop]))

    def _maximise(
        self, problem: Problem, prices: Prices, start: Placement, deadline: Deadline
    ) -> tuple[Placement, float]:
        """Steps 2 to 4 of the module's text; never worse than ``start``."""
        near = best_nearby(problem, prices, self._effort, deadline)
        best = self._improved(start, problem)
        if near.solution is None:
            return best, near.bound
        if not self._forgets:
            found = Placement(
                chosen_by_app(self._merged, near.solution.columns),
                name_machines(self._merged, near.solution),
            )
            return self._better(best, found, problem), near.bound
        option = chosen_by_app(self._merged, near.solution.columns)
        floor, found, failed = self._placer.try_orders(option, self._effort.tries)
        if failed:
            self._placer.settle(floor, found, failed, problem.gain)
        self._placer.upgrade(floor, found, self._by_need(found), problem.gain)
        best = self._better(best, found, problem)
        return self._finish(problem, prices, best, near.bound, self._effort, deadline)

    def _improved(self, start: Placement, problem: Problem) -> Placement:
        """A feasible placement, improved by whatever free GPUs allow."""
        found = Placement(dict(start.option), dict(start.bundles))
        floor = self._placer.floor()
        for bundle in found.bundles.values():
            floor.take(bundle)
        self._placer.upgrade(floor, found, range(self.instance.apps), problem.gain)
        return found

    def _by_need(self, placement: Placement) -> list[int]:
        """All bidders, those that win nothing first."""
        return sorted(range(self.instance.apps), key=lambda a: (a in placement.option, a))

    def _better(self, one: Placement, other: Placement, problem: Problem) -> Placement:
        first = one.score(problem.gain, problem.counted)
        return other if other.score(problem.gain, problem.counted) > first else one

    def _finish(
        self,
        problem: Problem,
        prices: Prices,
        best: Placement,
        bound: float,
        effort: Effort,
        deadline: Deadline,
    ) -> tuple[Placement, float]:
        """Let the full model decide, when it is small enough and something is left to decide."""
        served, value = best.score(problem.gain, problem.counted)
        gap = bound - value
        if (served >= problem.must and gap <= max(EXACT / 10, effort.slack)) or deadline.passed():
            return best, bound
        # A column that costs more than the whole gap cannot be in a better allocation.
        reach = prices.bound - value + EXACT if served >= problem.must else math.inf
        if self._full is None and effort.full_columns:
            self._full = build_model(self.instance, full=True)
        full = self._full
        if full is None:
            return best, bound
        columns = np.flatnonzero(prices.shortfall[full.option] <= reach)
        if columns.size > effort.full_columns:
            return best, bound
        exact = replace(
            problem,
            model=full,
            gain=problem.gain[full.option],
            allowed=problem.allowed[full.option],
        )
        found = solve_integer(exact, columns, nodes=effort.nodes, seconds=deadline.left_s())
        if found is None:
            return best, bound
        placed = Placement(chosen_by_app(full, found.columns), name_machines(full, found))
        best = self._better(best, placed, problem)
        return best, min(bound, max(found.bound, best.score(problem.gain, problem.counted)[1]))

    # -- counterfactuals --------------------------------------------------------------------

    def _served_base(self, problem: Problem, prices: Prices, best: Placement) -> _Base:
        """The auction among those that are served, where all of them must be."""
        floor = self._placer.floor()
        for bundle in best.bundles.values():
            floor.take(bundle)
        needy = self.instance.needy
        able = np.unique(self.instance.app[needy[self.instance.app]])
        lost = [int(app) for app in able if int(app) not in best.option]
        if lost:
            allowed = problem.allowed & ~np.isin(self.instance.app, lost)
            problem = replace(problem, allowed=allowed)
            first = np.asarray(sorted(best.option.values()), dtype=np.int64)
            prices = relax(problem, first, self._deadline.share(0.2))
        return _Base(problem, prices, best, floor)

    def without(self, app: int, served: Iterable[int]) -> Outcome:
        """The best for the bidders in ``served`` but ``app``; :meth:`optimum` comes first."""
        assert self._base is not None
        base = self._base
        others = [i for i in served if i != app]
        rest = {a: o for a, o in base.placement.option.items() if a != app}
        value = math.fsum(float(base.problem.gain[o]) for o in rest.values())
        problem, prices = self._drop(base, app)
        bound = prices.bound
        if bound - value > EXACT and not self._deadline.passed():
            found, found_bound = self._counterfactual(problem, prices, app, value)
            bound = min(bound, found_bound)
            if found is not None and math.fsum(problem.gain[list(found.values())]) > value:
                rest = found
        return self._outcome(rest, None, others, bound, len(others))

    def _drop(self, base: _Base, app: int) -> tuple[Problem, Prices]:
        own = self._merged.app == app
        counted = bool(base.problem.counted[app])
        problem = replace(
            base.problem,
            allowed=base.problem.allowed & ~own,
            must=base.problem.must - counted,
        )
        bargain = base.prices.bargain.copy()
        bargain[app] = 0.0
        bound = base.prices.bound - base.prices.bargain[app] + base.prices.premium * counted
        shortfall = np.where(own, np.inf, base.prices.shortfall)
        return problem, replace(
            base.prices, bargain=bargain, bound=float(bound), shortfall=shortfall
        )

    def _counterfactual(
        self, problem: Problem, prices: Prices, app: int, value: float
    ) -> tuple[dict[int, int] | None, float]:
        effort = self._effort_without
        near = best_nearby(problem, prices, effort, self._deadline)
        if near.solution is None:
            return None, near.bound
        option = chosen_by_app(self._merged, near.solution.columns)
        if not self._forgets:
            return option, near.bound
        placed = self._rearranged(option, app, problem.gain)
        gap = near.bound - math.fsum(problem.gain[list(placed.option.values())])
        if gap <= max(EXACT / 10, effort.slack):
            return placed.option, near.bound
        if effort.tries > 1:
            floor, found, failed = self._placer.try_orders(option, effort.tries)
            self._placer.settle(floor, found, failed, problem.gain)
            self._placer.upgrade(floor, found, sorted(found.option), problem.gain)
            placed = self._better(placed, found, problem)
        assert self._base is not None
        rest = {a: o for a, o in self._base.placement.option.items() if a != app}
        bundles = {a: self._base.placement.bundles[a] for a in rest}
        placed = self._better(Placement(rest, bundles), placed, problem)
        best, bound = self._finish(problem, prices, placed, near.bound, effort, self._deadline)
        return best.option, bound

    def _rearranged(self, option: Mapping[int, int], app: int, gain: Floats) -> Placement:
        """Place what changes, starting from the allocation with everyone; then undo it."""
        assert self._base is not None
        base, floor, placer = self._base, self._base.floor, self._placer
        before = base.placement
        moved = {a for a in {*option, *before.option} if option.get(a) != before.option.get(a)}
        for other in sorted(moved):
            floor.give(before.bundles.get(other, {}))
        shapes = self.instance.shapes
        placed = Placement(
            {a: o for a, o in before.option.items() if a not in moved},
            {a: b for a, b in before.bundles.items() if a not in moved},
        )
        order = sorted(
            (a for a in moved if a in option),
            key=lambda a: (-placer.sizes[self.instance.shape[option[a]]], a),
        )
        failed = []
        for other in order:
            bundle = floor.place(shapes[self.instance.shape[option[other]]])
            if bundle is None:
                failed.append(other)
            else:
                placed.option[other], placed.bundles[other] = option[other], bundle
        placer.settle(floor, placed, failed, gain)
        for other in sorted(moved):
            floor.give(placed.bundles.get(other, {}))
        for other in sorted(moved):
            floor.take(before.bundles.get(other, {}))
        return placed

    # -- answers ----------------------------------------------------------------------------

    def _outcome(
        self,
        option: Mapping[int, int],
        placement: Placement | None,
        apps: Iterable[int],
        bound: float,
        most: int,
    ) -> Outcome:
        """Put a choice into words; the bound is on gains, so what nothing is worth is added."""
        instance, wins, logs, base = self.instance, {}, [], []
        for app in apps:
            table = instance.tables[app]
            weight = float(instance.weights[app])
            win = Win(None, NOTHING, table.value_nothing)
            if app in option:
                row = instance.bid(option[app])
                gpus = Allocation(placement.bundles[app]) if placement else NOTHING
                win = Win(row, gpus, row.value)
            wins[table.app] = win
            logs.append(weight * math.log(win.value) if win.value > 0 else 0.0)
            base.append(weight * math.log(table.value_nothing) if table.value_nothing > 0 else 0.0)
        total = math.fsum(logs)
        served = sum(win.value > 0 for win in wins.values())
        free = sum(table.value_nothing > 0 for table in instance.tables)
        most = most + free if placement else most
        return Outcome(wins, total, served, max(total, bound + math.fsum(base)), max(most, served))
