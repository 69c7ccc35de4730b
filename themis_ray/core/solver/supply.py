"""How a machine can be cut into parts.

A class of ``n`` interchangeable machines with ``C`` free GPUs each supplies parts. Three forms of
the same integer set, chosen by size:

- *patterns*: one variable for each maximal way to cut a machine (8 = 4+4 = 4+2+2 = ...);
- *capacity*: for a single machine, the number of parts of each size, at most C GPUs in all;
- *flow*: for many machines with more patterns than is sensible, paths from 0 to C along arcs as
  long as a part (the arc-flow formulation of cutting stock; integer flows decompose into paths).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from themis_ray.core.solver.instance import Floats

MOST_PATTERNS = 400
# Whether a single machine with too many patterns gets the capacity form.
SINGLES = True


@dataclass(frozen=True)
class Cutting:
    """The supply variables of one class of machines.

    Attributes:
        count: n, the number of machines.
        room: C, the free GPUs of each.
        sizes: The part sizes that it may supply, descending.
        form: ``patterns``, ``capacity`` or ``flow``.
        supplies: For each variable, how many parts of each size it supplies: ``{size: number}``.
        limits: Rows ``sum of coefficient * variable <= right``; ``(entries, right, is_equality)``.
        upper: The greatest value that a variable needs.
    """

    count: int
    room: int
    sizes: tuple[int, ...]
    form: str
    supplies: tuple[dict[int, int], ...]
    limits: tuple[tuple[tuple[tuple[int, float], ...], float, bool], ...]
    upper: tuple[int, ...]


def cutting(count: int, room: int, sizes: Sequence[int]) -> Cutting:
    """The supply variables of ``count`` machines with ``room`` GPUs for the given part sizes."""
    usable = tuple(sorted({size for size in sizes if size <= room}, reverse=True))
    patterns = _patterns_up_to(room, usable, MOST_PATTERNS)
    if patterns is not None:
        entries = tuple((v, 1.0) for v in range(len(patterns)))
        limits = ((entries, float(count), False),)
        upper = (count,) * len(patterns)
        return Cutting(count, room, usable, "patterns", patterns, limits, upper)
    if count == 1 and SINGLES:
        entries = tuple((v, float(size)) for v, size in enumerate(usable))
        supplies = tuple({size: 1} for size in usable)
        upper = tuple(room // size for size in usable)
        limits = ((entries, float(room), False),)
        return Cutting(count, room, usable, "capacity", supplies, limits, upper)
    return _flow(count, room, usable)


def _patterns_up_to(
    room: int, sizes: Sequence[int], most: int
) -> tuple[dict[int, int], ...] | None:
    """All maximal patterns, or None when there are more than ``most``."""
    if not sizes:
        return ()
    found = []
    for pattern in _patterns(room, sizes):
        found.append(pattern)
        if len(found) > most:
            return None
    return tuple(found)


def _patterns(room: int, sizes: Sequence[int]) -> Iterator[dict[int, int]]:
    """The maximal multisets of ``sizes`` (descending) within ``room``."""
    size, rest = sizes[0], sizes[1:]
    if not rest:
        yield {size: room // size} if room >= size else {}
        return
    for number in range(room // size, -1, -1):
        for pattern in _patterns(room - number * size, rest):
            left = room - number * size - sum(s * n for s, n in pattern.items())
            # Maximal: no further part of this size fits into what is left.
            if left < size:
                yield {size: number, **pattern} if number else pattern


def _flow(count: int, room: int, sizes: Sequence[int]) -> Cutting:
    supplies: list[dict[int, int]] = []
    balance: list[list[tuple[int, float]]] = [[] for _ in range(room + 1)]
    for start in range(room):
        for size in (*sizes, 0):
            # Size 0 stands for one GPU that stays uncut.
            end = start + max(size, 1)
            if end <= room:
                balance[start].append((len(supplies), -1.0))
                balance[end].append((len(supplies), 1.0))
                supplies.append({size: 1} if size else {})
    limits: list[tuple[tuple[tuple[int, float], ...], float, bool]] = [
        (tuple((v, -c) for v, c in balance[0]), float(count), False)
    ]
    limits += [(tuple(row), 0.0, True) for row in balance[1:room]]
    return Cutting(
        count, room, tuple(sizes), "flow", tuple(supplies), tuple(limits), (count,) * len(supplies)
    )


def rent(room: int, sizes: Sequence[int], prices: Sequence[float]) -> float:
    """The most that one machine's parts are worth at given prices (an unbounded knapsack)."""
    worth = [0.0] * (room + 1)
    for used in range(1, room + 1):
        worth[used] = max(
            [worth[used - 1]]
            + [worth[used - s] + p for s, p in zip(sizes, prices, strict=True) if s <= used]
        )
    return worth[room]


def cut_machines(plan: Cutting, amounts: Floats) -> list[list[int]]:
    """The parts of each machine, from the values of the supply variables."""
    numbers = [round(float(amount)) for amount in amounts]
    if plan.form == "patterns":
        machines = []
        for pattern, number in zip(plan.supplies, numbers, strict=True):
            parts = [size for size, n in pattern.items() for _ in range(n)]
            machines += [parts] * number
        return machines
    if plan.form == "capacity":
        return [[s for s, n in zip(plan.sizes, numbers, strict=True) for _ in range(n)]]
    return list(_paths(plan, numbers))


def _paths(plan: Cutting, numbers: list[int]) -> Iterator[list[int]]:
    """Decompose a flow into paths, one for each machine in use."""
    arcs: list[tuple[int, int, int]] = []
    for start in range(plan.room):
        for size in (*plan.sizes, 0):
            if start + max(size, 1) <= plan.room:
                arcs.append((start, start + max(size, 1), size))
    leaving: dict[int, list[int]] = {}
    for v, (start, _, _) in enumerate(arcs):
        leaving.setdefault(start, []).append(v)
    while any(numbers[v] for v in leaving[0]):
        node, parts = 0, []
        while node < plan.room:
            v = next(v for v in leaving[node] if numbers[v])
            numbers[v] -= 1
            if arcs[v][2]:
                parts.append(arcs[v][2])
            node = arcs[v][1]
        yield parts
