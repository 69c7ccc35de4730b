"""``yarn-cs``: first in, first out, with head-of-line blocking and consolidated placement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from themis_ray.core.bids import BidTable
from themis_ray.core.cluster import NOTHING, Allocation, Cluster
from themis_ray.core.explain import Assigned, QueueBlocked
from themis_ray.core.policies.base import Outcome, Policy, RoundView
from themis_ray.core.policies.dividing import Division
from themis_ray.core.policies.takers import Taker, takers_of


@dataclass(frozen=True)
class YarnCs(Policy):
    """Jobs in order of arrival, never preempted; the first that does not fit stops the queue.

    The production baseline of Tiresias (NSDI '19, section 5): Apache YARN's capacity scheduler.
    A job gets what it asks for, ``max_gpus``, or, if it is elastic, what is left.

    Args:
        consolidate: A job waits until it can lie on as few machines as it would need in an empty
            cluster. Otherwise it starts as soon as there are enough GPUs anywhere.
    """

    consolidate: bool = True

    name: ClassVar[str] = "yarn-cs"
    keeps: ClassVar[bool] = True

    def allocate(self, view: RoundView, bids: Mapping[str, BidTable]) -> Outcome:
        """Serve jobs from the head of the queue until one does not fit."""
        queue = sorted(takers_of(view), key=lambda t: t.arrival)
        division = Division(view, queue)
        for i, taker in enumerate(queue):
            gpus = self._fit(taker, division, view.cluster)
            if gpus:
                division.give(taker, gpus, taker.app.joined_s)
                continue
            before = len(division.misses)
            division.miss(taker, taker.app.joined_s)
            # A job that runs already and could grow holds nobody up, nor does an app at its limit.
            if len(division.misses) > before and not taker.kept:
                return self._blocked(division.outcome(self.name), queue[i:])
        return division.outcome(self.name)

    def _blocked(self, result: Outcome, waiting: Sequence[Taker]) -> Outcome:
        head = waiting[0]
        reasons = dict(result.reasons)
        for taker in waiting:
            if not isinstance(reasons[taker.app.id], Assigned):
                reasons[taker.app.id] = QueueBlocked(self.name, head.app.id, head.gang)
        return Outcome(result.awards, reasons)

    def _fit(self, taker: Taker, division: Division, cluster: Cluster) -> Allocation:
        """GPUs for a job at the head of the queue; nothing when it has to wait."""
        count = division.can_take(taker)
        if not count or not self.consolidate:
            return division.bundle(taker, count)
        bundle = division.room.fewest(count)
        most = fewest_machines(count, cluster) if taker.spans else 1
        return bundle if len(bundle) <= most else NOTHING


def fewest_machines(count: int, cluster: Cluster) -> int:
    """On how many machines ``count`` GPUs lie in an empty cluster."""
    machines = 0
    for gpus in sorted((m.gpus for m in cluster.machines), reverse=True):
        if count <= 0:
            break
        machines += 1
        count -= gpus
    return machines
