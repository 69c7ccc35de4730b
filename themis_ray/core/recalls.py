"""Leases that are put up before their end, for a demand that cannot wait for it.

When more is wanted than there is, and nothing is near its end, a policy with
:attr:`~themis_ray.core.policies.base.Policy.recalls` is asked whose GPUs to put up at once. All
apps report first, since those that hold GPUs may lose them. What is put up is decided on like the
rest of the pool: its holder may win it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from themis_ray.core.explain import Reason
from themis_ray.core.leases import Lease
from themis_ray.core.policies.base import Award, Outcome, Recall
from themis_ray.core.rounds import Round, remind
from themis_ray.core.settings import ArbiterConfig
from themis_ray.core.state import State


def shortage(state: State, leases: Mapping[str, Lease]) -> int:
    """How many GPUs apps want beyond those that they hold or await, some leases not counted."""
    out = 0
    for app in state.restless.concerned(leases.values(), state.apps):
        wants = app.report.wants
        for lease in app.leases.values():
            if not lease.final and lease.id not in leases:
                wants -= lease.held.size + lease.pending.size
        out += max(0, wants)
    return out


def put_up_early(
    state: State,
    current: Round,
    recalls: Mapping[str, Recall],
    now: float,
    config: ArbiterConfig,
) -> None:
    """Add to the pool what a policy recalls; the rest of a lease goes on as another one.

    Args:
        state: The books.
        current: The round.
        recalls: Whose GPUs, by app; what an app does not hold is passed over.
        now: The time.
        config: For the timers of a lease of which only a part is put up.
    """
    for name in sorted(recalls):
        app, gpus = state.apps[name], recalls[name].gpus
        for lease in list(app.leases.values()):
            part = lease.held & gpus
            if lease.final or lease.id in current.leases or not part:
                continue
            gpus = gpus - part
            if part.size < lease.held.size or lease.pending:
                rest, lease = lease, state.new_lease(app, part, now, lease.expires_s)
                state.move(rest, lease, part)
                remind(state, lease, config)
                state.changed.setdefault(name, app.reason)
            current.leases[lease.id] = lease
            current.recalled[lease.id] = recalls[name].reason
            current.pool = current.pool + part


def with_reasons(outcome: Outcome, current: Round) -> Outcome:
    """A decision in which those that lose what was recalled are told why it was."""
    put_up: dict[str, int] = {}
    why: dict[str, Reason] = {}
    for lease in current.leases.values():
        put_up[lease.app] = put_up.get(lease.app, 0) + lease.held.size
        if lease.id in current.recalled:
            why[lease.app] = current.recalled[lease.id]
    lost = {
        app: reason
        for app, reason in why.items()
        if outcome.awards.get(app, Award()).gpus.size < put_up[app]
    }
    return replace(outcome, reasons={**outcome.reasons, **lost}) if lost else outcome
