"""Filling full racks: each rack decides for itself which of its bidders get how much.

Placing bundles of fixed sizes into full racks is bin packing, and the last ones do not fit. But
the objective is flat near its optimum: 23 GPUs instead of 24 cost next to nothing. So bidders
whose bundle must lie in one rack are spread over the racks, as evenly as sizes allow, and each
rack solves the (small) exact model of its own machines over the sizes near the planned ones. The
value of a column there is its gain less what its bidder would get elsewhere at the going prices,
so a rack does not outbid the others. Bidders whose bundle may lie anywhere fill the gaps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from themis_ray.core.cluster import Allocation
from themis_ray.core.solver.deadline import Deadline
from themis_ray.core.solver.floor import Bundle, Floor
from themis_ray.core.solver.instance import ANYWHERE, Floats, Instance, Ints
from themis_ray.core.solver.model import build_model
from themis_ray.core.solver.naming import chosen_by_app, name_machines
from themis_ray.core.solver.placing import Placement
from themis_ray.core.solver.problem import Prices, Problem
from themis_ray.core.solver.programs import solve_integer
from themis_ray.core.solver.spread import spread

OPTIONS_PER_RACK = 120
FILLERS = 8
RACK_NODES = 60
SAVE = 0.05
FILL = 1.0
MEND_RACKS = 3
# A rack of 128 GPUs is worth a few units of log V: 2e-4 of that is nothing beside the gap.
RACK_TOLERANCE = 2e-4


def fill_racks(
    instance: Instance,
    option: Mapping[int, int],
    prices: Prices,
    floor: Floor,
    deadline: Deadline,
) -> tuple[Placement, list[int]]:
    """Place bidders rack by rack.

    Args:
        instance: The auction.
        option: What each bidder would have if racks did not matter.
        prices: Prices of the merged model, whose columns are the options.
        floor: The free GPUs; what is placed is taken.
        deadline: When to stop.

    Returns:
        The placement, and the bidders of ``option`` that have no place yet.
    """
    sizes = np.asarray([shape.size for shape in instance.shapes], dtype=np.int64)[instance.shape]
    pins = _reserve_pins(instance, option, floor)
    movable = [a for a in option if a not in pins]
    bound = {a: int(sizes[option[a]]) for a in movable if _is_bound(instance, option[a])}
    loose = [a for a in movable if a not in bound]
    loose.sort(key=lambda a: (-sizes[option[a]], a))
    machines: dict[str, dict[str, int]] = {}
    for machine, free in floor.free.items():
        machines.setdefault(instance.rack_of[machine], {})[machine] = free
    room = {rack: sum(free.values()) for rack, free in machines.items()}
    by_rack = spread(bound, room)
    placed = Placement()
    waiting: list[int] = []
    planned = sum(int(sizes[o]) for o in option.values())
    planned -= sum(sum(reserved.values()) for reserved in pins.values())
    worths = [_worth(instance, option, prices, keenness) for keenness in (SAVE, FILL)]
    for rack, apps in by_rack.items():
        fillers = loose[:: max(1, len(loose) // FILLERS)][:FILLERS]
        candidates = [*waiting[:2], *apps, *fillers]
        spare = sum(floor.rack_free.values()) - planned
        if not deadline.passed():
            worth = worths[spare > 0]
            filled = _fill(instance, machines[rack], candidates, prices, worth)
            for app, (o, bundle) in filled.items():
                placed.option[app], placed.bundles[app] = o, bundle
                floor.take(bundle)
                planned -= int(sizes[option[app]])
        loose = [a for a in loose if a not in placed.option]
        waiting = [a for a in [*waiting, *apps] if a not in placed.option]
    for reserved in pins.values():
        floor.give(reserved)
    return placed, [app for app in option if app not in placed.option]


def _worth(
    instance: Instance, option: Mapping[int, int], prices: Prices, keenness: float
) -> Floats:
    """What a rack earns with each option: a part of the price of its GPUs, less its shortfall.

    GPUs that the rack leaves free are worth nearly their price while bidders are left who want
    them (``keenness`` near 0), and nothing when there are more than is wanted (1). To place a
    bidder that is bound to a rack is worth half of what it pays in any case.
    """
    paid = instance.gain - prices.bargain[instance.app] + prices.shortfall
    paid += prices.premium * instance.needy[instance.app]
    reward = np.zeros(instance.apps)
    for app, o in option.items():
        if _is_bound(instance, o):
            reward[app] = paid[o] / 2
    return keenness * paid - prices.shortfall + reward[instance.app]


def _reserve_pins(instance: Instance, option: Mapping[int, int], floor: Floor) -> dict[int, Bundle]:
    """Take the named machines of all bidders, so that nobody else is put there."""
    pins: dict[int, Bundle] = {}
    for app, o in option.items():
        pinned = dict(instance.shapes[instance.shape[o]].pinned)
        if pinned and all(floor.free[machine] >= count for machine, count in pinned.items()):
            floor.take(pinned)
            pins[app] = pinned
    return pins


def _is_bound(instance: Instance, option: int) -> bool:
    """Whether the option's GPUs must lie in one rack, any or a certain one."""
    return bool(instance.shapes[int(instance.shape[option])].rack != ANYWHERE)


