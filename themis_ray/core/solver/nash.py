"""Maximum Nash welfare: how many are served first, then the product; and the same without one.

How an answer is found, unless everybody can have its best at once:

1. the merged model's prices (column generation) bound the objective;
2. an integer program over the columns that the prices leave in question solves the merged model;
3. its bundles are placed on named machines by best fit, in several orders;
4. if some do not fit and the auction is small, the full model decides; otherwise racks are filled
   one by one, and free GPUs go to whom they help.

Whatever is skipped, the answer is feasible, and the bound of step 1 or 2 stands. Counterfactuals
start from the prices of the auction with everyone: they are near enough to leave few columns in
question.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from themis_ray.core.bids import BidRow, BidTable
from themis_ray.core.cluster import NOTHING, Allocation
from themis_ray.core.solver.deadline import Deadline
from themis_ray.core.solver.instance import Ints, build_instance
from themis_ray.core.solver.maximise import Found, Maximiser
from themis_ray.core.solver.naming import chosen_by_app
from themis_ray.core.solver.nearby import Effort, best_nearby
from themis_ray.core.solver.outcome import EXACT, Outcome, Win
from themis_ray.core.solver.placing import Placement
from themis_ray.core.solver.problem import Prices, Problem
from themis_ray.core.solver.programs import NONE
from themis_ray.core.solver.relaxation import relax
from themis_ray.core.solver.without import Base, Counterfactuals

EXACT_OPTIONS = 3000
EXACT_APPS = 64
EXACT_GPUS = 256
SMALL = Effort(
    columns=150, most_columns=50_000, nodes=20_000, tries=30, slack=0.0, full_columns=3000
)
LARGE = Effort(columns=200, most_columns=4000, nodes=500, tries=4, slack=1e-4, full_columns=0)
LARGE_WITHOUT = Effort(
    columns=60, most_columns=400, nodes=50, tries=1, slack=1e-3, full_columns=0, rounding=True
)
# From so many bidders on, counterfactuals are linear: one bidder moves so little among so many
# that whole GPUs do not matter, and an integer program for each would take most of the time.
LINEAR_FROM = 400
BUDGET_FOR_OPTIMUM = 0.5


@dataclass(frozen=True, slots=True)
class Harm:
    """What a bidder's presence costs the others.

    Attributes:
        logs: By how much its absence would raise ``w * log V`` of each other bidder that is
            affected (negative for one that fares better with it there).
        slack: By how much the sum could at most be greater.
    """

    logs: Mapping[str, float]
    slack: float


NO_HARM = Harm({}, 0.0)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The better bundle that a bidder came nearest to.

    Attributes:
        row: Its row.
        short: By how much ``log V`` of the row would have to be greater to be worth what the
            bundle costs at the going prices; 0 when only the lack of fitting machines stood in
            the way.
    """

    row: BidRow
    short: float


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
        self._small = (
            self.instance.app.size <= EXACT_OPTIONS
            and self.instance.apps <= EXACT_APPS
            and pool.size <= EXACT_GPUS
        )
        self._maximiser = Maximiser(self.instance, SMALL if self._small else LARGE)
        self._others: Counterfactuals | None = None
        self._base: Base | None = None
        self._found: Found | None = None
        self._prices: Prices | None = None
        self._uncontested = False

    def optimum(self) -> Outcome:
        """The allocation of maximum Nash welfare."""
        instance, deadline = self.instance, self._deadline.share(BUDGET_FOR_OPTIMUM)
        start, most = self._serve_most(deadline)
        best = self._maximiser.everyones_best(start)
        if best is not None:
            self._uncontested = True
            value = best.score(instance.gain, instance.needy)[1]
            return self._outcome(Found(best, value, best.option), most)
        problem = Problem(
            self._maximiser.merged,
            instance.gain,
            np.ones(instance.gain.size, dtype=np.bool_),
            instance.needy,
            sum(bool(instance.needy[app]) for app in start.option),
        )
        prices = relax(problem, _columns(start), deadline)
        found = self._maximiser.maximise(problem, prices, start, deadline)
        found = self._in_order(found)
        self._base = self._served_base(problem, prices, found)
        self._found, self._prices = found, prices
        return self._outcome(found, most)

    def harm(self, app: int) -> Harm:
        """What a bidder's presence costs the others that are served; :meth:`optimum` first."""
        if self._uncontested:
            return NO_HARM
        if self._base is None:
            raise RuntimeError("call optimum() before harm()")
        if self._others is None:
            effort = SMALL if self._small else LARGE_WITHOUT
            linear = not self._small and self.instance.apps >= LINEAR_FROM
            self._others = Counterfactuals(
                self._maximiser, self._base, effort, self._small, linear, self._deadline
            )
        absence = self._others.without(app)
        tables = self.instance.tables
        logs = {tables[other].app: change for other, change in sorted(absence.changes.items())}
        return Harm(logs, absence.slack)

    def wanted(self, app: int) -> Wanted | None:
        """The better bundle that a bidder came nearest to; None when it has its best."""
        if self._uncontested:
            return None
        if self._found is None or self._prices is None:
            raise RuntimeError("call optimum() before wanted()")
        gain = self.instance.gain
        own = self._found.placement.option.get(app)
        options = np.flatnonzero(self.instance.app == app)
        better = options if own is None else options[gain[options] > gain[own]]
        if not better.size:
            return None
        # What the bidder gave up to have its own bundle is no fault of the other bundle.
        given_up = 0.0 if own is None else float(self._prices.shortfall[own])
        short = self._prices.shortfall[better]
        nearest = int(better[np.argmin(short)])
        missing = max(0.0, float(short.min()) - given_up) / float(self.instance.weights[app])
        return Wanted(self.instance.bid(nearest), missing)

    def _serve_most(self, deadline: Deadline) -> tuple[Placement, int]:
        """Win something for as many needy bidders as possible; and how many that could be."""
        instance, placer = self.instance, self._maximiser.placer
        able = np.unique(instance.app[instance.needy[instance.app]])
        if not able.size:
            return Placement(), 0
        smallest = {int(app): placer.smallest(int(app)) for app in able}
        _, start, failed = placer.try_orders(smallest, 3)
        if not failed:
            return start, len(start.option)
        of_needy = instance.needy[instance.app]
        gain = np.where(of_needy, 1.0, -np.inf)
        problem = Problem(self._maximiser.merged, gain, of_needy, instance.needy, 0)
        prices = relax(problem, NONE, deadline)
        found = self._maximiser.maximise(problem, prices, start, deadline)
        return found.placement, math.floor(found.bound + EXACT)

    def _in_order(self, found: Found) -> Found:
        """Among bidders that bid alike, the earlier gets the better bundle."""
        alike: dict[tuple[object, ...], list[int]] = {}
        for app, table in enumerate(self.instance.tables):
            key = (table.r_nothing, table.rows, float(self.instance.weights[app]))
            alike.setdefault(key, []).append(app)
        move: dict[int, int] = {}
        for apps in alike.values():
            if len(apps) > 1:
                ranked = sorted(apps, key=lambda a: self._rank(found.placement, a))
                move.update(zip(ranked, apps, strict=True))
        start = self._maximiser.placer.first_option

        def moved(option: Mapping[int, int]) -> dict[int, int]:
            return {move.get(a, a): start(move.get(a, a)) + o - start(a) for a, o in option.items()}

        placement = found.placement
        bundles = {move.get(a, a): bundle for a, bundle in placement.bundles.items()}
        planned = None if found.planned is None else moved(found.planned)
        return replace(
            found, placement=Placement(moved(placement.option), bundles), planned=planned
        )

    def _rank(self, placement: Placement, app: int) -> tuple[float, int]:
        option = placement.option.get(app)
        return (math.inf if option is None else -float(self.instance.gain[option]), app)

    def _served_base(self, problem: Problem, prices: Prices, found: Found) -> Base:
        """The auction among those that are served, where all of them must be."""
        instance, placement, planned = self.instance, found.placement, found.planned
        needy = np.unique(instance.app[instance.needy[instance.app]])
        lost = [int(app) for app in needy if int(app) not in placement.option]
        if lost:
            allowed = ~np.isin(instance.app, lost)
            must = int(needy.size) - len(lost)
            problem = replace(problem, allowed=allowed, must=must)
            deadline = self._deadline.share(BUDGET_FOR_OPTIMUM)
            prices = relax(problem, _columns(placement), deadline)
            near = best_nearby(problem, prices, LARGE, deadline).solution
            planned = None if near is None else chosen_by_app(problem.model, near.columns)
        floor = self._maximiser.placer.floor()
        for bundle in placement.bundles.values():
            floor.take(bundle)
        if self._small or planned is None:
            planned = placement.option
        return Base(problem, prices, placement, planned, floor)

    def _value(self, app: int, option: int | None) -> float:
        return (
            self.instance.tables[app].value_nothing
            if option is None
            else self.instance.bid(option).value
        )

    def _outcome(self, found: Found, most: int) -> Outcome:
        """Put an allocation into words; to the bound on gains, what nothing is worth is added."""
        instance = self.instance
        wins, logs, base = {}, [], []
        for app, table in enumerate(instance.tables):
            option = found.placement.option.get(app)
            row = None if option is None else instance.bid(option)
            gpus = Allocation(found.placement.bundles[app]) if row else NOTHING
            value = self._value(app, option)
            weight = float(instance.weights[app])
            wins[table.app] = Win(row, gpus, value)
            logs.append(weight * math.log(value) if value > 0 else 0.0)
            nothing = table.value_nothing
            base.append(weight * math.log(nothing) if nothing > 0 else 0.0)
        total = math.fsum(logs)
        served = sum(win.value > 0 for win in wins.values())
        free = sum(table.value_nothing > 0 for table in instance.tables)
        bound = max(total, found.bound + math.fsum(base))
        return Outcome(wins, total, served, bound, max(most + free, served))


def _columns(placement: Placement) -> Ints:
    return np.asarray(sorted(placement.option.values()), dtype=np.int64)
