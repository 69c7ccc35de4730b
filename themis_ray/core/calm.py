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


def calm_leases(
    state: State, policy: Policy, leases: Mapping[str, Lease], free: int
) -> dict[str, Lease] | None:
    """Those of the leases that a round may leave as they are; None when GPUs are scarce.

    Args:
        state: The books.
        policy: Whether it can do with less than all leases.
        leases: Those that the round would put up.
        free: How many GPUs it would put up besides.
    """
    if not policy.renews:
        return None
    restless = state.restless
    all_calm = restless.calm
    calm = {key: lease for key, lease in leases.items() if key in all_calm}
    if not policy.preempts:  # one that does puts up all that anybody has
        calm = {k: x for k, x in calm.items() if _may_stay(state, policy, x, leases)}
    others = [lease for key, lease in leases.items() if key not in calm]
    free += sum(lease.held.size for lease in others)
    for app in restless.concerned(others, state.apps):
        needs = app.report.wants
        for lease in app.leases.values():
            if not lease.final and lease.id not in leases:
                needs -= lease.held.size + lease.pending.size
        if needs > 0:
            free -= needs
            if not policy.spares:
                return None
    return calm if free >= 0 else None


def _may_stay(state: State, policy: Policy, lease: Lease, leases: Mapping[str, Lease]) -> bool:
    """Whether all of what a calm app holds is put up, and it cannot win GPUs nearer together."""
    app = state.apps[lease.app]
    whole = len(app.leases) == 1 or all(key in leases for key in app.leases)
    return whole and not (policy.wants_bids and _spread(state, app))


def _spread(state: State, app: App) -> bool:
    """Whether the GPUs of an app lie further apart than so many have to in this cluster."""
    gpus = total(lease.held for lease in app.leases.values())
    return len(gpus) > 1 and state.cluster.level(gpus) > state.cluster.nearest_level(gpus.size)


def nothing_else(state: State, leases: Mapping[str, Lease], calm: Mapping[str, Lease]) -> bool:
    """Whether a round has nothing to decide besides what it leaves as it is."""
    if leases or not _still_calm(state, calm):
        return False
    return not any(map(rounds.short, state.restless.apps.values()))


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
    return calm.keys() <= state.restless.calm.keys()


def due_again(
    state: State, policy: Policy, calm: Mapping[str, Lease], now: float, lease_s: float
) -> dict[str, Lease]:
    """Of the leases that a round leaves as they are, those that it has to renew for that.

    A policy that preempts looks at all leases in every round: those of which half is left go on.
    """
    if not policy.preempts:
        return dict(calm)
    apps = dict.fromkeys(x.app for x in calm.values() if x.expires_s - now < lease_s / 2)
    return {key: lease for name in apps for key, lease in state.apps[name].leases.items()}


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
