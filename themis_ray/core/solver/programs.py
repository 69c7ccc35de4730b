"""The linear and integer programs over some columns of a problem, for HiGHS through scipy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, OptimizeResult, linprog, milp
from scipy.sparse import coo_array, csc_array

from themis_ray.core.solver.instance import Floats, Ints
from themis_ray.core.solver.problem import Problem
from themis_ray.core.solver.rounding import round_up

INTEGRAL = 1e-6
NONE: Ints = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class LinearSolution:
    """The optimum of the linear relaxation over some columns.

    Attributes:
        value: Its gain.
        parts: The dual price of each part.
        premium: The dual of the number that must be served.
    """

    value: float
    parts: Floats
    premium: float


@dataclass(frozen=True, eq=False)
class IntegerSolution:
    """What an integer program found.

    Attributes:
        columns: The columns chosen.
        supply: The values of the supply variables.
        value: Their gain.
        bound: No choice among the columns gains more.
        proved: Whether the search ended by itself.
    """

    columns: Ints
    supply: Floats
    value: float
    bound: float
    proved: bool


def solve_linear(
    problem: Problem, columns: Ints, *, seconds: float | None = None
) -> LinearSolution | None:
    """Solve the relaxation; None when it is infeasible, or not solved within ``seconds``."""
    matrix, low, high = _constraints(problem, columns)
    matrix = matrix.tocsr()
    model = problem.model
    equal = low == high
    cost = np.concatenate([-problem.gain[columns], np.zeros(model.upper.size)])
    result = linprog(
        cost,
        A_ub=matrix[~equal],
        b_ub=high[~equal],
        A_eq=matrix[equal] if equal.any() else None,
        b_eq=high[equal] if equal.any() else None,
        bounds=(0, None),
        method="highs",
        options={} if seconds is None else {"time_limit": max(seconds, 1e-3)},
    )
    if result.status != 0:
        return None
    duals = np.zeros(high.size)
    duals[~equal] = -result.ineqlin.marginals
    if equal.any():
        duals[equal] = -result.eqlin.marginals
    parts = len(model.parts)
    return LinearSolution(-float(result.fun), duals[:parts], max(0.0, float(duals[-1])))


def solve_integer(
    problem: Problem,
    columns: Ints,
    fixed: Ints = NONE,
    *,
    nodes: int,
    seconds: float | None = None,
    tolerance: float = 0.0,
    linear_first: bool = True,
) -> IntegerSolution | None:
    """Solve the integer program; None when nothing feasible was found.

    Args:
        problem: What to maximise.
        columns: The columns to choose from.
        fixed: Columns of other bidders that are chosen in any case.
        nodes: Limit of the branch-and-bound tree, the same on every machine.
        seconds: Limit of time.
        tolerance: Gap, relative to the gain of the columns not fixed, at which to stop.
        linear_first: Try the linear program first: worth it where it is often integral.
    """
    matrix, low, high = _constraints(problem, columns, fixed)
    model = problem.model
    upper = np.concatenate([np.ones(columns.size), model.upper])
    options: dict[str, float] = {"mip_rel_gap": tolerance, "node_limit": nodes}
    if seconds is not None:
        options["time_limit"] = max(seconds, 1e-3)
    cost = np.concatenate([-problem.gain[columns], np.zeros(model.upper.size)])
    result = _minimise(cost, upper, LinearConstraint(matrix, low, high), options, linear_first)
    if result.x is None:
        return None
    chosen = np.union1d(columns[np.round(result.x[: columns.size]) > 0], fixed)
    value = math.fsum(problem.gain[chosen])
    bound = value
    if result.status != 0 or tolerance > 0:
        # The linear program has no bound of its own: it is its value.
        least = result.fun if result.mip_dual_bound is None else result.mip_dual_bound
        bound = math.fsum(problem.gain[fixed]) - float(least)
    return IntegerSolution(
        chosen, result.x[columns.size :], value, max(value, bound), result.status == 0
    )


def solve_rounded(
    problem: Problem, columns: Ints, fixed: Ints, *, seconds: float | None, slack: float
) -> IntegerSolution | None:
    """Solve the linear program and round it; None unless that is within ``slack`` of its bound.

    The values of the supply variables are left out.
    """
    found = _relaxed(problem, columns, fixed, seconds)
    if found is None:
        return None
    best = -float(found.fun)
    chosen = round_up(problem, columns, fixed, found.x[: columns.size], best - slack)
    if chosen is None:
        return None
    value = math.fsum(problem.gain[chosen])
    bound = math.fsum(problem.gain[fixed]) + best
    return IntegerSolution(chosen, np.empty(0), value, max(value, bound), True)


def solve_mixture(
    problem: Problem, columns: Ints, fixed: Ints, *, seconds: float | None
) -> tuple[Floats, float] | None:
    """The linear program's amounts of the columns, and its value with what is fixed."""
    found = _relaxed(problem, columns, fixed, seconds)
    if found is None:
        return None
    return found.x[: columns.size], math.fsum(problem.gain[fixed]) - float(found.fun)


