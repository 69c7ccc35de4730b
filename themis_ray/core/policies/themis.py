"""``themis``: the default. Everyone bids, for one lease, in an auction that knows who cannot wait.

THEMIS as printed (``themis-paper``) serves those with the greatest r well and leaves the greatest
r above that of plain fair share. This preset keeps its auction and changes what goes into it:

1. *T_id from a virtual fair-share clock*, which the arbiter runs beside the real cluster, see
   :mod:`themis_ray.core.policies.fair_clock`. It neither grows when an app is held up nor gives
   an app that cannot use its share more time than it needs.
2. *Urgency.* With T_id an app has a time when it is due, and each of its jobs a laxity. A bundle is
   worth the GPU-time that it gives to jobs in the order of their urgency, for one lease, see
   :mod:`themis_ray.core.policies.urgency`: jobs that cannot wait come first, and of both kinds
   those whose app is due first.
3. *Placement and restarts count.* A bundle on which the app is slower than on another of its size,
   by its own bids, is worth less in proportion, and so is one to which jobs have to move, see
   :mod:`themis_ray.core.policies.remaining`.
4. *Everyone bids*: urgency does the filter's work.
5. *Payments in lease time*: whole gangs stay whole.
6. *What is left is placed*, apps that are due first choosing first, and not given out at random;
   then the round is placed anew, so that jobs that run stay where they are.
7. *Leases are recalled* for a job whose r would be a multiple of the holder's by waiting for their
   end, see :mod:`themis_ray.core.policies.recalling`.

What each of these is worth, ``themis reproduce ablation-w1 ablation-w2`` tells.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
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
from themis_ray.core.policies.base import AppView, Outcome, Policy, Present, Recall, RoundView
from themis_ray.core.policies.fair_clock import FairClock, advanced, forecasts, phases_or
from themis_ray.core.policies.fair_share import fair_share
from themis_ray.core.policies.life import Forecast, Life
from themis_ray.core.policies.recalling import recalls, standings
from themis_ray.core.policies.remaining import Remaining, remaining
from themis_ray.core.policies.replacing import placed_anew
from themis_ray.core.policies.takers import Taker, takers_of
from themis_ray.core.policies.urgency import Claim, claims, due_times_s, valued
from themis_ray.errors import ConfigError

IdealOf = Literal["clock", "told"]
# The name under which the policy remembers its clock.
CLOCK = "clock"


@dataclass(frozen=True)
class Themis(Policy):
    """A partial-allocation auction for one lease, by urgency.

    Args:
        ideal: Where T_id comes from: the virtual fair-share ``clock``, or as apps have ``told``.
        horizon: In leases: jobs with less laxity cannot wait, and an app that is due so much
            later than the first counts half.
        restart_s: What a restart costs, in seconds, for apps that do not tell.
        fairness_knob: f, as in the paper; 0 lets everyone bid.
        min_bidders: At least so many apps bid.
        payment: How the hidden payment is taken, in lease time or in GPUs.
        leftover: Who gets what the auction leaves: ``placed`` or ``random``.
        anew: Place all awards of a round anew, jobs that run staying where they are.
        recall_factor: A lease is recalled for a job whose app, were it to wait, would end with an r
            so many times 1, and so many times the holder's; ``inf`` for never.
        seed: Seeds what is random, together with the round's number.
        timeout_s: The bid timeout, for the reasons given.
    """

    ideal: IdealOf = "clock"
    horizon: float = 1.0
    restart_s: float = 45.0
    fairness_knob: Fraction = Fraction(0)
    min_bidders: int = 1
    payment: Payment = "time"
    leftover: LeftoverMode = "placed"
    anew: bool = True
    recall_factor: float = 1.25
    seed: int = 0
    timeout_s: float = 5.0

    name: ClassVar[str] = "themis"
    wants_bids: ClassVar[bool] = True
    # Placed anew, a gang stays where it is; with GPUs for everybody all get what they want. The
    # clock goes by the reports of all apps, asked or not.
    renews: ClassVar[bool] = True
    spares: ClassVar[bool] = True
    remembers_spared: ClassVar[bool] = True
    recalls: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.anew:  # gangs may be given other GPUs in any round
            object.__setattr__(self, "renews", False)
        if self.recall_factor == math.inf:
            object.__setattr__(self, "recalls", False)
        check_filter(self.fairness_knob, self.min_bidders)
        if self.ideal not in ("clock", "told"):
            raise ConfigError(f"ideal {self.ideal!r}; use 'clock' or 'told'")
        if not 0 < self.horizon < math.inf:
            raise ConfigError(f"horizon {self.horizon}; use a number of leases above 0")
        if not self.restart_s >= 0:
            raise ConfigError(f"restart_s {self.restart_s}; use 0 or more seconds")
        if not self.recall_factor >= 1:
            raise ConfigError(f"recall_factor {self.recall_factor}; use 1 or more, inf for never")

    def bidders(self, view: RoundView) -> tuple[str, ...]:
        """All apps that can use GPUs, unless the fairness knob filters them."""
        return worst_off(view, self.fairness_knob, self.min_bidders)

    def recall(self, view: RoundView) -> Mapping[str, Recall]:
        """What is taken back at once for jobs that cannot wait for leases to end."""
        fair = self._fair(view, fair_clock(view) if self.ideal == "clock" else None)
        work = {
            name: replace(_life(app, view), done_gpu_s=app.attained_gpu_s).left
            for name, app in view.apps.items()
        }
        return recalls(view, standings(view, fair, work), self.recall_factor, self.restart_s)

    def allocate(self, view: RoundView, bids: Mapping[str, BidTable]) -> Outcome:
        """Hold the auction among bundles valued by urgency and place what is left over."""
        clock = fair_clock(view) if self.ideal == "clock" else None
        values, jobs = self.valued(view, bids, clock)
        seed = self.seed * 1_000_003 + view.round_id
        result = run_auction(
            view.pool,
            view.cluster.racks,
            [values[app] for app in sorted(values)],
            payment=self.payment,
            seed=seed,
        )
        extra = leftovers(view, result, bids, self.leftover, random.Random(seed), jobs)
        awards = with_leftovers(awards_of(result), extra)
        if self.anew:
            awards = placed_anew(view, awards, jobs)
        asked = self.bidders(view)
        reasons = auction_reasons(view, bids, result, awards, extra, asked, self.timeout_s)
        return Outcome(awards, reasons, {} if clock is None else {CLOCK: clock})

    def valued(
        self, view: RoundView, bids: Mapping[str, BidTable], clock: FairClock | None
    ) -> tuple[dict[str, BidTable], dict[str, list[Taker]]]:
        """The bids with values by urgency, and each app's jobs in the order of their urgency.

        Args:
            view: The round.
            bids: The bids.
            clock: The virtual fair-share clock; None for T_id as the apps tell it.

        Returns:
            Tables by app, whose V is 1 without any GPU; jobs by app, the apps in the order in
            which they are due, those that did not bid at the end.
        """
        fair = self._fair(view, clock)
        left = {
            app: remaining(table, view.apps[app], view, self.restart_s, fair[app])
            for app, table in bids.items()
        }
        due = due_times_s(view, fair, left)
        takers = jobs_of(view)
        values, jobs = {}, {}
        for app in sorted(bids, key=lambda app: (due[app], app)):
            some = self._claims(view, app, takers.pop(app, []), left[app], due)
            values[app] = valued(bids[app], left[app], some, view)
            jobs[app] = [claim.taker for claim in some]
        return values, jobs | takers

    def _fair(self, view: RoundView, clock: FairClock | None) -> Mapping[str, Forecast]:
        """When each app would be done with its fair share."""
        if clock is None:
            return {name: told(app, view) for name, app in view.apps.items()}
        return forecasts(clock, view.cluster.gpus)

    def _claims(
        self,
        view: RoundView,
        app: str,
        takers: Sequence[Taker],
        left: Remaining,
        due: Mapping[str, float],
    ) -> tuple[Claim, ...]:
        later_s = due[app] - min(due.values())
        horizon_s = self.horizon * view.lease_s
        return claims(view.apps[app], takers, left, due[app], later_s, horizon_s, view)


def jobs_of(view: RoundView) -> dict[str, list[Taker]]:
    """The jobs that could use GPUs of the pool, by app."""
    jobs: dict[str, list[Taker]] = {}
    for taker in takers_of(view):
        jobs.setdefault(taker.app.id, []).append(taker)
    return jobs


def told(app: AppView, view: RoundView) -> Forecast:
    """The T_id that the app itself tells, and R / N as its share."""
    return Forecast(app.joined_s + app.report.t_ideal_s, fair_share(app, view))


def fair_clock(view: RoundView) -> FairClock:
    """The virtual fair-share clock at the time of a round."""
    before = view.memory.get(CLOCK, FairClock())
    words = before.words
    present = {
        name: _known(app, words.get(name)) or _life(app, view)
        for name, app in view.everybody.items()
    }
    return advanced(before, present, view.now_s, view.cluster.gpus)


def _known(app: Present, life: Life | None) -> Life | None:
    """An app's life by the last word of the clock, when it has said nothing new since."""
    if life is None or life.phases != app.report.phases:
        return None
    return life if (life.joined_s, life.weight) == (app.joined_s, app.weight) else None


def _life(app: Present, view: RoundView) -> Life:
    report, shown = app.report, view.apps.get(app.id)
    if shown is not None:
        share = fair_share(shown, view)
    else:  # as many apps as there are now
        share = view.cluster.gpus * app.weight / len(view.everybody)
    usable = min(share, max(1.0, float(report.wants)))
    work = report.t_ideal_s * usable if 0 < report.t_ideal_s < math.inf else 0.0
    return Life(app.joined_s, app.weight, phases_or(report.phases, work, float(report.wants)))
