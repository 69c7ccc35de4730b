"""One problem over a model: which columns may be chosen, what they gain, how many must be served.

Everything here is about prices. With a price for each part (and a premium for serving a bidder
that has nothing otherwise), each bidder's best bargain is found on its own, and the sum of the
bargains and of the machines' rents bounds the objective from above, whatever the prices are
(Lagrangian duality). A column that falls short of its bidder's best bargain by more than the gap
between this bound and a known allocation is in no better allocation: it can be left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from themis_ray.core.solver.instance import Bools, Floats, Ints
from themis_ray.core.solver.model import Model

LOWEST_FACTOR = 0.5
FACTOR_STEPS = 12


@dataclass(frozen=True, eq=False)
class Problem:
    """What to maximise.

    Attributes:
        model: The columns and parts.
        gain: The gain of each column.
        allowed: Which columns may be chosen.
        counted: For each bidder, whether it counts towards ``must``.
        must: How many of the counted bidders must win something.
    """

    model: Model
    gain: Floats
    allowed: Bools
    counted: Bools
    must: int

    @cached_property
    def columns(self) -> Ints:
        """The columns that may be chosen."""
        return np.flatnonzero(self.allowed)

    @cached_property
    def able(self) -> Ints:
        """The bidders that may choose a column."""
        present, starts = self.model.segments
        if not present.size:
            return present
        return present[np.logical_or.reduceat(self.allowed, starts)]

    @cached_property
    def offers(self) -> Floats:
        """The gains, minus infinity for columns that may not be chosen."""
        return np.where(self.allowed, self.gain, -np.inf)


@dataclass(frozen=True, eq=False)
class Prices:
    """Prices and what follows from them.

    Attributes:
        parts: The price of each part, 0 or more.
        premium: The premium for serving a counted bidder.
        bargain: Each bidder's best bargain, at least 0 (winning nothing).
        rents: What all machines are worth at these prices.
        shortfall: By how much each column misses its bidder's best bargain; infinite when it may
            not be chosen.
        bound: No allocation gains more.
    """

    parts: Floats
    premium: float
    bargain: Floats
    rents: float
    shortfall: Floats
    bound: float


def price(problem: Problem, parts: Floats, premium: float) -> Prices:
    """Work out what follows from prices."""
    model = problem.model
    parts = np.maximum(parts, 0.0)
    net = net_gains(problem, parts, premium)
    bargain = best_by_app(model, net, problem.counted.size)
    rents = model.rents(parts)
    bound = float(bargain.sum()) + rents - premium * problem.must
    return Prices(parts, premium, bargain, rents, bargain[model.app] - net, bound)


def net_gains(problem: Problem, parts: Floats, premium: float) -> Floats:
    """Gain plus premium less the price of the parts; minus infinity when not allowed."""
    model = problem.model
    cost = (model.needs @ parts)[model.placed]
    net = problem.gain + premium * problem.counted[model.app] - cost
    return np.where(problem.allowed, net, -np.inf)


def best_by_app(model: Model, score: Floats, apps: int) -> Floats:
    """The greatest score of each bidder's columns, at least 0."""
    best = np.zeros(apps)
    if score.size:
        present, starts = model.segments
        best[present] = np.maximum(0.0, np.maximum.reduceat(score, starts))
    return best


def best_columns(model: Model, score: Floats) -> Ints:
    """For each bidder with an allowed column, the first with the greatest score."""
    if not score.size:
        return np.empty(0, dtype=np.int64)
    _, starts = model.segments
    top = np.maximum.reduceat(score, starts)
    lengths = np.diff(np.append(starts, score.size))
    hits = np.flatnonzero((score == np.repeat(top, lengths)) & np.isfinite(score))
    _, first = np.unique(model.app[hits], return_index=True)
    return hits[first]


def paid(problem: Problem, prices: Prices) -> Floats:
    """What each column's parts cost."""
    cost: Floats = (problem.model.needs @ prices.parts)[problem.model.placed]
    return cost


def rescale(problem: Problem, prices: Prices, cost: Floats, near: Ints) -> Prices:
    """The prices, all raised or lowered by the factor that gives the least bound.

    With one bidder less, all prices fall by about as much; one number makes up for most of it,
    without another linear program. The bound is convex in the factor.

    Args:
        problem: The problem without the bidder.
        prices: The prices with it.
        cost: What each column costs at these prices, see :func:`paid`.
        near: The columns that are looked at in the search for the factor; at the end all are.
    """
    model, apps = problem.model, problem.counted.size
    offers = problem.offers + prices.premium * problem.counted[model.app]
    some_offers, some_cost = offers[near], cost[near]
    starts = np.flatnonzero(np.diff(model.app[near], prepend=-1))

    def bound(factor: float) -> float:
        net = some_offers - factor * some_cost
        bargains = np.maximum.reduceat(net, starts) if net.size else net
        return float(np.maximum(bargains, 0.0).sum()) + factor * prices.rents

    factor = _least(bound, LOWEST_FACTOR, 1.0)
    net = offers - factor * cost
    bargain = best_by_app(model, net, apps)
    return Prices(
        prices.parts * factor,
        prices.premium,
        bargain,
        prices.rents * factor,
        bargain[model.app] - net,
        float(bargain.sum()) + factor * prices.rents - prices.premium * problem.must,
    )


def _least(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a convex function is least, by golden section."""
    ratio = (math.sqrt(5) - 1) / 2
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(FACTOR_STEPS):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = function(right)
    return left if at_left < at_right else right
