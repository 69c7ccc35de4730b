"""Prices from the linear relaxation, by column generation.

A restricted linear program over few columns gives prices; at these prices each bidder names the
column that it would rather have; the program grows by these until nobody names a new one. The
start is what bidders would take if every GPU cost the same.
"""

from __future__ import annotations

import numpy as np

from themis_ray.core.solver.deadline import Deadline
from themis_ray.core.solver.instance import Floats, Ints
from themis_ray.core.solver.model import Model
from themis_ray.core.solver.problem import Prices, Problem, best_columns, net_gains, price
from themis_ray.core.solver.programs import solve_linear

ALL_AT_ONCE = 1500
MOST_ROUNDS = 60
CLOSE = 1e-9
SPREAD = (0.3, 0.5, 0.7, 0.85, 0.95, 1.0, 1.05, 1.15, 1.4, 2.0, 3.0)


def relax(problem: Problem, start: Ints, deadline: Deadline) -> Prices:
    """The best prices found: their bound is that of the linear relaxation, unless time ran out.

    Args:
        problem: What to maximise.
        start: Columns that are feasible together (they serve as many as must be served).
        deadline: When to stop.
    """
    allowed = problem.columns
    if not allowed.size:
        return price(problem, np.zeros(len(problem.model.parts)), 0.0)
    # One price for every GPU is a fair start, and all there is when time runs out at once.
    gpu = _clearing_price(problem)
    best = price(problem, *_flat_prices(problem, gpu))
    columns = allowed
    if allowed.size > ALL_AT_ONCE:
        columns = np.union1d(start, _first_columns(problem, gpu))
    for _ in range(MOST_ROUNDS if not deadline.passed() else 0):
        solution = solve_linear(problem, columns, seconds=deadline.left_s())
        if solution is None:
            return best
        found = price(problem, solution.parts, solution.premium)
        if found.bound < best.bound:
            best = found
        if found.bound - solution.value <= CLOSE * (1 + abs(found.bound)) or deadline.passed():
            return best
        net = net_gains(problem, found.parts, found.premium)
        grown = np.union1d(columns, best_columns(problem.model, net))
        if grown.size == columns.size:
            return best
        columns = grown
    return best


def _flat_prices(problem: Problem, gpu: float) -> tuple[Floats, float]:
    """Every GPU costs the same; the premium is the least that makes all counted bidders buy."""
    parts = np.asarray([size for _, size in problem.model.parts], dtype=np.float64) * gpu
    if not problem.must:
        return parts, 0.0
    net = net_gains(problem, parts, 0.0)
    tops = best_columns(problem.model, net)
    counted = tops[problem.counted[problem.model.app[tops]]]
    return parts, max(0.0, -float(net[counted].min())) if counted.size else 0.0


def _first_columns(problem: Problem, gpu: float) -> Ints:
    """What each bidder would take at flat prices around the one at which demand meets supply."""
    model = problem.model
    chosen = [best_columns(model, _flat_net(problem, gpu * factor)) for factor in SPREAD]
    smallest = np.where(problem.allowed, -model.size.astype(np.float64), -np.inf)
    return np.unique(np.concatenate([*chosen, best_columns(model, smallest)]))


def _flat_net(problem: Problem, gpu: float) -> Floats:
    net = problem.gain - gpu * problem.model.size
    return np.where(problem.allowed, net, -np.inf)


def _clearing_price(problem: Problem) -> float:
    model = problem.model
    supply = model.instance.pool.size
    low, high = 0.0, max(1e-9, float(np.ptp(problem.gain[problem.allowed])))
    for _ in range(30):
        middle = (low + high) / 2
        if _demand(model, _flat_net(problem, middle), problem) > supply:
            low = middle
        else:
            high = middle
    return high


def _demand(model: Model, net: Floats, problem: Problem) -> int:
    top = best_columns(model, net)
    # A counted bidder must win something, whatever it costs.
    buying = top[(net[top] > 0) | problem.counted[model.app[top]]]
    return int(model.size[buying].sum())