def _fill(
    instance: Instance,
    free: Mapping[str, int],
    apps: Sequence[int],
    prices: Prices,
    worth: Floats,
) -> dict[int, tuple[int, Bundle]]:
    """The best use of one rack's machines by some bidders: their options and bundles."""
    options = _near_options(instance, apps, prices)
    part = sub_instance(instance, Allocation(free), options)
    model = build_model(part, full=True)
    if not model.option.size:
        return {}
    nobody = np.zeros(instance.apps, dtype=np.bool_)
    everything = np.ones(model.option.size, dtype=np.bool_)
    problem = Problem(model, worth[part.row[model.option]], everything, nobody, 0)
    found = solve_integer(
        problem, problem.columns, nodes=RACK_NODES, tolerance=RACK_TOLERANCE, linear_first=False
    )
    if found is None:
        return {}
    bundles = name_machines(model, found)
    return {
        app: (int(part.row[o]), bundles[app])
        for app, o in chosen_by_app(model, found.columns).items()
    }


def _near_options(instance: Instance, apps: Sequence[int], prices: Prices) -> Ints:
    """Options of these bidders, those nearest to their best bargain."""
    mine = np.flatnonzero(np.isin(instance.app, np.asarray(apps, dtype=np.int64)))
    mine = mine[np.isfinite(prices.shortfall[mine])]
    order = np.argsort(prices.shortfall[mine], kind="stable")[:OPTIONS_PER_RACK]
    return np.sort(mine[order])


def sub_instance(instance: Instance, pool: Allocation, options: Ints) -> Instance:
    """Some options on some machines of one rack; ``row`` then holds the original options."""
    used: dict[int, int] = {}
    keep = []
    for option in options:
        shape = instance.shapes[instance.shape[option]]
        if all(count <= pool.on(machine) for machine, count in shape.pinned):
            keep.append(int(option))
            used.setdefault(int(instance.shape[option]), len(used))
    kept = np.asarray(keep, dtype=np.int64)
    return replace(
        instance,
        pool=pool,
        shapes=tuple(instance.shapes[s]._replace(rack=ANYWHERE) for s in used),
        app=instance.app[kept],
        shape=np.asarray([used[int(instance.shape[o])] for o in keep], dtype=np.int64),
        row=kept,
        gain=instance.gain[kept],
    )


def mend(
    instance: Instance,
    placed: Placement,
    floor: Floor,
    missing: Sequence[int],
    prices: Prices,
    deadline: Deadline,
) -> list[int]:
    """Make room for bidders without a place: a rack shares its GPUs out anew, with one more.

    Args:
        instance: The auction.
        placed: Who has what; changed in place.
        floor: The free GPUs; changed in place.
        missing: Bidders without a place.
        prices: Prices of the merged model.
        deadline: When to stop.

    Returns:
        The bidders that are still without a place.
    """
    # Nobody may fall out of the placement to make room, so to be placed is worth a lot.
    worth = instance.gain + prices.premium * instance.needy[instance.app] + prices.rents
    home = _homes(instance, placed)
    left = []
    tried: dict[str, int] = dict.fromkeys(floor.rack_free, 0)
    for app in missing:
        ranked = sorted(floor.rack_free, key=lambda r: (tried[r], -floor.rack_free[r], r))
        for rack in ranked[:MEND_RACKS]:
            tried[rack] += 1
            if not deadline.passed() and _admit(
                instance, placed, floor, app, rack, home.setdefault(rack, []), prices, worth
            ):
                break
        else:
            left.append(app)
    return left


def _homes(instance: Instance, placed: Placement) -> dict[str, list[int]]:
    """The bidders that lie within one rack, by rack."""
    home: dict[str, list[int]] = {}
    for app, bundle in placed.bundles.items():
        racks = {instance.rack_of[machine] for machine in bundle}
        if len(racks) == 1:
            home.setdefault(racks.pop(), []).append(app)
    return home


def _admit(
    instance: Instance,
    placed: Placement,
    floor: Floor,
    app: int,
    rack: str,
    inside: list[int],
    prices: Prices,
    worth: Floats,
) -> bool:
    """Share a rack anew among those inside and one more; only when all of them have a place."""
    machines = {m: free for m, free in floor.free.items() if instance.rack_of[m] == rack}
    for other in inside:
        for machine, count in placed.bundles[other].items():
            machines[machine] += count
    filled = _fill(instance, machines, [*inside, app], prices, worth)
    if len(filled) <= len(inside):
        return False
    for other in inside:
        floor.give(placed.bundles[other])
    for other, (option, bundle) in filled.items():
        placed.option[other], placed.bundles[other] = option, bundle
        floor.take(bundle)
    inside.append(app)
    return True
