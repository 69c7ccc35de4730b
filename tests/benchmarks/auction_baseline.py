"""The auction as the paper has it: a row for each subset of GPUs, a binary for each row.

THEMIS (NSDI '20, section 5.2) enumerates an app's bids over the subsets of the GPUs on offer and
gives the integer program to a commercial solver. GPUs of one machine are alike, so a subset is a
count for each machine here (subsets of single GPUs would be far more). Solved by the same HiGHS
as ours, or by Gurobi where that is installed.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from auction_cases import Case
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array, csr_array

from themis_ray.core.bids import BidRow
from themis_ray.core.cluster import Level


@dataclass(frozen=True)
class Rows:
    """The enumerated program: maximise the gains, one row for each app, within capacity.

    Attributes:
        app: The app of each row.
        gain: log V less log V of nothing.
        use: GPUs by machine and row.
        room: GPUs of each machine.
    """

    app: np.ndarray
    gain: np.ndarray
    use: csr_array
    room: np.ndarray


def enumerate_rows(case: Case) -> Rows:
    """A row for each bundle of named machines that a bid accepts, at its best value."""
    machines = list(case.pool)
    number = {machine: i for i, machine in enumerate(machines)}
    apps, gains, bundles = [], [], []
    for i, table in enumerate(case.tables):
        best: dict[tuple[tuple[int, int], ...], float] = {}
        for row in table.rows:
            for bundle in _bundles(row, case, machines, number):
                best[bundle] = max(best.get(bundle, 0.0), row.value)
        for bundle, value in best.items():
            if value > table.value_nothing:
                apps.append(i)
                gains.append(math.log(value / table.value_nothing))
                bundles.append(bundle)
    entries = [(m, r, c) for r, bundle in enumerate(bundles) for m, c in bundle]
    where, which, counts = zip(*entries, strict=True)
    use = coo_array((counts, (where, which)), shape=(len(machines), len(bundles))).tocsr()
    room = np.asarray([case.pool[machine] for machine in machines])
    return Rows(np.asarray(apps), np.asarray(gains), use, room)


def _bundles(
    row: BidRow, case: Case, machines: list[str], number: dict[str, int]
) -> list[tuple[tuple[int, int], ...]]:
    """The bundles of a row whose parts lie on different machines (a part is a whole machine or
    the rest, so that parts never share one)."""
    found = []
    for places in itertools.permutations(machines, len(row.parts)):
        pairs = tuple(sorted((number[m], p) for m, p in zip(places, row.parts, strict=True)))
        in_rack = len({case.racks[m] for m in places}) == 1
        if in_rack or row.level == Level.CLUSTER:
            found.append(pairs)
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class Solved:
    """What a baseline did.

    Attributes:
        wall_s: How long, all programs together.
        cpu_s: The same in processor time.
        welfare: ``sum of log V`` of the allocation, less that of nothing.
        programs: Programs solved.
        wanted: Programs that there are: one, and one for each app that stays away.
        proved: Whether all were solved to optimality.
    """

    wall_s: float
    cpu_s: float
    welfare: float
    programs: int
    wanted: int
    proved: bool


Solver = Callable[[Rows, np.ndarray, float], tuple[float, bool]]


def run_baseline(
    rows: Rows, apps: Sequence[int], solve: Solver, program_s: float, total_s: float
) -> Solved:
    """The allocation and then the counterfactuals, until the time is up."""
    start, cpu = time.perf_counter(), time.process_time()
    welfare, proved = solve(rows, np.ones(rows.app.size, dtype=bool), program_s)
    programs = 1
    for app in apps:
        if time.perf_counter() - start > total_s:
            break
        _, good = solve(rows, rows.app != app, program_s)
        programs, proved = programs + 1, proved and good
    wall_s, cpu_s = time.perf_counter() - start, time.process_time() - cpu
    return Solved(wall_s, cpu_s, welfare, programs, len(apps) + 1, proved)


def solve_with_highs(rows: Rows, allowed: np.ndarray, limit_s: float) -> tuple[float, bool]:
    """Maximise with the HiGHS of scipy; returns the gain and whether it is proved."""
    apps = int(rows.app.max()) + 1
    here = np.arange(rows.app.size)
    one_each = csr_array((np.ones(rows.app.size), (rows.app, here)), shape=(apps, rows.app.size))
    result = milp(
        -rows.gain,
        integrality=np.ones(rows.app.size),
        bounds=Bounds(0, allowed.astype(float)),
        constraints=[
            LinearConstraint(rows.use.tocsc(), -np.inf, rows.room),
            LinearConstraint(one_each.tocsc(), -np.inf, 1),
        ],
        options={"mip_rel_gap": 0.0, "time_limit": limit_s},
    )
    return (-float(result.fun) if result.x is not None else -math.inf), result.status == 0


def gurobi_solver() -> Solver | None:
    """The same with Gurobi, under the size-limited licence of its package; None without it."""
    try:
        import gurobipy as gurobi
    except ImportError:
        return None

    def solve(rows: Rows, allowed: np.ndarray, limit_s: float) -> tuple[float, bool]:
        with gurobi.Env(params={"OutputFlag": 0}) as env, gurobi.Model(env=env) as model:
            x = model.addMVar(rows.app.size, vtype="B", ub=allowed.astype(float))
            model.addConstr(rows.use @ x <= rows.room)
            here = np.arange(rows.app.size)
            apps = int(rows.app.max()) + 1
            shape = (apps, rows.app.size)
            one_each = csr_array((np.ones(rows.app.size), (rows.app, here)), shape=shape)
            model.addConstr(one_each @ x <= np.ones(apps))
            model.setObjective(rows.gain @ x, gurobi.GRB.MAXIMIZE)
            model.Params.MIPGap = 0.0
            model.Params.TimeLimit = limit_s
            model.optimize()
            return model.ObjVal, model.Status == gurobi.GRB.OPTIMAL

    return solve
