"""Whether a round is worth while, and what it begins with."""

from __future__ import annotations

import math
from dataclasses import dataclass

from themis_ray.core import rounds
from themis_ray.core.calm import calm_leases
from themis_ray.core.cluster import Allocation
from themis_ray.core.leases import Lease
from themis_ray.core.policies.base import Policy
from themis_ray.core.recalls import shortage
from themis_ray.core.settings import ArbiterConfig
from themis_ray.core.state import State


@dataclass(frozen=True, slots=True)
class Opening:
    """What a round begins with.

    Attributes:
        pool: GPUs that are put up.
        leases: The leases that it renews or ends, by id.
        calm: Leases that it leaves as they are; None when GPUs are scarce, so that there are none.
        may_recall: Whether the policy is to be asked what to put up before its lease ends.
    """

    pool: Allocation
    leases: dict[str, Lease]
    calm: dict[str, Lease] | None = None
    may_recall: bool = False


@dataclass(frozen=True, slots=True)
class Occasion:
    """Why there may be a round.

    Attributes:
        soon: Undecided leases that are within their notice period.
        settled: Supply or demand has changed.
        demand: Somebody has come to want more.
        news: All apps have to be asked.
        remembers: The policy has noted something in the round before.
    """

    soon: dict[str, Lease]
    settled: bool
    demand: bool
    news: bool
    remembers: bool


def opening(
    state: State, policy: Policy, config: ArbiterConfig, why: Occasion, now: float
) -> Opening | None:
    """What a round begins with; None when it has nothing to decide.

    What needs no round is done on the way: leases that are renewed in any case are, and of those
    that nobody wants notice is given.
    """
    soon = why.soon
    if policy.preempts:
        if not soon and not why.news and not any(map(rounds.short, state.restless.apps.values())):
            return None  # all have what they want, and no lease is near its end
        soon = rounds.renewable(state, now, math.inf)
    rounds.renew_pinned(state, soon, now, config, everything=policy.keeps)
    if not soon and not why.settled:
        return None  # all that was near its end has been renewed, and nothing has changed
    pool = rounds.put_up(state, soon)
    may_recall = why.demand and policy.recalls and bool(state.cluster.gpus)
    if may_recall and shortage(state, soon) > pool.size:
        return Opening(pool, soon, may_recall=True)
    if not pool or not (why.news or rounds.wanted(state, soon)):
        rounds.give_notice(state, soon, now)
        return None
    if why.news or (why.remembers and not policy.remembers_spared):
        return Opening(pool, soon)  # what a policy remembers may be of those set apart
    calm = calm_leases(state, policy, soon, state.unclaimed().size)
    if calm:
        soon = {key: lease for key, lease in soon.items() if key not in calm}
        pool = rounds.put_up(state, soon)
    return Opening(pool, soon, calm)
