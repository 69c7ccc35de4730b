"""``themis``: the default. Everyone bids, for one lease, in a weighted auction.

THEMIS as printed (``themis-paper``) serves those with the greatest r well and leaves r above that
of plain fair share. This preset keeps its auction and changes what goes into it:

1. *Lease-aware r.* A bundle is valued for the lease that it is won for, see
   :mod:`themis_ray.core.policies.lease_aware`.
2. *Everyone bids.* No filter; instead, the product of values is weighted by how far behind its
   fair share each app is: ``w = (r if it had its fair share from now on) ** beta``. With beta = 0
   all apps count alike; as beta grows, the auction approaches min-max r.
3. *Restarts are charged.* GPUs that an app has already are worth more to it than others.
4. *Payments in lease time*, ``c ** (1 / w)``: whole gangs stay whole.
5. *What is left is placed*, worst-off apps first, and not given out at random.

Since r' falls in a line with the GPUs, log V bends upwards, and of apps in like position one takes
all that it can use and the others follow in the next rounds, when they are further behind.

The weights must not come from the bids of the round, or lying pays. They come from what the
arbiter itself has measured: how long the app has been here, and the GPU-seconds it was given. Of
the app's own word, only T_id goes in.
"""

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
    with_leftovers,
    worst_off,
)
from themis_ray.core.policies.base import Outcome, Policy, RoundView
from themis_ray.core.policies.lease_aware import fair_r, lease_aware
from themis_ray.errors import ConfigError

LEAST_WEIGHT = 1e-6


@dataclass(frozen=True)
class Themis(Policy):
    """A weighted partial-allocation auction for one lease.

    Args:
        beta: The exponent of the weights; 0 for none.
        lease_aware: Value bundles for one lease; otherwise for ever, as the paper does.
        restart_s: What a restart costs, in seconds, for apps that do not tell.
        fairness_knob: f, as in the paper; 0 lets everyone bid.
        min_bidders: At least so many apps bid.
        payment: How the hidden payment is taken, in lease time or in GPUs.
        leftover: Who gets what the auction leaves: ``placed`` or ``random``.
        seed: Seeds what is random, together with the round's number.
        timeout_s: The bid timeout, for the reasons given.
    """

    beta: float = 3.0
    lease_aware: bool = True
    restart_s: float = 45.0
    fairness_knob: Fraction = Fraction(0)
    min_bidders: int = 1
    payment: Payment = "time"
    leftover: LeftoverMode = "placed"
    seed: int = 0
    timeout_s: float = 5.0

    name: ClassVar[str] = "themis"
    wants_bids: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_filter(self.fairness_knob, self.min_bidders)
        if not 0 <= self.beta <= 64:
            raise ConfigError(f"beta {self.beta}; use a number from 0 (no weights) to 64")
        if not self.restart_s >= 0:
            raise ConfigError(f"restart_s {self.restart_s}; use 0 or more seconds")

    def bidders(self, view: RoundView) -> tuple[str, ...]:
        """All apps that can use GPUs, unless the fairness knob filters them."""
        return worst_off(view, self.fairness_knob, self.min_bidders)

    def allocate(self, view: RoundView, bids: Mapping[str, BidTable]) -> Outcome:
        """Hold the auction among the restated bids and place what is left over."""
        tables = [self._restated(bids[app], view) for app in sorted(bids)]
        seed = self.seed * 1_000_003 + view.round_id
        weights = self.weights(view)
        result = run_auction(
            view.pool,
            view.cluster.racks,
            tables,
            payment=self.payment,
            weights={app: weights[app] for app in bids},
            seed=seed,
        )
        worst_first = sorted(weights, key=lambda app: (-weights[app], app))
        extra = leftovers(view, result, bids, self.leftover, random.Random(seed), worst_first)
        awards = with_leftovers(awards_of(result), extra)
        asked = self.bidders(view)
        return Outcome(
            awards,
            auction_reasons(view, bids, result, awards, extra, asked, self.timeout_s),
        )

    def weights(self, view: RoundView) -> dict[str, float]:
        """The weight of each app; the greatest is 1 (only ratios matter)."""
        raw = {app.id: fair_r(app, view) ** self.beta for app in view.apps.values()}
        most = max(raw.values(), default=1.0)
        return {app: max(LEAST_WEIGHT, weight / most) for app, weight in raw.items()}

    def _restated(self, table: BidTable, view: RoundView) -> BidTable:
        if not self.lease_aware:
            return table
        return lease_aware(table, view.apps[table.app], view, self.restart_s)
