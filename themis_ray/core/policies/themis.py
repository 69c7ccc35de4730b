"""``themis``: the default. Everyone bids, for one lease, in an auction that minds the worst-off.

THEMIS as printed (``themis-paper``) serves those with the greatest r well and leaves the greatest
r above that of plain fair share. This preset keeps its auction and changes what goes into it:

1. *T_id from a virtual fair-share clock*, which the arbiter runs beside the real cluster, see
   :mod:`themis_ray.core.policies.fair_clock`. It neither grows when an app is held up nor gives
   an app that cannot use its share more time than it needs.
2. *Lease-aware r.* A bundle is valued for the lease that it is won for, see
   :mod:`themis_ray.core.policies.lease_aware`. Restarts are charged: GPUs that an app has
   already are worth more to it than others.
3. *Everyone bids*, and the auction's values mind great r more than small ones, see
   :mod:`themis_ray.core.policies.averse`. That does the filter's work. An app that more GPUs would
   not make faster (its longest job sets the pace) gets no more than it needs, since its r stays.
4. *Payments in lease time*: whole gangs stay whole.
5. *What is left is placed*, worst-off apps first, and not given out at random; then the round is
   placed anew, so that jobs that run stay where they are.

Of the app's own word, its work goes in. What each of these is worth, ``themis reproduce ablation-w1
ablation-w2`` tells.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Literal

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
from themis_ray.core.policies.averse import averse
from themis_ray.core.policies.base import AppView, Outcome, Policy, RoundView
from themis_ray.core.policies.fair_clock import (
    FairClock,
    Forecast,
    Life,
    advanced,
    forecasts,
    phases_or,
)
from themis_ray.core.policies.lease_aware import fair_share, lease_aware, told
from themis_ray.core.policies.replacing import placed_anew
from themis_ray.errors import ConfigError

IdealOf = Literal["clock", "told"]
# The name under which the policy remembers its clock.
CLOCK = "clock"


@dataclass(frozen=True)
class Themis(Policy):
    """A partial-allocation auction for one lease, averse to great r.

    Args:
        aversion: How much more great r count than small ones; 0 for V = 1 / r.
        ideal: Where T_id comes from: the virtual fair-share ``clock``, or as apps have ``told``.
        lease_aware: Value bundles for one lease; otherwise for ever, as the paper does.
        restart_s: What a restart costs, in seconds, for apps that do not tell.
        fairness_knob: f, as in the paper; 0 lets everyone bid.
        min_bidders: At least so many apps bid.
        payment: How the hidden payment is taken, in lease time or in GPUs.
        leftover: Who gets what the auction leaves: ``placed`` or ``random``.
        anew: Place all awards of a round anew, jobs that run staying where they are.
        seed: Seeds what is random, together with the round's number.
        timeout_s: The bid timeout, for the reasons given.
    """

    aversion: float = 8.0
    ideal: IdealOf = "clock"
    lease_aware: bool = True
    restart_s: float = 45.0
    fairness_knob: Fraction = Fraction(0)
    min_bidders: int = 1
    payment: Payment = "time"
    leftover: LeftoverMode = "placed"
    anew: bool = True
    seed: int = 0
    timeout_s: float = 5.0

    name: ClassVar[str] = "themis"
    wants_bids: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_filter(self.fairness_knob, self.min_bidders)
        if not 0 <= self.aversion <= 64:
            raise ConfigError(f"aversion {self.aversion}; use a number from 0 (none) to 64")
        if self.ideal not in ("clock", "told"):
            raise ConfigError(f"ideal {self.ideal!r}; use 'clock' or 'told'")
        if not self.restart_s >= 0:
            raise ConfigError(f"restart_s {self.restart_s}; use 0 or more seconds")

    def bidders(self, view: RoundView) -> tuple[str, ...]:
        """All apps that can use GPUs, unless the fairness knob filters them."""
        return worst_off(view, self.fairness_knob, self.min_bidders)

    def allocate(self, view: RoundView, bids: Mapping[str, BidTable]) -> Outcome:
        """Hold the auction among the restated bids and place what is left over."""
        clock = fair_clock(view) if self.ideal == "clock" else None
        restated = self.restated(view, bids, clock)
        values = averse(restated, self.aversion)
        seed = self.seed * 1_000_003 + view.round_id
        result = run_auction(
            view.pool,
            view.cluster.racks,
            [values[app] for app in sorted(values)],
            payment=self.payment,
            seed=seed,
        )
        worst_first = sorted(restated, key=lambda app: (-restated[app].r_nothing, app))
        extra = leftovers(view, result, bids, self.leftover, random.Random(seed), worst_first)
        awards = with_leftovers(awards_of(result), extra)
        if self.anew:
            awards = placed_anew(view, awards, worst_first)
        asked = self.bidders(view)
        reasons = auction_reasons(view, bids, result, awards, extra, asked, self.timeout_s)
        return Outcome(awards, reasons, {} if clock is None else {CLOCK: clock})

    def restated(
        self, view: RoundView, bids: Mapping[str, BidTable], clock: FairClock | None
    ) -> dict[str, BidTable]:
        """The bids by the T_id of this policy (by the apps' own without a clock), for one lease."""
        fair: Mapping[str, Forecast]
        if clock is None:
            fair = {app: told(view.apps[app], view) for app in bids}
        else:
            fair = forecasts(clock, view.cluster.gpus)
        if self.lease_aware:
            return {
                app: lease_aware(bids[app], view.apps[app], view, self.restart_s, fair[app])
                for app in bids
            }
        return {app: _rescaled(bids[app], view.apps[app], fair[app]) for app in bids}


def fair_clock(view: RoundView) -> FairClock:
    """The virtual fair-share clock at the time of a round."""
    present = {app.id: _life(app, view) for app in view.apps.values()}
    before = view.memory.get(CLOCK, FairClock())
    return advanced(before, present, view.now_s, view.cluster.gpus)


def _life(app: AppView, view: RoundView) -> Life:
    report = app.report
    usable = min(fair_share(app, view), max(1.0, float(report.wants)))
    work = report.t_ideal_s * usable if 0 < report.t_ideal_s < math.inf else 0.0
    return Life(app.joined_s, app.weight, phases_or(report.phases, work, float(report.wants)))


def _rescaled(table: BidTable, app: AppView, fair: Forecast) -> BidTable:
    """A table of r by the app's own T_id, by another one."""
    told_s, ideal_s = app.report.t_ideal_s, fair.finish_s - app.joined_s
    if not (0 < told_s < math.inf and 0 < ideal_s < math.inf):
        return table
    factor = told_s / ideal_s
    rows = tuple(replace(row, r=row.r * factor) for row in table.rows)
    return BidTable(table.app, table.r_nothing * factor, rows)
