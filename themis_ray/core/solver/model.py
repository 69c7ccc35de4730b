"""The compact model: columns, part resources and cut machines instead of subsets of GPUs.

Machines with as many free GPUs in one rack are interchangeable; they form a class. A bundle needs
parts, ``(scope, size)``: one part of ``size`` GPUs from a class, from a rack, or from anywhere.
Scopes are nested, so named machines can be found for a set of bundles exactly when for each scope
and size the parts needed within the scope are no more than those that its machines are cut into
(Hall's condition for nested sets). Hence the model: one 0/1 variable for each bidder and bundle,
supply variables for each class (:mod:`~themis_ray.core.solver.supply`), one row for each part.

The *full* model is exact. The *merged* model forgets racks and the names of pinned machines: it
is smaller, bounds the full one from above, and most of its solutions can be placed as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import coo_array, csr_array

from themis_ray.core.solver.instance import (
    ANYWHERE,
    ONE_RACK,
    Floats,
    Instance,
    Ints,
    Shape,
    might_hold,
)
from themis_ray.core.solver.supply import Cutting, cutting, rent

ROOT = ("root", "")
Scope = tuple[str, str]
Part = tuple[Scope, int]


@dataclass(frozen=True, eq=False)
class MachineClass:
    """Interchangeable machines.

    Attributes:
        machines: Their names.
        rack: Their rack; empty when the model does not tell racks apart.
        scopes: The scopes that they belong to, narrowest first.
        plan: How they can be cut.
        first: The index of the first supply variable.
    """

    machines: tuple[str, ...]
    rack: str
    scopes: tuple[Scope, ...]
    plan: Cutting
    first: int


@dataclass(frozen=True, eq=False)
class Model:
    """The arrays of a model; see the module's text.

    Attributes:
        instance: The auction.
        full: Whether this is the exact model.
        option: The option of each column, ascending (so columns are grouped by bidder).
        placed: The row of ``needs`` for each column.
        needs: Parts needed, ``(placed shape, part)``.
        zones: The rack of each placed shape; empty for anywhere.
        parts: The parts, by index.
        classes: The machine classes.
        supply: Parts supplied, ``(supply variable, part)``.
        limits: Left-hand sides of the supply variables' own rows.
        limit_low: Least value of each of these rows.
        limit_high: Greatest value.
        upper: Upper bounds of the supply variables.
    """

    instance: Instance
    full: bool
    option: Ints
    placed: Ints
    needs: csr_array
    needed: Sequence[Counter[Part]]
    parts: tuple[Part, ...]
    classes: tuple[MachineClass, ...]
    supply: csr_array
    limits: csr_array
    limit_low: Floats
    limit_high: Floats
    upper: Floats

    @cached_property
    def app(self) -> Ints:
        """The bidder of each column."""
        return self.instance.app[self.option]

    @cached_property
    def segments(self) -> tuple[Ints, Ints]:
        """The bidders with columns, and where their columns start."""
        present, starts = np.unique(self.app, return_index=True)
        return present, starts.astype(np.int64)

    @cached_property
    def supply_entries(self) -> tuple[Ints, Ints, Floats]:
        """Rows, variables and coefficients of the supply variables, parts first, then limits."""
        supply, limits = self.supply.tocoo(), self.limits.tocoo()
        rows = np.concatenate([supply.coords[1], limits.coords[0] + len(self.parts)])
        variables = np.concatenate([supply.coords[0], limits.coords[1]])
        return rows, variables, np.concatenate([-supply.data, limits.data])

    @cached_property
    def size(self) -> Ints:
        """The GPUs of each column."""
        sizes = np.asarray([shape.size for shape in self.instance.shapes], dtype=np.int64)
        return sizes[self.instance.shape[self.option]]

    def rents(self, prices: Floats) -> float:
        """What all machines' parts are worth at given prices for parts."""
        worth = self.supply @ prices
        total = 0.0
        index = {part: i for i, part in enumerate(self.parts)}
        for group in self.classes:
            plan = group.plan
            if not plan.sizes:
                continue
            if plan.form == "patterns":
                each = float(worth[group.first : group.first + len(plan.supplies)].max())
            else:
                tags = [
                    sum(float(prices[index[s, p]]) for s in group.scopes if (s, p) in index)
                    for p in plan.sizes
                ]
                each = rent(plan.room, plan.sizes, tags)
            total += plan.count * max(0.0, each)
        return total


def needs_full(instance: Instance) -> bool:
    """Whether the merged model forgets anything."""
    return any(shape.pinned or shape.rack != ANYWHERE for shape in instance.shapes)


def build_model(instance: Instance, *, full: bool) -> Model:
    """The full or the merged model of an auction."""
    groups = _group_machines(instance, full)
    class_of = {m: i for i, (_, machines) in enumerate(groups) for m in machines}
    option, placed, needed = _columns(instance, full, class_of, len(groups))
    direct = {part for counter in needed for part in counter}
    parts = tuple(sorted(direct))
    index = {part: i for i, part in enumerate(parts)}
    scopes = [_scopes_of(i, rack) for i, (rack, _) in enumerate(groups)]
    above = {s: chain[k:] for chain in scopes for k, s in enumerate(chain)}
    entries = [
        (i, index[outer, size], float(number))
        for i, counter in enumerate(needed)
        for (scope, size), number in counter.items()
        for outer in above.get(scope, (ROOT,))
        if (outer, size) in index
    ]
    classes = _classes(instance, groups, scopes, parts)
    supply, limits, low, high = _supply(classes, index)
    upper = np.asarray([u for c in classes for u in c.plan.upper], dtype=np.float64)
    return Model(
        instance,
        full,
        np.asarray(option, dtype=np.int64),
        np.asarray(placed, dtype=np.int64),
        _matrix(entries, (len(needed), len(parts))),
        needed,
        parts,
        classes,
        supply,
        limits,
        low,
        high,
        upper,
    )


