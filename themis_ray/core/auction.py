"""The partial-allocation auction of THEMIS (NSDI '20, section 4.2).

1. The proportionally fair allocation maximises the product of V = 1 / r over the bidders
   (weighted: the product of V to the power w). When not every bidder can have V > 0, it first
   serves as many as possible, then maximises the product over those.
2. Bidder i pays for the harm that it does to the others: ``c_i`` is the product of the others'
   values divided by the product that they could have if i were absent, to the power ``1 / w_i``.
   Only bidders that are served count, so ``0 < c_i <= 1`` always.
3. Bidder i keeps ``c_i`` of what it won: the rest is left over.

GPUs are indivisible and the paper does not say how ``c_i`` is applied: see :data:`Payment`.

Size. Up to 64 bidders and 256 GPUs all of this is exact: proved to 1e-6 in the sum of logarithms,
and each bundle is placed on named machines in the counterfactuals too. Beyond that the allocation
comes with a certified ``gap``; counterfactuals compare two optima of the model without racks, and
from 400 bidders on the second is that of its linear relaxation.

Ties. Of allocations with equal products, bidders that bid alike are served in the order given
(the first gets the best bundle); otherwise the solver's choice stands, which depends on the
input alone, not on chance, on the clock or on the apps' names.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from themis_ray.core.bids import BidTable, check_against_offer
from themis_ray.core.cluster import Allocation, total
from themis_ray.core.leftovers import LeftoverMode, assign_leftovers
from themis_ray.core.payments import keep_gpus
from themis_ray.core.solver import NO_HARM, Deadline, NashSolver, Outcome, Wanted
from themis_ray.errors import BidError

__all__ = [
    "AuctionResult",
    "LeftoverMode",
    "Payment",
    "assign_leftovers",
    "run_auction",
]

Payment = Literal["gpus", "time"]
"""``gpus``: keep ``floor(c * n)`` of n GPUs, and one more with the probability of the fraction.
``time``: keep the whole bundle for the fraction ``c`` of the lease."""


@dataclass(frozen=True, slots=True)
class AuctionResult:
    """What an auction decided.

    Attributes:
        proportional_fair: The bundle that each bidder wins before it pays.
        payment_factor: c_i, above 0 and at most 1.
        allocation: What each bidder keeps of its bundle.
        lease_fraction: The share of a full lease for which it keeps it.
        leftover: The GPUs of the pool that no bidder keeps.
        log_nash_welfare: ``sum of w * log V`` of the proportionally fair allocation over the
            bidders with V > 0.
        gap: By how much the weighted geometric mean of the served bidders' values could be
            greater in any other allocation, as a fraction; 0 when the allocation is proved
            optimal, infinite when it is not known whether more bidders could be served.
        log_bound: No allocation has a greater ``log_nash_welfare``.
        values: V of each bidder with its bundle.
        harm: For each bidder, by how much it lowers ``w * log V`` of each other bidder that it
            affects (negative for one that fares better with it there).
        payment_slack: For each bidder, by how much ``log c`` could at most be lower than said,
            because its counterfactual was not solved to proven optimality; 0 when exact.
        wanted: The better bundle that each bidder came nearest to, for those without their best.
    """

    proportional_fair: Mapping[str, Allocation]
    payment_factor: Mapping[str, float]
    allocation: Mapping[str, Allocation]
    lease_fraction: Mapping[str, float]
    leftover: Allocation
    log_nash_welfare: float
    gap: float
    log_bound: float = 0.0
    values: Mapping[str, float] = field(default_factory=dict)
    harm: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    payment_slack: Mapping[str, float] = field(default_factory=dict)
    wanted: Mapping[str, Wanted] = field(default_factory=dict)


def run_auction(
    pool: Allocation,
    racks: Mapping[str, str],
    bids: Sequence[BidTable],
    *,
    payment: Payment = "time",
    weights: Mapping[str, float] | None = None,
    seed: int = 0,
    time_budget_s: float | None = None,
) -> AuctionResult:
    """Hold an auction.

    Args:
        pool: The GPUs on offer.
        racks: The rack of each machine; machines that are not named share one rack.
        bids: One table per bidder.
        payment: How a hidden payment is taken.
        weights: The bidders' weights, 1 when not named. They must not come from this round's
            bids, or lying pays.
        seed: Seeds the stochastic rounding of ``payment="gpus"``; nothing else is random.
        time_budget_s: Stop improving after so many seconds. The result is always feasible, but
            depends on the machine's speed when the time runs out; without a budget the same
            input gives the same result.

    Returns:
        The result, for all bidders.

    Raises:
        BidError: Two tables of one app, a weight that is not positive, or a bid beyond the pool.
    """
    powers = _checked(pool, bids, weights or {})
    solver = NashSolver(pool, racks, bids, powers, Deadline.after(time_budget_s))
    best = solver.optimum()
    factors: dict[str, float] = {}
    harm: dict[str, Mapping[str, float]] = {}
    slack: dict[str, float] = {}
    for i, (table, power) in enumerate(zip(bids, powers, strict=True)):
        done = solver.harm(i) if best.wins[table.app].gpus else NO_HARM
        factors[table.app] = _factor(math.fsum(done.logs.values()) / power)
        harm[table.app] = done.logs
        slack[table.app] = done.slack / power
    served = [w for t, w in zip(bids, powers, strict=True) if best.wins[t.app].value > 0]
    wanted = {table.app: solver.wanted(i) for i, table in enumerate(bids)}
    won = {table.app: best.wins[table.app].gpus for table in bids}
    kept, fractions = _pay(won, factors, bids, payment, random.Random(seed))
    return AuctionResult(
        proportional_fair=won,
        payment_factor=factors,
        allocation=kept,
        lease_fraction=fractions,
        leftover=_left(pool, kept),
        log_nash_welfare=best.log_welfare,
        gap=_gap(best, math.fsum(served)),
        log_bound=best.bound,
        values={table.app: best.wins[table.app].value for table in bids},
        harm=harm,
        payment_slack=slack,
        wanted={app: bundle for app, bundle in wanted.items() if bundle is not None},
    )


def _checked(
    pool: Allocation, bids: Sequence[BidTable], weights: Mapping[str, float]
) -> list[float]:
    seen: set[str] = set()
    largest = max(pool.values(), default=0)
    powers = []
    for table in bids:
        if table.app in seen:
            raise BidError(f"app {table.app!r} bids twice; send one table for each app")
        seen.add(table.app)
        if not _fits(table, pool, largest):
            check_against_offer(table, pool)
        weight = float(weights.get(table.app, 1.0))
        if not 0 < weight < math.inf:
            raise BidError(f"app {table.app!r} has weight {weight}; use a positive number")
        powers.append(weight)
    return powers


def _fits(table: BidTable, pool: Allocation, largest: int) -> bool:
    """Whether each row fits; quicker than the check that also says what is wrong."""
    return all(
        row.size <= pool.size
        and (not row.parts or row.parts[0] <= largest)
        and (not row.pinned or row.pinned <= pool)
        for row in table.rows
    )


def _factor(cost: float) -> float:
    """``exp(-cost)``, kept above 0 where floating point would underflow, and at most 1."""
    return min(1.0, max(math.exp(-cost), sys.float_info.min))


def _gap(best: Outcome, weight: float) -> float:
    if best.served < best.served_bound:
        return math.inf
    if best.exact or weight == 0:
        return 0.0
    return math.expm1((best.bound - best.log_welfare) / weight)


def _left(pool: Allocation, kept: Mapping[str, Allocation]) -> Allocation:
    return pool - total(kept.values())


def _pay(
    won: Mapping[str, Allocation],
    factors: Mapping[str, float],
    bids: Sequence[BidTable],
    payment: Payment,
    rng: random.Random,
) -> tuple[dict[str, Allocation], dict[str, float]]:
    if payment == "time":
        return dict(won), dict(factors)
    if payment != "gpus":
        raise BidError(f"payment {payment!r} is unknown; use 'gpus' or 'time'")
    # One draw for each bidder, in order, so that a bidder's draw does not hang on the others'.
    kept = {
        table.app: keep_gpus(table, won[table.app], factors[table.app], rng.random())
        for table in bids
    }
    return kept, dict.fromkeys(won, 1.0)
