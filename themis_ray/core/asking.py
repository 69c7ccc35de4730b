"""What a round asks of the AGENTs: reports first, then bids."""

from __future__ import annotations

from collections.abc import Iterable

from themis_ray.core import rounds
from themis_ray.core.app import App
from themis_ray.core.cluster import total
from themis_ray.core.commands import RequestReport, SendOffer
from themis_ray.core.policies.base import RoundView
from themis_ray.core.rounds import Phase, Round
from themis_ray.core.state import State


def begin(state: State, current: Round, now: float, *, everybody: bool) -> None:
    """Ask for the reports with which a round begins.

    Args:
        state: The books.
        current: The round.
        now: The time.
        everybody: Ask also those for whom nothing is at stake.
    """
    leases = current.leases
    if everybody:
        asked = list(state.apps.values())
    else:
        some = state.restless.concerned(leases.values(), state.apps)
        asked = [app for app in some if rounds.at_stake(app, leases)]
    current.waiting = {app.id for app in asked}
    current.spared = frozenset(state.apps.keys() - current.waiting)
    current.answered = set(current.spared)
    _request_reports(state, current, asked, now)


def widen(state: State, current: Round, now: float) -> None:
    """Put up the leases that were set apart, too, and ask their apps for reports.

    Args:
        state: The books.
        current: The round; it goes back to reporting.
        now: The time.
    """
    apps = {lease.app for lease in current.calm.values()}
    current.leases = {**current.leases, **current.calm}
    current.pool = current.pool + total(lease.held for lease in current.calm.values())
    current.calm, current.apart = {}, False
    current.phase, current.bids, current.asked = Phase.REPORTING, {}, ()
    current.answered -= apps
    current.spared -= apps
    current.waiting |= apps
    _request_reports(state, current, [state.apps[app] for app in sorted(apps)], now)


def _request_reports(state: State, current: Round, apps: Iterable[App], now: float) -> None:
    """Ask some apps how they stand with what they keep in this round."""
    for app in apps:
        state.commands.append(
            RequestReport(
                app.id,
                current.id,
                rounds.parted(app, current.leases)[0],
                state.n_avg(app, now),
                state.cluster.gpus,
            )
        )


def send_offers(state: State, current: Round, view: RoundView) -> None:
    """Offer the pool to those whom the policy wants to bid.

    Args:
        state: The books.
        current: The round.
        view: The round as the policy sees it.
    """
    racks_of = state.cluster.racks
    of_pool = {machine: racks_of[machine] for machine in view.pool}
    for name in current.asked:
        app = view.apps[name]
        besides = {m: racks_of[m] for m in app.kept if m in racks_of and m not in of_pool}
        state.commands.append(
            SendOffer(
                name,
                current.id,
                view.pool,
                app.kept,
                app.expiring,
                {**of_pool, **besides} if besides else of_pool,
                app.n_avg,
                state.cluster.gpus,
                view.lease_s,
                state.measured_of(state.apps[name]),
            )
        )