def _group_machines(instance: Instance, full: bool) -> list[tuple[str, tuple[str, ...]]]:
    """Interchangeable machines, with the rack that they share (if the model needs to know)."""
    pinned = {m for shape in instance.shapes for m, _ in shape.pinned} if full else set()
    racks = full and any(shape.rack != ANYWHERE for shape in instance.shapes)
    groups: dict[tuple[str, int, str], list[str]] = {}
    for machine, room in instance.pool.items():
        rack = instance.rack_of[machine] if racks else ""
        groups.setdefault((rack, room, machine if machine in pinned else ""), []).append(machine)
    return [(rack, tuple(machines)) for (rack, _, _), machines in groups.items()]


def _scopes_of(number: int, rack: str) -> tuple[Scope, ...]:
    own = ("class", str(number))
    return (own, ("rack", rack), ROOT) if rack else (own, ROOT)


def _columns(
    instance: Instance, full: bool, class_of: dict[str, int], classes: int
) -> tuple[list[int], list[int], list[Counter[Part]]]:
    """The columns' options and needs; in the full model a one-rack shape has one per rack."""
    rooms: dict[str, list[int]] = {}
    for machine, room in instance.pool.items():
        rooms.setdefault(instance.rack_of[machine], []).append(room)
    needed: list[Counter[Part]] = []
    rows_of: list[list[int]] = []
    for shape in instance.shapes:
        zones = list(_zones(shape, rooms)) if full else [ROOT]
        rows_of.append(list(range(len(needed), len(needed) + len(zones))))
        needed += [_needs(shape, zone, class_of, classes) for zone in zones]
    option = [o for o, s in enumerate(instance.shape) for _ in rows_of[s]]
    placed = [p for s in instance.shape for p in rows_of[s]]
    return option, placed, needed


def _zones(shape: Shape, rooms: dict[str, list[int]]) -> Iterator[Scope]:
    if shape.rack == ANYWHERE:
        yield ROOT
    elif shape.rack == ONE_RACK:
        yield from (("rack", r) for r, free in rooms.items() if might_hold(free, shape.parts))
    else:
        yield ("rack", shape.rack[1:])


def _needs(shape: Shape, zone: Scope, class_of: dict[str, int], classes: int) -> Counter[Part]:
    parts: Counter[Part] = Counter((zone, size) for size in shape.parts)
    for machine, count in shape.pinned:
        scope = ("class", str(class_of[machine])) if classes > 1 else ROOT
        parts[scope, count] += 1
    return parts


def _classes(
    instance: Instance,
    groups: list[tuple[str, tuple[str, ...]]],
    scopes: list[tuple[Scope, ...]],
    parts: Sequence[Part],
) -> tuple[MachineClass, ...]:
    sizes: dict[Scope, set[int]] = {}
    for scope, size in parts:
        sizes.setdefault(scope, set()).add(size)
    plans: dict[tuple[int, int, tuple[int, ...]], Cutting] = {}
    classes, first = [], 0
    for (rack, machines), chain in zip(groups, scopes, strict=True):
        usable = tuple(sorted(set().union(*(sizes.get(scope, set()) for scope in chain))))
        key = (len(machines), instance.pool[machines[0]], usable)
        plan = plans.setdefault(key, cutting(*key)) if key not in plans else plans[key]
        classes.append(MachineClass(machines, rack, chain, plan, first))
        first += len(plan.supplies)
    return tuple(classes)


def _supply(
    classes: Sequence[MachineClass], index: dict[Part, int]
) -> tuple[csr_array, csr_array, Floats, Floats]:
    supplied: list[tuple[int, int, float]] = []
    limits: list[tuple[int, int, float]] = []
    low: list[float] = []
    high: list[float] = []
    variables = 0
    for group in classes:
        for v, parts in enumerate(group.plan.supplies):
            for size, number in parts.items():
                supplied += [
                    (group.first + v, index[scope, size], float(number))
                    for scope in group.scopes
                    if (scope, size) in index
                ]
        for entries, right, equality in group.plan.limits:
            limits += [(len(high), group.first + v, c) for v, c in entries]
            low.append(right if equality else -np.inf)
            high.append(right)
        variables += len(group.plan.supplies)
    return (
        _matrix(supplied, (variables, len(index))),
        _matrix(limits, (len(high), variables)),
        np.asarray(low, dtype=np.float64),
        np.asarray(high, dtype=np.float64),
    )


def _matrix(entries: Sequence[tuple[int, int, float]], shape: tuple[int, int]) -> csr_array:
    rows, columns, data = zip(*entries, strict=True) if entries else ((), (), ())
    return coo_array(
        (np.asarray(data, dtype=np.float64), (np.asarray(rows, int), np.asarray(columns, int))),
        shape=shape,
    ).tocsr()