def _relaxed(
    problem: Problem, columns: Ints, fixed: Ints, seconds: float | None
) -> OptimizeResult | None:
    matrix, low, high = _constraints(problem, columns, fixed)
    upper = np.concatenate([np.ones(columns.size), problem.model.upper])
    result = milp(
        np.concatenate([-problem.gain[columns], np.zeros(problem.model.upper.size)]),
        bounds=Bounds(0, upper),
        constraints=LinearConstraint(matrix, low, high),
        options={} if seconds is None else {"time_limit": max(seconds, 1e-3)},
    )
    return result if result.status == 0 else None


def _minimise(
    cost: Floats,
    upper: Floats,
    constraints: LinearConstraint,
    options: dict[str, float],
    linear_first: bool,
) -> OptimizeResult:
    """The integer optimum; the linear one when it happens to be integral.

    It often is, and takes a third of the time that HiGHS spends on its way to an integer program.
    """
    bounds = Bounds(0, upper)
    whole = np.ones(upper.size)
    if not linear_first:
        return milp(
            cost, integrality=whole, bounds=bounds, constraints=constraints, options=options
        )
    limits = {key: value for key, value in options.items() if key == "time_limit"}
    linear = milp(cost, bounds=bounds, constraints=constraints, options=limits)
    infeasible = 2
    if linear.status == infeasible:
        return linear
    if linear.x is not None and np.abs(linear.x - np.round(linear.x)).max(initial=0) <= INTEGRAL:
        return linear
    return milp(cost, integrality=whole, bounds=bounds, constraints=constraints, options=options)


def _constraints(
    problem: Problem, columns: Ints, fixed: Ints = NONE
) -> tuple[csc_array, Floats, Floats]:
    """Rows: parts, the supply variables' own, one per bidder, the number that must be served.

    The matrix is put together entry by entry: stacking sparse blocks takes longer than HiGHS.
    """
    model = problem.model
    chosen = model.needs[model.placed[columns]]
    here = np.arange(columns.size)
    apps, of_app = np.unique(model.app[columns], return_inverse=True)
    counted = np.flatnonzero(problem.counted[model.app[columns]])
    supply_rows, supply_variables, supply_data = model.supply_entries
    above = len(model.parts) + model.limits.shape[0]
    height = above + apps.size + 1
    rows = [
        chosen.indices,
        of_app + above,
        np.full(counted.size, height - 1),
        supply_rows,
    ]
    across = [
        np.repeat(here, np.diff(chosen.indptr)),
        here,
        counted,
        supply_variables + columns.size,
    ]
    data = [chosen.data, np.ones(columns.size), -np.ones(counted.size), supply_data]
    matrix = coo_array(
        (np.concatenate(data), (np.concatenate(rows), np.concatenate(across))),
        shape=(height, columns.size + model.upper.size),
    ).tocsc()
    low = np.full(height, -np.inf)
    high = np.ones(height)
    low[len(model.parts) : above] = model.limit_low
    high[: len(model.parts)] = 0.0
    high[len(model.parts) : above] = model.limit_high
    high[-1] = -float(problem.must)
    high[: len(model.parts)] -= model.needs[model.placed[fixed]].sum(axis=0)
    high[-1] += problem.counted[model.app[fixed]].sum()
    return matrix, low, high
