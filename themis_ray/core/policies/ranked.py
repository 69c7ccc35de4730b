"""The base of policies that rank the jobs and serve them in that order.

A subclass says how to rank. Each job, in its turn, gets as many GPUs as it can use; a job that
needs more at once than are left is skipped, so that GPUs do not idle behind a large gang (Tiresias,
NSDI '19, section 3.2.3).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from themis_ray.core.bids import BidTable
from themis_ray.core.policies.base import Outcome, Policy, RoundView
from themis_ray.core.policies.dividing import Division
from themis_ray.core.policies.placing import Style, nearest
from themis_ray.core.policies.takers import Taker, takers_of

Key = tuple[float, ...]


class Ranked(Policy):
    """Serves jobs in the order of :meth:`key`."""

    renews: ClassVar[bool] = True
    spares: ClassVar[bool] = True

    @abstractmethod
    def key(self, taker: Taker, view: RoundView) -> Key:
        """What ranks a job: the smallest first; equal ones by arrival."""

    def style(self, taker: Taker) -> Style:
        """How GPUs for a job that does not run are chosen."""
        return nearest

    def note(self, takers: Sequence[Taker], view: RoundView) -> Mapping[str, float]:
        """What to remember for the next round."""
        return {}

    def allocate(self, view: RoundView, bids: Mapping[str, BidTable]) -> Outcome:
        """Serve the jobs in order."""
        takers = takers_of(view)
        keys = [self.key(t, view) for t in takers]
        division = Division(view, takers)
        for i in sorted(range(len(takers)), key=lambda i: (keys[i], takers[i].arrival)):
            division.offer(takers[i], keys[i][0])
        division.settle(self.style)
        return division.outcome(self.name, self.note(takers, view))
