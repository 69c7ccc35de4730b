"""What the policies that hold an auction share: who bids, who gets the rest, and the reasons."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from themis_ray.core.auction import AuctionResult, LeftoverMode
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
from themis_ray.core.policies.base import AppView, Award, RoundView
from themis_ray.core.policies.dividing import Division, Grant
from themis_ray.core.policies.fair_share import fair_r
from themis_ray.core.policies.takers import Taker, takers_of
from themis_ray.errors import ConfigError


def waited(app: AppView, now_s: float) -> float:
    """How long the app has lived, in units of its own ideal time."""
    return (now_s - app.joined_s) / app.report.t_ideal_s if app.report.t_ideal_s > 0 else 0.0


def check_filter(fairness_knob: Fraction, min_bidders: int) -> None:
    """Refuse a filter that makes no sense.

    Raises:
        ConfigError: The knob is not in [0, 1], or nobody would bid.
    """
    if not 0 <= fairness_knob <= 1:
        raise ConfigError(f"fairness knob {fairness_knob}; use a number from 0 to 1")
    if min_bidders < 1:
        raise ConfigError(f"min_bidders {min_bidders}; use 1 or more")


def worst_off(view: RoundView, fairness_knob: Fraction, min_bidders: int) -> tuple[str, ...]:
    """The ``max(min_bidders, ceil((1-f) N))`` apps with the greatest r.

    Ties (all that hold nothing have r = infinity) go to the app that is furthest behind its fair
    share. The paper does not say; elapsed / T_id, which leaves out what an app was given, has the
    same apps bid in every round when all leases end together.
    """
    able = [a for a in view.apps.values() if a.answered and a.needs]
    count = len(view.everybody)
    if fairness_knob:
        knob = Fraction(str(fairness_knob))  # exact also when it was given as a float
        count = max(min_bidders, math.ceil((1 - knob) * count))
    worst = sorted(able, key=lambda a: (-a.report.r, -fair_r(a, view), a.joined_s, a.id))
    return tuple(a.id for a in worst[:count])


def awards_of(result: AuctionResult) -> dict[str, Award]:
    """What the bidders keep."""
    return {
        app: Award(gpus, max(1e-9, min(1.0, result.lease_fraction[app])))
        for app, gpus in result.allocation.items()
        if gpus
    }


def leftovers(
    view: RoundView,
    result: AuctionResult,
    bids: Mapping[str, BidTable],
    mode: LeftoverMode,
    rng: random.Random,
    order: Iterable[str] = (),
) -> dict[str, Allocation]:
    """Who gets what the auction left over: first those that did not bid, then whoever can use it.

    Args:
        view: The round.
        result: The auction.
        bids: Who bid.
        mode: ``random`` draws a job and a machine for each GPU or gang, as the paper says;
            ``placed`` serves the apps in order, near what they have.
        rng: For ``random``.
        order: Apps that choose first in ``placed`` mode; the others follow in the view's order.
    """
    if not result.leftover or not _anybody_short(view, result):
        return {}
    place = {app: i for i, app in enumerate(order)}
    takers = sorted(
        takers_of(_after(view, result)),
        key=lambda t: (t.app.id in bids, place.get(t.app.id, len(place))),
    )
    division = Division(_after(view, result), takers)
    if mode == "placed":
        for taker in takers:
            division.offer(taker, 0.0)
    else:
        for some in (False, True):
            _draw(division, [t for t in takers if (t.app.id in bids) is some], rng)
    out: dict[str, Allocation] = {}
    for grant in division.grants:
        out[grant.taker.app.id] = out.get(grant.taker.app.id, NOTHING) + grant.gpus
    return out


def _anybody_short(view: RoundView, result: AuctionResult) -> bool:
    """Whether an app could use more than it has and what it won."""
    won = result.allocation
    return any(
        app.answered and app.needs > won.get(app.id, NOTHING).size for app in view.apps.values()
    )


def _after(view: RoundView, result: AuctionResult) -> RoundView:
    """The round once the bidders have what they won: the rest is the pool."""
    apps = {}
    for app in view.apps.values():
        won = result.allocation.get(app.id, NOTHING)
        report = replace(app.report, pinned=NOTHING)
        apps[app.id] = replace(
            app, kept=app.kept + won, expiring=app.expiring.minus(won), report=report
        )
    return replace(view, pool=result.leftover, apps=apps)


def _draw(division: Division, takers: Sequence[Taker], rng: random.Random) -> None:
    """Give out gangs and, to elastic jobs, single GPUs, by chance, while somebody can use one."""
    grants: dict[int, Grant] = {}
    able = list(range(len(takers)))
    while able and division.room.size:
        i = rng.choice(able)
        if i not in grants:
            gpus = _anywhere(
                division, takers[i], min(takers[i].gang, division.can_take(takers[i])), rng
            )
            if gpus:
                grants[i] = division.give(takers[i], gpus, 0.0)
            else:
                able.remove(i)
        elif not division.grow(grants[i]):
            able.remove(i)


def _anywhere(division: Division, taker: Taker, count: int, rng: random.Random) -> Allocation:
    """GPUs on a machine drawn by its free GPUs; on several when the job can and none suffices."""
    free = division.room.free
    fits = [machine for machine, room in free.items() if room >= count]
    if count and fits:
        machine = rng.choices(fits, weights=[free[m] for m in fits])[0]
        return Allocation({machine: count})
    return division.bundle(taker, count)


def with_leftovers(
    awards: Mapping[str, Award], extra: Mapping[str, Allocation]
) -> dict[str, Award]:
    """Awards with what was left over; a winner has it as long as what it won."""
    out = dict(awards)
    for app, gpus in extra.items():
        won = out.get(app, Award())
        out[app] = Award(won.gpus + gpus, won.lease_fraction)
    return out


def auction_reasons(
    view: RoundView,
    bids: Mapping[str, BidTable],
    result: AuctionResult,
    awards: Mapping[str, Award],
    extra: Mapping[str, Allocation],
    asked: Iterable[str],
    timeout_s: float,
) -> dict[str, Reason]:
    """Why each app of the round got what it got."""
    winners = tuple(sorted(awards))
    threshold = min((view.apps[a].report.r for a in bids), default=math.inf)
    offered = set(asked)
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
            reasons[app.id] = NoAnswer("report", timeout_s)
        elif not app.needs:
            reasons[app.id] = Satisfied(app.report.wants)
        elif app.id in bids:
            reasons[app.id] = Outbid(app.report.r, winners)
        elif app.id in offered:
            reasons[app.id] = NoAnswer("bid", timeout_s)
        else:
            reasons[app.id] = NotOffered(app.report.r, threshold, len(bids), len(view.everybody))
    return reasons


def r_with(table: BidTable, gpus: Allocation) -> float:
    """The r that a bid table gives for a number of GPUs: its best row of that size or less."""
    return min((row.r for row in table.rows if row.size <= gpus.size), default=table.r_nothing)
