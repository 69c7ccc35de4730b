"""A round: reports, offers, bids, and the books changed by what the policy decides."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from themis_ray.core.app import App
from themis_ray.core.bids import BidTable
from themis_ray.core.cluster import NOTHING, Allocation, total
from themis_ray.core.explain import LeaseEnded, NotPreemptible, Reason
from themis_ray.core.leases import Lease
from themis_ray.core.policies.base import AppView, Award, Outcome, RoundView
from themis_ray.core.settings import ArbiterConfig
from themis_ray.core.state import State


class Phase(Enum):
    """Where the arbiter is in a round."""

    IDLE = "idle"
    REPORTING = "reporting"
    BIDDING = "bidding"


@dataclass(slots=True)
class Round:
    """One round under way.

    Attributes:
        id: Counts up from 1.
        phase: What is being waited for.
        pool: GPUs put up when it began.
        leases: The leases that it renews or ends, by id.
        waiting: Apps that have not answered yet.
        deadline_s: When those that have not answered lose the round.
        answered: Apps whose report is of this round, or that were not asked for one.
        spared: Those that were not asked: they hold nothing of the pool and want nothing of it.
        bids: The bids so far.
        asked: The apps that were made an offer.
        calm: Leases that it leaves with their holders, and that are not part of the pool.
        apart: Whether the policy sees only those whom the round concerns: there are GPUs enough.
        may_recall: Whether the policy is to be asked what to put up before its lease ends.
        recalled: Leases put up before their end, and why, as their holders are told.
    """

    id: int
    phase: Phase
    pool: Allocation
    leases: dict[str, Lease]
    waiting: set[str]
    deadline_s: float
    answered: set[str] = field(default_factory=set)
    spared: frozenset[str] = frozenset()
    bids: dict[str, BidTable] = field(default_factory=dict)
    asked: tuple[str, ...] = ()
    calm: dict[str, Lease] = field(default_factory=dict)
    apart: bool = False
    may_recall: bool = False
    recalled: dict[str, Reason] = field(default_factory=dict)


def renewable(state: State, now: float, notice_s: float) -> dict[str, Lease]:
    """Leases within their notice period of which nothing has been decided yet."""
    if notice_s == math.inf:
        return {
            lease.id: lease
            for app in state.apps.values()
            for lease in app.leases.values()
            if not lease.final and lease.held
        }
    return {lease.id: lease for lease in state.ending(now + notice_s)}


def put_up(state: State, leases: Mapping[str, Lease]) -> Allocation:
    """The pool: free GPUs that nobody awaits, and those of the given leases."""
    held = total(lease.held for lease in leases.values())
    # Where GPUs are free, all capacity is there; where they are held, it may have been lost.
    return state.unclaimed() + (held & state.cluster.capacity)


def parted(app: App, leases: Mapping[str, Lease]) -> tuple[Allocation, Allocation, float]:
    """How a round on some leases parts what an app holds.

    Returns:
        What it holds or awaits whatever the round decides; what it holds under the given leases;
        and when the first lease on what it keeps ends, infinite when it keeps nothing.
    """
    if not app.leases:
        return NOTHING, NOTHING, math.inf
    if len(app.leases) == 1:  # the usual case, and this is asked very often
        (lease,) = app.leases.values()
        if lease.id in leases:
            return NOTHING, lease.held, math.inf
        if lease.final:
            return NOTHING, NOTHING, math.inf
        return lease.held + lease.pending, NOTHING, lease.expires_s
    staying = [x for x in app.leases.values() if not x.final and x.id not in leases]
    return (
        total(gpus for lease in staying for gpus in (lease.held, lease.pending)),
        total(lease.held for lease in app.leases.values() if lease.id in leases),
        min((lease.expires_s for lease in staying), default=math.inf),
    )


def short(app: App, leases: Mapping[str, Lease] | None = None) -> bool:
    """Whether an app wants more GPUs than it holds or awaits, some leases not counted."""
    wants = app.report.wants
    for lease in app.leases.values():
        if not lease.final and not (leases and lease.id in leases):
            wants -= lease.held.size + lease.pending.size
    return wants > 0


def wanted(state: State, leases: Mapping[str, Lease]) -> bool:
    """Whether somebody wants more GPUs than it holds or awaits, some leases not counted."""
    restless, apps = state.restless.apps.values(), state.apps
    return any(short(app, leases) for app in restless) or any(
        short(apps[lease.app], leases) for lease in leases.values()
    )


def at_stake(app: App, leases: Mapping[str, Lease]) -> bool:
    """Whether a round on some leases can give an app GPUs or take them from it."""
    return any(x in leases for x in app.leases) or short(app)


def view_of(
    state: State,
    leases: Mapping[str, Lease],
    pool: Allocation,
    round_: Round,
    now: float,
    lease_s: float,
    memory: Mapping[str, Any],
) -> RoundView:
    """The round as the policy sees it."""
    some, present = state.apps, None
    if round_.apart:
        present = some
        some = {app.id: app for app in state.restless.concerned(leases.values(), some)}
    apps = {}
    for name in sorted(some):
        app = some[name]
        state.touch(app, now)
        keeps, expiring, until_s = parted(app, leases)
        apps[name] = AppView(  # by position: it is made very often
            name,
            app.weight,
            app.joined_s,
            state.n_avg(app, now),
            app.report,
            name in round_.answered,
            keeps,
            expiring,
            app.attained_gpu_s,
            until_s,
        )
    return RoundView(now, round_.id, state.cluster, pool, apps, lease_s, memory, present)


def check(outcome: Outcome, pool: Allocation) -> None:
    """Refuse a decision that gives out what is not there: a fault of the policy.

    Raises:
        ValueError: The awards do not fit into the pool.
    """
    for award in outcome.awards.values():
        if not 0 < award.lease_fraction <= 1:
            raise ValueError(f"a lease fraction of {award.lease_fraction} was awarded")
    awarded = total(award.gpus for award in outcome.awards.values())
    if not awarded <= pool:
        raise ValueError(f"the policy awarded {awarded}, but only {pool} were put up")


def left_idle(outcome: Outcome, pool: Allocation) -> bool:
    """Whether GPUs of the pool went to nobody."""
    return sum(award.gpus.size for award in outcome.awards.values()) < pool.size


def apply(
    state: State,
    outcome: Outcome,
    leases: Mapping[str, Lease],
    now: float,
    config: ArbiterConfig,
    *,
    preempts: bool = False,
    recalled: Container[str] = (),
) -> None:
    """Carry a decision out: renew, grant, and give notice.

    All leases of one round end together (as far as payments in time allow), counted from the
    moment at which the GPUs that change hands are due. A policy that preempts looks at all leases
    in every round: those that it confirms go on as they are while half of them is left. Leases
    that were recalled, too, end with the notice.
    """
    confirmed: set[str] = set()
    if preempts:
        confirmed = _confirmed(state, outcome, leases, now, config)
        leases = {x.id: x for x in leases.values() if x.app not in confirmed}
    for lease in leases.values():
        # However long the answers took, those that lose GPUs have the whole notice.
        noticed_s = now + config.notice_s
        if not preempts and lease.id not in recalled:
            noticed_s = max(noticed_s, lease.expires_s)
        lease.expires_s = noticed_s
    base_s = max([now, *(lease.expires_s for lease in leases.values())])
    for name, award in sorted(outcome.awards.items()):
        if award.gpus and name in state.apps and name not in confirmed:
            _grant(state, state.apps[name], award, leases, now, base_s, config)
    for name, reason in outcome.reasons.items():
        if name in state.apps:
            state.apps[name].reason = reason
            if name not in confirmed and outcome.awards.get(name, Award()).gpus:
                state.changed[name] = reason
    give_notice(state, leases, now, outcome.reasons)


def _confirmed(
    state: State,
    outcome: Outcome,
    leases: Mapping[str, Lease],
    now: float,
    config: ArbiterConfig,
) -> set[str]:
    """Apps that get just what they hold under leases of which at least half is left."""
    by_app: dict[str, list[Lease]] = {}
    for lease in leases.values():
        by_app.setdefault(lease.app, []).append(lease)
    out = set()
    for name, mine in by_app.items():
        award = outcome.awards.get(name)
        if (
            award is not None
            and award.lease_fraction == 1
            and name in state.apps
            and all(x.expires_s - now >= config.lease_s / 2 and not x.pending for x in mine)
            and award.gpus == total(x.held for x in mine)
        ):
            out.add(name)
    return out


def give_notice(
    state: State,
    leases: Mapping[str, Lease],
    now: float,
    reasons: Mapping[str, Reason] | None = None,
) -> None:
    """What is left of some leases is not renewed; what is idle of it is free at once."""
    for lease in leases.values():
        app = state.apps.get(lease.app)
        if app is not None and lease.id in app.leases and not lease.final:
            lease.final = True
            lease.pending = NOTHING
            ending = LeaseEnded(lease.id, lease.held)
            state.changed[app.id] = (reasons or {}).get(app.id, ending)
            state.at(lease.expires_s, app.id, lease.id)
            state.forget_if_empty(lease)
            state.trim_final(app, now)


def _grant(
    state: State,
    app: App,
    award: Award,
    leases: Mapping[str, Lease],
    now: float,
    base_s: float,
    config: ArbiterConfig,
) -> None:
    end_s = config.end_s(base_s, award.lease_fraction)
    new = state.new_lease(app, award.gpus, now, end_s)
    for old in sorted(app.leases.values(), key=lambda x: x.expires_s):
        if old.id in leases:
            state.move(old, new, old.held & new.pending)
    remind(state, new, config)


def remind(state: State, lease: Lease, config: ArbiterConfig) -> None:
    """Set the timers of a new lease: one for its round, one for its end."""
    state.at(lease.expires_s - config.notice_s, lease.app, lease.id)
    state.at(lease.expires_s, lease.app, lease.id)


def renew_pinned(
    state: State,
    soon: dict[str, Lease],
    now: float,
    config: ArbiterConfig,
    *,
    everything: bool = False,
) -> None:
    """Renew, without a round, what holds trials that cannot be preempted.

    Args:
        state: The books.
        soon: The leases about to end; those renewed whole are taken out.
        now: The time.
        config: For the length of a lease.
        everything: Renew whatever is in use: the policy does not preempt.
    """
    for lease in list(soon.values()):
        app = state.apps[lease.app]
        if not everything and not app.report.pinned.size:
            continue
        pinned = lease.held & state.ledger.physical(app.id)
        if not everything:
            pinned = pinned & app.report.pinned
        if not pinned:
            continue
        due_s = min(lease.expires_s, now + config.notice_s)
        new = state.new_lease(app, pinned, now, config.end_s(due_s))
        state.move(lease, new, pinned)
        remind(state, new, config)
        state.changed[app.id] = NotPreemptible(pinned)
        if not lease.held:
            soon.pop(lease.id)
