"""Who gets the GPUs that an auction leaves over (THEMIS, NSDI '20, section 4.2).

Hidden payments and bundles that nobody asked for leave GPUs over. They must not idle: while
somebody can use a GPU, it is given out.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Literal

from themis_ray.core.cluster import NOTHING, Allocation
from themis_ray.errors import InvalidInputError

LeftoverMode = Literal["random", "placed"]


def assign_leftovers(
    leftover: Allocation,
    candidates: Mapping[str, int],
    *,
    mode: LeftoverMode = "random",
    seed: int = 0,
    rng: random.Random | None = None,
    holds: Mapping[str, Allocation] | None = None,
    min_gain: Mapping[str, int] | None = None,
) -> dict[str, Allocation]:
    """Give out ``leftover`` until it is gone or no candidate can use more.

    Args:
        leftover: The GPUs to give out.
        candidates: How many more GPUs each app can use; in ``placed`` mode, earlier apps choose
            first.
        mode: ``random`` draws an app for each GPU (or gang) and a machine for it, as the paper
            says. ``placed`` serves the apps in order, each near what it holds already, otherwise
            on as few machines as will do, and on the machine that it fits best.
        seed: Seeds ``random`` mode when ``rng`` is not given.
        rng: The source of randomness, instead of a seed.
        holds: What each app has already, for ``placed`` mode.
        min_gain: An app's gang: it takes GPUs only this many at a time (default 1).

    Returns:
        What each candidate gets, for all candidates.

    Raises:
        InvalidInputError: The mode is unknown or a count is out of range.
    """
    gang = {app: (min_gain or {}).get(app, 1) for app in candidates}
    _check(candidates, gang, mode)
    if mode == "random":
        return _random(leftover, candidates, gang, rng or random.Random(seed))
    return _placed(leftover, candidates, gang, holds or {})


def _check(candidates: Mapping[str, int], gang: Mapping[str, int], mode: str) -> None:
    if mode not in ("random", "placed"):
        raise InvalidInputError(f"leftover mode {mode!r} is unknown; use 'random' or 'placed'")
    for app, count in candidates.items():
        if count < 0 or gang[app] < 1:
            raise InvalidInputError(
                f"app {app!r} can use {count} more GPUs, {gang[app]} at a time; "
                "use 0 or more, and at least 1 at a time"
            )


def _random(
    leftover: Allocation,
    candidates: Mapping[str, int],
    gang: Mapping[str, int],
    rng: random.Random,
) -> dict[str, Allocation]:
    free = dict(leftover)
    needs = dict(candidates)
    given: dict[str, dict[str, int]] = {app: {} for app in candidates}
    while able := [a for a in needs if gang[a] <= min(needs[a], sum(free.values()))]:
        app = rng.choice(able)
        for _ in range(gang[app]):
            machine = rng.choices(list(free), weights=list(free.values()))[0]
            _move(free, given[app], machine, 1)
        needs[app] -= gang[app]
    return {app: Allocation(counts) for app, counts in given.items()}


def _placed(
    leftover: Allocation,
    candidates: Mapping[str, int],
    gang: Mapping[str, int],
    holds: Mapping[str, Allocation],
) -> dict[str, Allocation]:
    free = dict(leftover)
    given: dict[str, dict[str, int]] = {}
    for app, count in candidates.items():
        near = holds.get(app, NOTHING)
        usable = min(count, sum(free.values())) // gang[app] * gang[app]
        given[app] = {}
        while usable:
            machine = _best_machine(free, usable, near)
            taken = min(usable, free[machine])
            _move(free, given[app], machine, taken)
            usable -= taken
    return {app: Allocation(counts) for app, counts in given.items()}


def _best_machine(free: Mapping[str, int], count: int, near: Allocation) -> str:
    """One where the app is already; else the tightest that holds all; else the emptiest."""

    def rank(machine: str) -> tuple[bool, bool, int, str]:
        room = free[machine]
        fits = room >= count
        return (not near.on(machine), not fits, room if fits else -room, machine)

    return min(free, key=rank)


def _move(free: dict[str, int], to: dict[str, int], machine: str, count: int) -> None:
    to[machine] = to.get(machine, 0) + count
    free[machine] -= count
    if not free[machine]:
        del free[machine]
