"""The base of policies that give out GPUs one by one, each to whoever gains most by it.

A job that cannot run on one GPU gets its gang in one step. The gain is worked out anew after every
step, so these policies divide the pool among jobs instead of serving them one after the other.
"""

from __future__ import annotations

import heapq
from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from themis_ray.core.bids import BidTable
from themis_ray.core.policies.base import Outcome, Policy, RoundView
from themis_ray.core.policies.dividing import Division, Grant
from themis_ray.core.policies.ranked import Key
from themis_ray.core.policies.takers import Taker, takers_of


class Filling(Policy):
    """Gives GPUs step by step in the order of :meth:`step_key`.

    Class attributes:
        by_app: Whether a key depends on what other jobs of the app have got.
    """

    by_app: ClassVar[bool] = False
    # A gang that waits comes before all gains, so with GPUs for everybody it has them.
    renews: ClassVar[bool] = True
    spares: ClassVar[bool] = True

    @abstractmethod
    def step_key(
        self, taker: Taker, gpus: int, step: int, of_app: int, view: RoundView
    ) -> Key | None:
        """What ranks the next step of a job: the smallest first, equal ones by arrival.

        Args:
            taker: The job.
            gpus: GPUs that it has by now, those included that it keeps.
            step: GPUs that it would get: its gang at first, then one at a time.
            of_app: GPUs that its app has by now.
            view: The round.

        Returns:
            The key, which must not fall as ``of_app`` grows; None for a step without gain.
        """

    def allocate(self, view: RoundView, bids: Mapping[str, BidTable]) -> Outcome:
        """Give out steps until nobody can or would take one."""
        takers = sorted(takers_of(view), key=lambda t: t.arrival)
        division = Division(view, takers)
        of_app = {t.app.id: t.app.kept.size for t in takers}
        grants: dict[int, Grant] = {}
        heap: list[tuple[Key, int, int]] = []

        def push(i: int) -> None:
            taker, has, step = takers[i], takers[i].kept.size, takers[i].gang
            if i in grants:
                has, step = has + grants[i].gpus.size, 1
            key = self.step_key(taker, has, step, of_app[taker.app.id], view)
            if key is not None:
                heapq.heappush(heap, (key, i, of_app[taker.app.id]))
            elif i not in grants:
                division.miss(taker, 0.0, gains=False)

        for i in range(len(takers)):
            push(i)
        while heap:
            key, i, seen = heapq.heappop(heap)
            app = takers[i].app.id
            if self.by_app and seen != of_app[app]:
                push(i)  # other jobs of the app have been served since
            elif i not in grants:
                grant = _first(division, takers[i], key[0])
                if grant is not None:
                    grants[i] = grant
                    of_app[app] += grant.gpus.size
                    push(i)
            elif division.grow(grants[i]):
                of_app[app] += 1
                push(i)
        division.settle()
        return division.outcome(self.name)


def _first(division: Division, taker: Taker, key: float) -> Grant | None:
    """The first step of a job: its gang."""
    gpus = division.bundle(taker, min(taker.gang, division.can_take(taker)))
    if gpus:
        return division.give(taker, gpus, key)
    division.miss(taker, key)
    return None
