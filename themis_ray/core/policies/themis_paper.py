"""``themis-paper``: rounds as THEMIS has them (NSDI '20, sections 3.3 and 4.2)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from themis_ray.core.auction import LeftoverMode, Payment, run_auction
from themis_ray.core.bids import BidTable
from themis_ray.core.policies.auctioning import (
    auction_reasons,
    awards_of,
    check_filter,
    leftovers,
    r_with,
    with_leftovers,
    worst_off,
)
from themis_ray.core.policies.base import Outcome, Policy, RoundView


@dataclass(frozen=True)
class ThemisPaper(Policy):
    """The worst-off 1-f of the apps bid in a partial-allocation auction.

    Args:
        fairness_knob: f; exact arithmetic, so 0.7 of ten apps leaves three bidders, not four.
        min_bidders: At least so many apps bid. The paper has no such floor; with few apps it is
            needed, since a single bidder takes the whole pool and pays nothing.
        payment: How the hidden payment is taken, in GPUs or in lease time.
        leftover: Who gets what the auction leaves: ``random`` as in the paper, or ``placed``.
        seed: Seeds stochastic rounding and random leftovers, together with the round's number.
        timeout_s: The bid timeout, for the reasons given.
    """

    fairness_knob: Fraction = Fraction(4, 5)
    min_bidders: int = 1
    payment: Payment = "gpus"
    leftover: LeftoverMode = "random"
    seed: int = 0
    timeout_s: float = 5.0

    name: ClassVar[str] = "themis-paper"
    wants_bids: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_filter(self.fairness_knob, self.min_bidders)

    def bidders(self, view: RoundView) -> tuple[str, ...]:
        """The apps with the greatest r, see :func:`worst_off`."""
        return worst_off(view, self.fairness_knob, self.min_bidders)

    def allocate(self, view: RoundView, bids: Mapping[str, BidTable]) -> Outcome:
        """Hold the auction among the bids and give out what is left over."""
        seed = self.seed * 1_000_003 + view.round_id
        result = run_auction(
            view.pool,
            view.cluster.racks,
            [bids[app] for app in sorted(bids)],
            payment=self.payment,
            seed=seed,
        )
        extra = leftovers(view, result, bids, self.leftover, random.Random(seed))
        awards = with_leftovers(awards_of(result), extra)
        asked = self.bidders(view)
        return Outcome(
            awards,
            auction_reasons(view, bids, result, awards, extra, asked, self.timeout_s),
        )


__all__ = ["ThemisPaper", "r_with"]
