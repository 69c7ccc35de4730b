"""The linear and integer programs over some columns of a problem, for HiGHS through scipy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import csc_array, csr_array, hstack, vstack

from themis_ray.core.solver.instance import Floats, Ints
from themis_ray.core.solver.problem import Problem

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


def solve_linear(problem: Problem, columns: Ints) -> LinearSolution | None:
    """Solve the relaxation; None when it is infeasible."""
    matrix, low, high = _constraints(problem, columns)
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
) -> IntegerSolution | None:
    """Solve the integer program; None when nothing feasible was found.

    Args:
        problem: What to maximise.
        columns: The columns to choose from.
        fixed: Columns of other bidders that are chosen in any case.
        nodes: Limit of the branch-and-bound tree, the same on every machine.
        seconds: Limit of time.
        tolerance: Relative gap at which to stop.
    """
    matrix, low, high = _constraints(problem, columns)
    model = problem.model
    high[: len(model.parts)] -= model.needs[model.placed[fixed]].sum(axis=0)
    high[-1] += problem.counted[model.app[fixed]].sum()
    upper = np.concatenate([np.ones(columns.size), model.upper])
    options: dict[str, float] = {"mip_rel_gap": tolerance, "node_limit": nodes}
    if seconds is not None:
        options["time_limit"] = max(seconds, 1e-3)
    result = milp(
        np.concatenate([-problem.gain[columns], np.zeros(model.upper.size)]),
        integrality=np.ones(upper.size),
        bounds=Bounds(0, upper),
        constraints=LinearConstraint(matrix, low, high),
        options=options,
    )
    if result.x is None:
        return None
    chosen = np.union1d(columns[np.round(result.x[: columns.size]) > 0], fixed)
    value = math.fsum(problem.gain[chosen])
    bound = value
    if result.status != 0:
        bound = math.fsum(problem.gain[fixed]) - float(result.mip_dual_bound)
    return IntegerSolution(
        chosen, result.x[columns.size :], value, max(value, bound), result.status == 0
    )


def _constraints(problem: Problem, columns: Ints) -> tuple[csc_array, Floats, Floats]:
    """Rows: parts, the supply variables' own, one per bidder, the number that must be served."""
    model = problem.model
    apps, rows = np.unique(model.app[columns], return_inverse=True)
    ones = np.ones(columns.size)
    incidence = csr_array((ones, (rows, np.arange(columns.size))), shape=(apps.size, columns.size))
    counted = csr_array(-problem.counted[model.app[columns]].astype(np.float64)[None, :])
    left = vstack(
        [
            model.needs[model.placed[columns]].T,
            csr_array((model.limits.shape[0], columns.size)),
            incidence,
            counted,
        ]
    )
    right = vstack(
        [
            -model.supply.T,
            model.limits,
            csr_array((apps.size + 1, model.upper.size)),
        ]
    )
    parts = len(model.parts)
    free = -np.inf
    low = np.concatenate([np.full(parts, free), model.limit_low, np.full(apps.size + 1, free)])
    high = np.concatenate(
        [np.zeros(parts), model.limit_high, np.ones(apps.size), [-float(problem.must)]]
    )
    return hstack([left, right]).tocsr(), low, high
