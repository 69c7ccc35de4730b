"""The auction without one bidder, solved from what is known of the auction with everyone.

The prices of the auction with everyone are near those without one bidder. So most columns are out
of the question from the start, and most bidders keep what they have: a small integer program over
the rest decides, and the prices bound what it may have missed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from themis_ray.core.solver.deadline import Deadline
from themis_ray.core.solver.exchange import Exchanges
from themis_ray.core.solver.floor import Floor
from themis_ray.core.solver.maximise import Maximiser, better
from themis_ray.core.solver.naming import chosen_by_app
from themis_ray.core.solver.nearby import Effort, Nearby, best_mixture, best_nearby
from themis_ray.core.solver.outcome import EXACT
from themis_ray.core.solver.placing import Placement
from themis_ray.core.solver.problem import Prices, Problem, paid, rescale
from themis_ray.core.solver.relaxation import relax

# Columns per bidder, on average, that tell how far prices fall without one bidder.
NEAR = 8
# How many times the slack allowed is worth a linear program of its own.
LOOSE = 3
# An exchange will do up to this part of the slack allowed beyond that of a known answer.
EXCHANGED = 0.01


@dataclass(frozen=True, eq=False)
class Base:
    """The auction among those that are served, where all of them must be.

    Attributes:
        problem: That auction.
        prices: Its prices.
        placement: The allocation.
        planned: The options that counterfactuals are compared with: those of the allocation, or,
            in a large auction, those of the merged model's optimum.
        floor: The GPUs that the allocation leaves.
    """

    problem: Problem
    prices: Prices
    placement: Placement
    planned: Mapping[int, int]
    floor: Floor


@dataclass(frozen=True, eq=False)
class Absence:
    """What changes for the others when one bidder stays away.

    Attributes:
        changes: By how much ``w * log V`` of each other bidder rises (or falls), if it changes.
        slack: By how much the sum of the changes could at most be greater.
    """

    changes: Mapping[int, float]
    slack: float


class Counterfactuals:
    """Solves the auction without one bidder.

    Args:
        maximiser: The solver of problems.
        base: The auction among those that are served.
        effort: How hard to try.
        placing: Whether counterfactuals are placed on named machines. If not (in a large
            auction), both sides of the comparison are those of the merged model.
        linear: Whether the linear relaxation stands for the auction without the bidder. Then the
            harm found is never too small, and too great by what whole GPUs cost at most.
        deadline: When to stop: after it, no harm is found any more.
    """

    def __init__(
        self,
        maximiser: Maximiser,
        base: Base,
        effort: Effort,
        placing: bool,
        linear: bool,
        deadline: Deadline,
    ) -> None:
        self._maximiser = maximiser
        self._base = base
        self._effort = effort
        self._placing = placing and maximiser.forgets
        self._linear = linear
        self._deadline = deadline
        self._cost = paid(base.problem, base.prices)
        # The merged model's answers, of which named machines or mixtures of columns are not.
        handed_on = not self._placing and not linear
        self._exchanges = Exchanges(base.problem, base.planned) if handed_on else None
        shortfall, count = base.prices.shortfall, NEAR * max(1, base.problem.able.size)
        reach = np.inf
        if shortfall.size > count:
            reach = float(np.partition(shortfall, count)[count])
        self._near = np.flatnonzero(shortfall <= reach)

    def without(self, app: int) -> Absence:
        """The best for the others."""
        before = {a: o for a, o in self._base.planned.items() if a != app}
        problem, prices = self._drop(app)
        value = _gain(problem, before)
        if prices.bound - value <= EXACT / 10 or self._deadline.passed():
            return Absence({}, max(0.0, prices.bound - value))
        prices = rescale(problem, prices, self._cost, self._near)
        if self._linear:
            return self._linear_absence(problem, prices, before)
        known = None if self._exchanges is None else self._exchanges.without(app)
        if known is not None:
            enough = known.slack + max(EXACT / 10, EXCHANGED * self._effort.slack)
            if prices.bound - known.gain <= enough:
                return _absence(problem, before, known.chosen, prices.bound)
        near = best_nearby(problem, prices, self._effort, self._deadline)
        if self._loose(near) and not self._deadline.passed():
            # A bidder so large that one factor for all prices does not make up for its absence.
            start = np.asarray(sorted(before.values()), dtype=np.int64)
            prices = relax(problem, start, self._deadline)
            near = best_nearby(problem, prices, self._effort, self._deadline)
        if near.solution is None:
            return Absence({}, max(0.0, near.bound - value))
        after: Mapping[int, int] = chosen_by_app(problem.model, near.solution.columns)
        bound = near.bound
        if self._placing:
            after, bound = self._placed(after, app, problem, prices, bound)
        if self._exchanges is not None:
            self._exchanges.learn(app, after, max(0.0, bound - near.solution.value))
        return _absence(problem, before, after, bound)

    def _loose(self, near: Nearby) -> bool:
        if near.solution is None:
            return True
        return near.bound - near.solution.value > LOOSE * max(self._effort.slack, EXACT)

    def _linear_absence(
        self, problem: Problem, prices: Prices, before: Mapping[int, int]
    ) -> Absence:
        """What changes in the linear relaxation over the columns in question."""
        mixed = best_mixture(problem, prices, self._effort, self._deadline)
        value = _gain(problem, before)
        if mixed is None:
            return Absence({}, max(0.0, prices.bound - value))
        changes = {}
        for app, gain in mixed.gains.items():
            change = gain - (float(problem.gain[before[app]]) if app in before else 0.0)
            if abs(change) > EXACT / 10:
                changes[app] = change
        gained = math.fsum(changes.values())
        if gained <= 0:
            return Absence({}, max(0.0, mixed.bound - value))
        return Absence(changes, max(0.0, mixed.bound - value - gained))

    def _drop(self, app: int) -> tuple[Problem, Prices]:
        """The problem without a bidder, at the same prices."""
        problem, prices = self._base.problem, self._base.prices
        own = problem.model.app == app
        counted = bool(problem.counted[app])
        bargain = prices.bargain.copy()
        bargain[app] = 0.0
        bound = prices.bound - prices.bargain[app] + prices.premium * counted
        return (
            replace(problem, allowed=problem.allowed & ~own, must=problem.must - counted),
            replace(
                prices,
                bargain=bargain,
                bound=float(bound),
                shortfall=np.where(own, np.inf, prices.shortfall),
            ),
        )

    def _placed(
        self,
        after: Mapping[int, int],
        app: int,
        problem: Problem,
        prices: Prices,
        bound: float,
    ) -> tuple[Mapping[int, int], float]:
        """The best that can be placed on named machines."""
        placed = better(self._as_it_was(app), self._rearranged(after, app, problem), problem)
        if not self._maximiser.good(problem, placed, bound):
            placed = better(
                placed, self._maximiser.place(dict(after), problem, self._deadline), problem
            )
            placed, bound = self._maximiser.decide(problem, prices, placed, bound, self._deadline)
        return placed.option, bound

    def _as_it_was(self, app: int) -> Placement:
        was = self._base.placement
        option = {a: o for a, o in was.option.items() if a != app}
        return Placement(option, {a: was.bundles[a] for a in option})

    def _rearranged(self, after: Mapping[int, int], app: int, problem: Problem) -> Placement:
        """Place only what changes, on the machines that this frees; then put all back."""
        floor, was = self._base.floor, self._base.placement
        moved = sorted(a for a in {*after, *was.option} if after.get(a) != was.option.get(a))
        for other in moved:
            floor.give(was.bundles.get(other, {}))
        placed = self._as_it_was(app)
        for other in moved:
            placed.option.pop(other, None)
            placed.bundles.pop(other, None)
        placer = self._maximiser.placer
        failed = placer.place_more(floor, placed, {a: after[a] for a in moved if a in after})
        placer.settle(floor, placed, failed, problem.offers)
        for other in moved:
            floor.give(placed.bundles.get(other, {}))
        for other in moved:
            floor.take(was.bundles.get(other, {}))
        return placed


def _absence(
    problem: Problem, before: Mapping[int, int], after: Mapping[int, int], bound: float
) -> Absence:
    """What changes when a bidder stays away, if anything gets better by it."""
    value, gain = _gain(problem, before), _gain(problem, after)
    if gain <= value:
        return Absence({}, max(0.0, bound - value))
    return Absence(_changes(problem, before, after), max(0.0, bound - gain))


def _changes(
    problem: Problem, before: Mapping[int, int], after: Mapping[int, int]
) -> dict[int, float]:
    """By how much each bidder's gain differs, for those whose gain does."""
    changes = {}
    for app in {a for a, _ in before.items() ^ after.items()}:
        then = float(problem.gain[after[app]]) if app in after else 0.0
        now = float(problem.gain[before[app]]) if app in before else 0.0
        if then != now:
            changes[app] = then - now
    return changes


def _gain(problem: Problem, option: Mapping[int, int]) -> float:
    return math.fsum(problem.gain[list(option.values())].tolist())
