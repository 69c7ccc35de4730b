"""``gandiva``: the job that can be placed best comes next."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from themis_ray.core.bids import BidTable
from themis_ray.core.cluster import Level
from themis_ray.core.policies.base import Outcome, Policy, RoundView
from themis_ray.core.policies.dividing import Division
from themis_ray.core.policies.takers import Taker, slowdown, takers_of


@dataclass(frozen=True)
class Gandiva(Policy):
    """Greedy by placement preference (Xiao et al., OSDI '18; THEMIS, NSDI '20, section 8.1).

    Whenever GPUs are to be had, the job that would run with the least slowdown on the best of
    them is served first. Of equal ones, as in Gandiva's time slicing, the job of the app that was
    served least so far. Fairness does not come into it otherwise.
    """

    name: ClassVar[str] = "gandiva"
    # Who is served first hangs on where others lie, so with new jobs all have to be looked at.
    renews: ClassVar[bool] = True

    def allocate(self, view: RoundView, bids: Mapping[str, BidTable]) -> Outcome:
        """Serve the best-placed job until nothing is left that fits."""
        takers = sorted(takers_of(view), key=_served)
        division = Division(view, takers)
        levels: dict[int, Level] = {}  # the best level of so many GPUs, until GPUs are taken
        # Room only shrinks, so S only grows: an entry that still holds when it comes up is best.
        heap = [(1.0, i) for i in range(len(takers))]
        while heap:
            expected, i = heapq.heappop(heap)
            taker = takers[i]
            count = division.can_take(taker)
            if count not in levels or taker.own or not taker.spans:
                gpus = division.bundle(taker, count)
                level = view.cluster.level(gpus)
                if not taker.own and gpus:
                    levels[count] = level
            else:
                level = levels[count]
            actual = slowdown(taker.job, level) if count > 1 else 1.0
            if actual > expected:
                heapq.heappush(heap, (actual, i))
            elif division.offer(taker, actual):
                levels.clear()
        division.settle()
        return division.outcome(self.name)


def _served(taker: Taker) -> tuple[float, float, str, int]:
    return (taker.app.attained_gpu_s / taker.app.weight, *taker.arrival)
