"""Leases that a round renews as they are, without a question: their apps have what they want.

When there are GPUs for everybody, a policy that is work-conserving and moves nobody without need
decides that a gang that has all its GPUs goes on with them. Finding that out by asking every app
and ranking every job costs time in proportion to all apps, in every round. So the leases of
*steady* apps (:class:`~themis_ray.core.events.AppReport`) that hold just what they want are set
apart when a round begins; the policy decides on the others alone. Should it turn out that not all
of them can have what they want, the round is widened: it puts up all leases and asks everybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from themis_ray.core import rounds
from themis_ray.core.app import App
from themis_ray.core.cluster import Allocation, total
from themis_ray.core.leases import Lease
from themis_ray.core.policies.base import Award, Outcome, Policy, RoundView
from themis_ray.core.state import State


def is_calm(app: App) -> bool:
    """Whether an app has just what it wants, and will say so when it wants something else."""
    report = app.report
    if not report.steady or report.pinned.size:
        return False
    left = report.wants
    for lease in app.leases.values():
        if lease.final or lease.pending.size:
            return False
        left -= lease.held.size
    return left == 0


def calm_leases(
    state: State, policy: Policy, leases: Mapping[str, Lease], free: int
) -> dict[str, Lease]:
    """Those of the leases that a round may renew as they are; none when GPUs are scarce.

    Args:
        state: The books.
        policy: Whether it can do with less than all leases.
        leases: Those that the round would put up.
        free: How many GPUs it would put up besides.
    """
    if not policy.renews:
        return {}
    calm: dict[str, Lease] = {}
    for app in state.apps.values():
        mine = app.leases
        calm_now = mine and is_calm(app) and all(key in leases for key in mine)
        # In an auction a gang may win GPUs that are nearer together.
        if calm_now and not (policy.wants_bids and _spread(state, app)):
            calm.update(mine)
            continue
        needs = app.report.wants
        for lease in app.leases.values():
            if lease.id in leases:
                free += lease.held.size
            elif not lease.final:
                needs -= lease.held.size + lease.pending.size
        if needs > 0:
            free -= needs
            if not policy.spares:
                return {}
    return calm if free >= 0 else {}


def _spread(state: State, app: App) -> bool:
    """Whether the GPUs of an app lie further apart than so many have to in this cluster."""
    gpus = total(lease.held for lease in app.leases.values())
    return len(gpus) > 1 and state.cluster.level(gpus) > state.cluster.nearest_level(gpus.size)


def nothing_else(state: State, leases: Mapping[str, Lease], calm: Mapping[str, Lease]) -> bool:
    """Whether a round has nothing to decide besides what it renews as it is."""
    if leases or not _still_calm(state, calm):
        return False
    return not any(map(rounds.short, state.apps.values()))


def enough(state: State, view: RoundView, calm: Mapping[str, Lease]) -> bool:
    """Whether, by the newest reports, there are GPUs for everybody."""
    needs = sum(app.needs for app in view.apps.values())
    return needs <= view.pool.size and _still_calm(state, calm)


def all_served(view: RoundView, outcome: Outcome) -> bool:
    """Whether everybody has got all that it needs: GPUs may be enough and lie too far apart."""
    nothing = Award()
    return all(
        app.needs <= outcome.awards.get(app.id, nothing).gpus.size for app in view.apps.values()
    )


def _still_calm(state: State, calm: Mapping[str, Lease]) -> bool:
    return all(is_calm(state.apps[lease.app]) for lease in calm.values())


def with_renewals(state: State, outcome: Outcome, leases: Iterable[Lease]) -> Outcome:
    """A decision, and besides, everybody whose leases have been set apart has the same again."""
    held: dict[str, list[Allocation]] = {}
    for lease in leases:
        held.setdefault(lease.app, []).append(lease.held)
    awards = dict(outcome.awards)
    reasons = dict(outcome.reasons)
    for app in sorted(held):
        awards[app] = Award(total(held[app]))
        reasons[app] = state.apps[app].reason  # why it has got them holds on
    return Outcome(awards, reasons, outcome.memory)
