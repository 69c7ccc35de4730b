"""From a problem to an allocation on named machines, with a bound on all others."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from themis_ray.core.solver.deadline import Deadline
from themis_ray.core.solver.instance import Floats, Instance
from themis_ray.core.solver.model import Model, build_model, needs_full
from themis_ray.core.solver.naming import chosen_by_app, name_machines
from themis_ray.core.solver.nearby import Effort, best_nearby
from themis_ray.core.solver.outcome import EXACT
from themis_ray.core.solver.partition import fill_racks, mend
from themis_ray.core.solver.placing import Placement, Placer
from themis_ray.core.solver.problem import Prices, Problem, best_columns, net_gains
from themis_ray.core.solver.programs import solve_integer


@dataclass(frozen=True, eq=False)
class Found:
    """An answer.

    Attributes:
        placement: The allocation.
        bound: No allocation that serves as many counted bidders gains more.
        planned: The option of each bidder in the merged model's optimum, if it was found.
    """

    placement: Placement
    bound: float
    planned: dict[int, int] | None


class Maximiser:
    """Solves problems over the merged model of one instance.

    Args:
        instance: The auction.
        effort: How hard to try.
    """

    def __init__(self, instance: Instance, effort: Effort) -> None:
        self.instance = instance
        self.effort = effort
        self.forgets = needs_full(instance)
        self.placer = Placer(instance)
        self._full: Model | None = None
        self._several_racks = len(set(instance.rack_of.values())) > 1

    @cached_property
    def merged(self) -> Model:
        """The merged model, built when it is needed: not when everybody can have its best."""
        return build_model(self.instance, full=False)

    def everyones_best(self, start: Placement) -> Placement | None:
        """Everybody with the option that it gains most by, if best fit places them all.

        No allocation gains more, so there is nothing to be solved: the usual case where GPUs are
        plentiful. None when somebody has to be content with less.
        """
        instance = self.instance
        placed = self._improved(start, instance.gain)
        for app, options in enumerate(self.placer.options):
            if options:
                own = placed.option.get(app)
                most = float(instance.gain[options.start : options.stop].max())
                if own is None or float(instance.gain[own]) < most:
                    return None
        return placed

    def maximise(
        self, problem: Problem, prices: Prices, start: Placement, deadline: Deadline
    ) -> Found:
        """The best allocation found, never worse than ``start``."""
        near = best_nearby(problem, prices, self.effort, deadline)
        best = self._improved(start, problem.offers)
        if near.solution is None:
            placed = self.place(bargains(problem, prices), problem, deadline)
            return Found(better(best, placed, problem), near.bound, None)
        planned = chosen_by_app(self.merged, near.solution.columns)
        if not self.forgets:
            placed = Placement(planned, name_machines(self.merged, near.solution))
            return Found(better(best, placed, problem), near.bound, planned)
        best = better(best, self.place(planned, problem, deadline), problem)
        best, bound = self.decide(problem, prices, best, near.bound, deadline)
        if self._several_racks and not self.good(problem, best, bound) and not deadline.passed():
            best = better(best, self._by_racks(planned, problem, prices, deadline), problem)
        return Found(best, bound, planned)

    def place(self, planned: dict[int, int], problem: Problem, deadline: Deadline) -> Placement:
        """Place options by best fit; who finds no place takes the best that fits."""
        floor, placed, failed = self.placer.try_orders(
            planned, 1 if deadline.passed() else self.effort.tries
        )
        self.placer.settle(floor, placed, failed, problem.offers)
        self.placer.upgrade(floor, placed, self._neediest_first(placed), problem.offers)
        return placed

    def _by_racks(
        self, planned: dict[int, int], problem: Problem, prices: Prices, deadline: Deadline
    ) -> Placement:
        """Place options rack by rack."""
        instance, floor = self.instance, self.placer.floor()
        placed, missing = fill_racks(instance, planned, prices, floor, deadline)
        failed = self.placer.place_more(floor, placed, {a: planned[a] for a in missing})
        failed = mend(instance, placed, floor, failed, prices, deadline)
        self.placer.settle(floor, placed, failed, problem.offers)
        self.placer.upgrade(floor, placed, self._neediest_first(placed), problem.offers)
        return placed

    def _improved(self, start: Placement, gain: Floats) -> Placement:
        """A feasible placement, improved by whatever free GPUs allow."""
        placed = Placement(dict(start.option), dict(start.bundles))
        floor = self.placer.floor()
        for bundle in placed.bundles.values():
            floor.take(bundle)
        self.placer.upgrade(floor, placed, range(self.instance.apps), gain)
        return placed

    def _neediest_first(self, placement: Placement) -> list[int]:
        return sorted(range(self.instance.apps), key=lambda a: (a in placement.option, a))

    def good(self, problem: Problem, best: Placement, bound: float) -> bool:
        """Whether an allocation serves all that it must and is as near to the bound as wanted."""
        served, value = best.score(problem.gain, problem.counted)
        return served >= problem.must and bound - value <= max(EXACT / 10, self.effort.slack)

    def decide(
        self,
        problem: Problem,
        prices: Prices,
        best: Placement,
        bound: float,
        deadline: Deadline,
    ) -> tuple[Placement, float]:
        """Let the full model decide, when it is small enough and something is left to decide."""
        if self.good(problem, best, bound) or deadline.passed() or not self.effort.full_columns:
            return best, bound
        if self._full is None:
            self._full = build_model(self.instance, full=True)
        full = self._full
        served, value = best.score(problem.gain, problem.counted)
        # A column that falls short by more than the whole gap is in no better allocation.
        reach = prices.bound - value + EXACT if served >= problem.must else math.inf
        allowed = problem.allowed[full.option]
        columns = np.flatnonzero(allowed & (prices.shortfall[full.option] <= reach))
        if columns.size > self.effort.full_columns:
            return best, bound
        exact = replace(problem, model=full, gain=problem.gain[full.option], allowed=allowed)
        found = solve_integer(exact, columns, nodes=self.effort.nodes, seconds=deadline.left_s())
        if found is None:
            return best, bound
        placed = Placement(chosen_by_app(full, found.columns), name_machines(full, found))
        best = better(best, placed, problem)
        value = best.score(problem.gain, problem.counted)[1]
        return best, min(bound, max(found.bound, value))


def better(one: Placement, other: Placement, problem: Problem) -> Placement:
    """The one that serves more counted bidders, then the one that gains more; first if equal."""
    first = one.score(problem.gain, problem.counted)
    return other if other.score(problem.gain, problem.counted) > first else one


def bargains(problem: Problem, prices: Prices) -> dict[int, int]:
    """Each bidder's best bargain at given prices: what to try when there is no better plan."""
    tops = best_columns(problem.model, net_gains(problem, prices.parts, prices.premium))
    buying = (prices.bargain > 0) | problem.counted
    return {int(problem.model.app[c]): int(c) for c in tops if buying[problem.model.app[c]]}
