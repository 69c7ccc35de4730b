"""``themis-paper``: rounds as THEMIS has them (NSDI '20, sections 3.3 and 4.2)."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from themis_ray.core.auction import AuctionResult, Payment, assign_leftovers, run_auction
from themis_ray.core.bids import BidTable
from themis_ray.core.cluster import NOTHING, Allocation
from themis_ray.core.explain import (
    GotLeftover,
    NoAnswer,
    NotOffered,
    Outbid,
    Reason,
    Satisfied,
    Won,
)
from themis_ray.core.policies.base import AppView, Award, Outcome, Policy, RoundView
from themis_ray.errors import ConfigError


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
    leftover: str = "random"
    seed: int = 0
    timeout_s: float = 5.0

    name: ClassVar[str] = "themis-paper"
    wants_bids: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= self.fairness_knob <= 1:
            raise ConfigError(f"fairness knob {self.fairness_knob}; use a number from 0 to 1")
        if self.min_bidders < 1:
            raise ConfigError(f"min_bidders {self.min_bidders}; use 1 or more")

    def bidders(self, view: RoundView) -> tuple[str, ...]:
        """The ``max(min_bidders, ceil((1-f) N))`` apps with the greatest r.

        Ties (all that hold nothing have r = infinity) go to the app that has waited longest by
        its own measure, elapsed / T_id.
        """
        able = [a for a in view.apps.values() if a.answered and a.needs]
        count = max(self.min_bidders, math.ceil((1 - self.fairness_knob) * len(view.apps)))
        worst = sorted(able, key=lambda a: (-a.report.r, -_waited(a, view.now_s), a.joined_s, a.id))
        return tuple(a.id for a in worst[:count])

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
        awards = {
            app: Award(gpus, max(1e-9, min(1.0, result.lease_fraction[app])))
            for app, gpus in result.allocation.items()
            if gpus
        }
        extra = self._leftovers(view, result, bids, random.Random(seed))
        for app, gpus in extra.items():
            if gpus:
                won = awards.get(app)
                awards[app] = Award(
                    gpus + (won.gpus if won else NOTHING), won.lease_fraction if won else 1.0
                )
        return Outcome(awards, self._reasons(view, bids, result, awards, extra))

    def _leftovers(
        self,
        view: RoundView,
        result: AuctionResult,
        bids: Mapping[str, BidTable],
        rng: random.Random,
    ) -> Mapping[str, Allocation]:
        """First to apps that did not take part, then to whoever can use it."""
        left, out = result.leftover, {}
        outside = [a for a in view.apps.values() if a.id not in bids and a.answered]
        inside = [a for a in view.apps.values() if a.id in bids]
        for apps in (outside, inside):
            needs = {
                a.id: a.needs - result.allocation.get(a.id, NOTHING).size
                for a in apps
                if a.needs > result.allocation.get(a.id, NOTHING).size
            }
            if not left or not needs:
                continue
            given = assign_leftovers(
                left,
                needs,
                mode="random" if self.leftover == "random" else "placed",
                rng=rng,
                holds={a.id: a.kept + a.expiring for a in apps},
                min_gain={a.id: a.report.gang for a in apps},
            )
            for app, gpus in given.items():
                out[app] = gpus
                left = left - gpus
        return out

    def _reasons(
        self,
        view: RoundView,
        bids: Mapping[str, BidTable],
        result: AuctionResult,
        awards: Mapping[str, Award],
        extra: Mapping[str, Allocation],
    ) -> dict[str, Reason]:
        winners = tuple(sorted(awards))
        threshold = min((view.apps[a].report.r for a in bids), default=math.inf)
        asked = set(self.bidders(view))
        reasons: dict[str, Reason] = {}
        for app in view.apps.values():
            award = awards.get(app.id)
            if award and result.allocation.get(app.id):
                reasons[app.id] = Won(
                    award.gpus,
                    app.report.r,
                    r_with(bids[app.id], award.gpus),
                    result.payment_factor[app.id],
                    view.lease_s * award.lease_fraction,
                )
            elif award:
                reasons[app.id] = GotLeftover(extra[app.id], view.lease_s)
            elif not app.answered:
                reasons[app.id] = NoAnswer("report", self.timeout_s)
            elif not app.needs:
                reasons[app.id] = Satisfied(app.report.wants)
            elif app.id in bids:
                reasons[app.id] = Outbid(app.report.r, winners)
            elif app.id in asked:
                reasons[app.id] = NoAnswer("bid", self.timeout_s)
            else:
                reasons[app.id] = NotOffered(app.report.r, threshold, len(bids), len(view.apps))
        return reasons


def _waited(app: AppView, now_s: float) -> float:
    """How long the app has lived, in units of its own ideal time."""
    return (now_s - app.joined_s) / app.report.t_ideal_s if app.report.t_ideal_s > 0 else 0.0


def r_with(table: BidTable, gpus: Allocation) -> float:
    """The r that a bid table gives for a number of GPUs: its best row of that size or less."""
    return min((row.r for row in table.rows if row.size <= gpus.size), default=table.r_nothing)
