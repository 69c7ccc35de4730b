"""The integer optimum of a model, from the columns that prices leave in question."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from themis_ray.core.solver.deadline import Deadline
from themis_ray.core.solver.instance import Bools, Ints
from themis_ray.core.solver.outcome import EXACT
from themis_ray.core.solver.problem import Prices, Problem
from themis_ray.core.solver.programs import (
    NONE,
    IntegerSolution,
    solve_integer,
    solve_mixture,
    solve_rounded,
)


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard to try. None of it depends on the clock.

    Attributes:
        columns: Columns in the first integer program, beyond one for each bidder.
        most_columns: Columns at most.
        nodes: Branch-and-bound nodes of one integer program.
        tries: Orders in which placing on named machines is tried.
        slack: A gap (in the objective) that is good enough to stop enlarging.
        full_columns: Columns of the full model up to which it is solved when placing fails.
        rounding: Whether a rounded linear solution will do, if it is within half the slack; it
            does not say how machines are cut.
    """

    columns: int
    most_columns: int
    nodes: int
    tries: int
    slack: float
    full_columns: int
    rounding: bool = False


@dataclass(frozen=True, eq=False)
class Nearby:
    """An integer solution and a bound on all others.

    Attributes:
        solution: The best found; None when nothing feasible was.
        bound: No allocation gains more.
    """

    solution: IntegerSolution | None
    bound: float


def best_nearby(problem: Problem, prices: Prices, effort: Effort, deadline: Deadline) -> Nearby:
    """Maximise over the columns nearest to their bidder's best bargain, then over more of them.

    It ends when the columns left out are proved useless, or when effort or time are spent.
    """
    finite = prices.shortfall[problem.allowed]
    wanted = int(problem.able.size) + effort.columns
    best: IntegerSolution | None = None
    bound = prices.bound if finite.size else 0.0
    while finite.size:
        everything = wanted >= finite.size
        reach = np.inf if everything else float(np.partition(finite, wanted - 1)[wanted - 1])
        columns, fixed = _in_question(problem, prices, reach)
        if best is not None and columns.size > effort.most_columns:
            break
        found = _solve(problem, columns, fixed, effort, deadline)
        if found is not None and (best is None or found.value > best.value):
            best = found
        if found is not None:
            beyond = -np.inf if everything else prices.bound - reach
            bound = min(bound, max(found.bound, beyond, best.value if best else -np.inf))
            if bound - found.value <= max(EXACT / 10, effort.slack) or not found.proved:
                break
        if everything or deadline.passed():
            break
        wanted = _next_size(finite, wanted, prices.bound, found)
    return Nearby(best, bound)


@dataclass(frozen=True, eq=False)
class Mixture:
    """An optimum of the linear relaxation.

    Attributes:
        gains: What each bidder gains on average.
        bound: No allocation gains more.
    """

    gains: dict[int, float]
    bound: float


def best_mixture(
    problem: Problem, prices: Prices, effort: Effort, deadline: Deadline
) -> Mixture | None:
    """The linear relaxation over the columns nearest to their bidder's best bargain."""
    finite = prices.shortfall[problem.allowed]
    wanted = int(problem.able.size) + effort.columns
    reach = np.inf
    if wanted < finite.size:
        reach = float(np.partition(finite, wanted - 1)[wanted - 1])
    columns, fixed = _in_question(problem, prices, reach)
    found = solve_mixture(problem, columns, fixed, seconds=deadline.left_s())
    if found is None:
        return None
    amounts, value = found
    apps = problem.model.app
    gains = np.bincount(apps[columns], amounts * problem.gain[columns], problem.counted.size)
    gains += np.bincount(apps[fixed], problem.gain[fixed], problem.counted.size)
    taking = np.flatnonzero(np.bincount(apps[columns], amounts, problem.counted.size) > 0)
    winners = np.union1d(taking, apps[fixed])
    bound = min(prices.bound, max(value, prices.bound - reach))
    return Mixture({int(app): float(gains[app]) for app in winners}, bound)


def _in_question(problem: Problem, prices: Prices, reach: float) -> tuple[Ints, Ints]:
    """The columns within reach, and those among them that their bidder cannot do without."""
    model = problem.model
    columns = np.flatnonzero((prices.shortfall <= reach) & problem.allowed)
    apps, first, counts = np.unique(model.app[columns], return_index=True, return_counts=True)
    sure = (counts == 1) & ((prices.bargain[apps] > reach) | _must_win(problem)[apps])
    if not sure.any():
        return columns, NONE
    fixed = columns[first[sure]]
    return np.setdiff1d(columns, fixed, assume_unique=True), fixed


def _solve(
    problem: Problem, columns: Ints, fixed: Ints, effort: Effort, deadline: Deadline
) -> IntegerSolution | None:
    """Solve the integer program, by rounding where that is good enough."""
    seconds = deadline.left_s()
    if effort.rounding:
        slack = effort.slack / 2
        found = solve_rounded(problem, columns, fixed, seconds=seconds, slack=slack)
        if found is not None:
            return found
    return solve_integer(
        problem,
        columns,
        fixed,
        nodes=effort.nodes,
        seconds=seconds,
        tolerance=_tolerance(problem, columns, effort.slack),
        linear_first=not effort.rounding,
    )


def _tolerance(problem: Problem, columns: Ints, slack: float) -> float:
    """A relative gap that is no more than half of the slack allowed, in absolute terms."""
    most = float(np.abs(problem.gain[columns]).max(initial=0.0))
    bidders = np.unique(problem.model.app[columns]).size
    return slack / 2 / max(1.0, most * bidders)


def _must_win(problem: Problem) -> Bools:
    """The counted bidders, when all of them must win."""
    everyone = int(problem.counted[problem.able].sum()) == problem.must
    return problem.counted & everyone


def _next_size(finite: np.ndarray, wanted: int, bound: float, found: IntegerSolution | None) -> int:
    """Enough columns to prove the optimum when the gap is known, else three times as many."""
    if found is None:
        return 3 * wanted
    enough = int((finite <= bound - found.value).sum())
    return max(wanted + 1, min(enough, finite.size))
