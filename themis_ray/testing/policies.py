"""The smallest policies there are, for tests and as examples of how to write one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from themis_ray.core.bids import BidTable
from themis_ray.core.cluster import NOTHING, Allocation
from themis_ray.core.explain import Assigned, NoAnswer, Outbid, Reason, Satisfied
from themis_ray.core.policies.base import Award, Outcome, Policy, RoundView


@dataclass(frozen=True)
class FirstCome(Policy):
    """Apps are served in the order in which they joined, each with all that it can use.

    Leases are renewed by the same rule, so a later app waits for the earlier ones to want less.
    """

    name: ClassVar[str] = "first-come"

    def allocate(self, view: RoundView, bids: Mapping[str, BidTable]) -> Outcome:
        """Serve one app after the other, each first with the GPUs that it has."""
        free, awards = view.pool, {}
        reasons: dict[str, Reason] = {}
        ranked = sorted(view.apps.values(), key=lambda a: (a.joined_s, a.id))
        for rank, app in enumerate(ranked, start=1):
            gpus = NOTHING
            if app.answered:
                gpus = whole_gangs(free, app.needs, app.report.gang, app.expiring)
            free = free - gpus
            if gpus:
                awards[app.id] = Award(gpus)
                reasons[app.id] = Assigned(gpus, self.name, rank, app.joined_s, view.lease_s)
            elif not app.answered:
                reasons[app.id] = NoAnswer("report", 0.0)
            elif not app.needs:
                reasons[app.id] = Satisfied(app.report.wants)
            else:
                reasons[app.id] = Outbid(app.report.r, tuple(sorted(awards)))
        return Outcome(awards, reasons)


@dataclass(frozen=True)
class PreemptiveFirstCome(FirstCome):
    """First come, first served, with every GPU put up in every round."""

    name: ClassVar[str] = "first-come-preemptive"
    preempts: ClassVar[bool] = True


@dataclass(frozen=True)
class KeepingFirstCome(FirstCome):
    """First come, first served, without preemption: what is in use is renewed."""

    name: ClassVar[str] = "first-come-keeping"
    keeps: ClassVar[bool] = True


def whole_gangs(free: Allocation, most: int, gang: int, own: Allocation = NOTHING) -> Allocation:
    """Up to ``most`` GPUs out of ``free``, in gangs that lie on one machine each.

    Args:
        free: The GPUs to choose from.
        most: How many at most.
        gang: The size of a gang.
        own: Machines on which to begin.
    """
    taken: dict[str, int] = {}
    for machine in sorted(free, key=lambda m: (-own.on(m), m)):
        taken[machine] = min(free[machine], most) // gang * gang
        most -= taken[machine]
    return Allocation(taken)
