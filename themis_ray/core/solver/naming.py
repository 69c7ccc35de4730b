"""Names machines for a solution of the full model.

The model says how each class is cut and which parts each bundle needs within which scope. Scopes
are nested, so serving the narrowest first always works out (Hall's condition).
"""

from __future__ import annotations

from collections.abc import Mapping

from themis_ray.core.solver.floor import Bundle
from themis_ray.core.solver.instance import Ints
from themis_ray.core.solver.model import ROOT, Model, Part
from themis_ray.core.solver.programs import IntegerSolution
from themis_ray.core.solver.supply import cut_machines


def name_machines(model: Model, solution: IntegerSolution) -> dict[int, Bundle]:
    """The bundle of each bidder that wins a column."""
    stock = _Stock(model, solution)
    order = {"class": 0, "rack": 1, "root": 2}
    demands = [
        (order[scope[0]], -size, int(model.app[column]), scope, number)
        for column in solution.columns
        for (scope, size), number in model.needed[model.placed[column]].items()
    ]
    bundles: dict[int, Bundle] = {int(app): {} for app in model.app[solution.columns]}
    for _, size, app, scope, number in sorted(demands):
        for _ in range(number):
            machine = stock.take((scope, -size), bundles[app])
            bundles[app][machine] = bundles[app].get(machine, 0) - size
    return bundles


class _Stock:
    """The cut parts that nobody has yet, by scope and size."""

    def __init__(self, model: Model, solution: IntegerSolution) -> None:
        self._scopes: dict[str, tuple[tuple[str, str], ...]] = {}
        self._left: dict[Part, dict[str, int]] = {}
        for group in model.classes:
            amounts = solution.supply[group.first : group.first + len(group.plan.supplies)]
            cuts = cut_machines(group.plan, amounts)
            for machine, parts in zip(group.machines, cuts, strict=False):
                self._scopes[machine] = (*group.scopes, ROOT)
                for size in parts:
                    for scope in {*group.scopes, ROOT}:
                        left = self._left.setdefault((scope, size), {})
                        left[machine] = left.get(machine, 0) + 1

    def take(self, part: Part, near: Mapping[str, int]) -> str:
        """A machine with such a part to spare, one of ``near`` if there is one."""
        left = self._left[part]
        machine = next((m for m in near if m in left), None) or next(iter(left))
        for scope in {*self._scopes[machine]}:
            counts = self._left[scope, part[1]]
            counts[machine] -= 1
            if not counts[machine]:
                del counts[machine]
        return machine


def chosen_by_app(model: Model, columns: Ints) -> dict[int, int]:
    """The option that each winning bidder gets."""
    return {int(model.app[c]): int(model.option[c]) for c in columns}
