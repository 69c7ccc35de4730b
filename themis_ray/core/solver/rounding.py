"""Rounds a linear solution whose few fractional bidders leave little to decide.

A basic solution has no more fractional bidders than there are parts, whatever the number of
bidders. All ways to make up their minds are tried, the most valuable first, until the parts fit
into the machines (best fit, by counts: machines with as much room are alike). If none is good
enough, some of the other bidders change their minds as well.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from themis_ray.core.solver.instance import Floats, Ints
from themis_ray.core.solver.model import ROOT, Model
from themis_ray.core.solver.problem import Problem

MOST_WAYS = 600
MOST_CHECKS = 60
MOST_STARTS = 8
WHOLE = 1e-6


def round_up(problem: Problem, columns: Ints, fixed: Ints, x: Floats, least: float) -> Ints | None:
    """A rounding that fits and is worth at least ``least``; None when none is found.

    Args:
        problem: What is maximised.
        columns: The columns of the linear program.
        fixed: Columns that are chosen in any case.
        x: The linear solution, by column.
        least: What the columns chosen among ``columns`` must gain.
    """
    model = problem.model
    if any(scope != ROOT for scope, _ in model.parts) or problem.must:
        return None
    sure = columns[x > 1 - WHOLE]
    open_ = columns[(x > WHOLE) & (x <= 1 - WHOLE)]
    groups: dict[int, list[int]] = {}
    for column in open_.tolist():
        groups.setdefault(int(model.app[column]), []).append(column)
    # The last choice: the bidder wins nothing.
    choices = [[[column] for column in group] + [[]] for group in groups.values()]
    if math.prod(len(group) for group in choices) > MOST_WAYS:
        return None
    ways = [[*sure.tolist(), *itertools.chain(*way)] for way in itertools.product(*choices)]
    ways.sort(key=lambda way: -math.fsum(problem.gain[way].tolist()))
    given = model.needs[model.placed[fixed]].sum(axis=0)
    tries = Tries(problem, given, MOST_CHECKS)
    for way in ways:
        chosen = np.asarray(way, dtype=np.int64)
        if problem.gain[chosen].sum() < least:
            break
        if tries.fits(chosen):
            return np.union1d(chosen, fixed)
    for way in ways[:MOST_STARTS]:
        found = _changed(problem, columns, np.asarray(way, dtype=np.int64), least, tries)
        if found is not None:
            return np.union1d(found, fixed)
    return None


class Tries:
    """Checks whether columns fit beside what is given, so many times at most."""

    def __init__(self, problem: Problem, given: Floats, most: int) -> None:
        self._model = problem.model
        self._given = given
        self._left = most
        self._sizes = np.asarray([size for _, size in problem.model.parts], dtype=np.float64)
        self.room = problem.model.instance.pool.size - float(given @ self._sizes)

    def fits(self, chosen: Ints) -> bool:
        """Whether these columns fit; False when there were too many questions."""
        if self._left <= 0 or self._model.size[chosen].sum() > self.room:
            return False
        self._left -= 1
        needs = self._model.needs[self._model.placed[chosen]].sum(axis=0)
        return fits(self._model, self._given + needs)


def _changed(
    problem: Problem, columns: Ints, chosen: Ints, least: float, tries: Tries
) -> Ints | None:
    """The same choice with some bidders changed, so that it fits and is good enough.

    The GPUs that are spare (or too many) are made up for by bidders that gain most (or lose
    least) for each GPU.
    """
    model = problem.model
    now = np.full(problem.counted.size, -1, dtype=np.int64)
    now[model.app[chosen]] = chosen
    moves = columns[(now[model.app[columns]] != columns) & (now[model.app[columns]] >= 0)]
    old = now[model.app[moves]]
    gain = problem.gain[moves] - problem.gain[old]
    size = model.size[moves] - model.size[old]
    spare = round(tries.room) - int(model.size[chosen].sum())
    if not spare:
        return None
    rate = (least - float(problem.gain[chosen].sum())) / spare
    ranked = np.argsort(rate * size - gain, kind="stable")
    ranked = ranked[np.sign(size[ranked]) == np.sign(spare)]
    for start in range(min(MOST_STARTS, ranked.size)):
        picked = _pick(model.app[moves], size, ranked[start:], spare)
        made = np.union1d(np.setdiff1d(chosen, old[picked]), moves[picked])
        if problem.gain[made].sum() >= least and tries.fits(made):
            return made
    return None


def _pick(app: Ints, size: Ints, ranked: Ints, spare: int) -> list[int]:
    """Moves in the order given, one for each bidder, until they make up for ``spare``."""
    picked: list[int] = []
    changed: set[int] = set()
    for k in ranked.tolist():
        if spare and abs(int(size[k])) <= abs(spare) and int(app[k]) not in changed:
            picked.append(k)
            changed.add(int(app[k]))
            spare -= int(size[k])
    return picked


def fits(model: Model, wanted: Floats) -> bool:
    """Whether so many of each part fit into the machines; False also when best fit fails."""
    rooms: dict[int, int] = {}
    for group in model.classes:
        rooms[group.plan.room] = rooms.get(group.plan.room, 0) + group.plan.count
    pieces = sorted(
        ((size, round(float(n))) for (_, size), n in zip(model.parts, wanted, strict=True)),
        reverse=True,
    )
    for size, number in pieces:
        for room in sorted(r for r in rooms if r >= size):
            if not number:
                break
            # Fill these machines with as many as each holds; one may be filled in part.
            each = room // size
            full = min(rooms[room], number // each)
            _move(rooms, room, room - each * size, full)
            number -= full * each
            if number and number < each and rooms[room]:
                _move(rooms, room, room - number * size, 1)
                number = 0
        if number:
            return False
    return True


def _move(rooms: dict[int, int], before: int, after: int, machines: int) -> None:
    rooms[before] -= machines
    rooms[after] = rooms.get(after, 0) + machines
