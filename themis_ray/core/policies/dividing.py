"""The books of a round without an auction: which job gets what, and what each app is told.

A division is kept together with a placement that shows that it can be done, since gangs that run
on one machine make counting GPUs alone misleading. When it is complete, it is placed anew so that
no job that runs has to move without need, and what has come free by that is given out as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from themis_ray.core.cluster import NOTHING, Allocation
from themis_ray.core.explain import (
    Assigned,
    GangTooLarge,
    NoAnswer,
    NoGain,
    Outranked,
    Reason,
    Satisfied,
)
from themis_ray.core.policies.base import Award, Outcome, RoundView
from themis_ray.core.policies.placing import Request, Room, Style, nearest, place
from themis_ray.core.policies.takers import Taker, pinned

REPORT_TIMEOUT_S = 5.0


@dataclass(slots=True)
class Grant:
    """GPUs for one job.

    Attributes:
        taker: The job.
        gpus: The GPUs.
        rank: Its place in the order in which jobs came up, from 1.
        key: The figure that put it there.
    """

    taker: Taker
    gpus: Allocation
    rank: int
    key: float


@dataclass(frozen=True, slots=True)
class Miss:
    """A job that came up and got nothing.

    Attributes:
        taker: The job.
        rank: Its place in the order in which jobs came up.
        key: The figure that put it there.
        left: The GPUs left when its turn came; None when it would not have gained by them.
    """

    taker: Taker
    rank: int
    key: float
    left: int | None = 0


class Division:
    """Who has got what so far in a round.

    Args:
        view: The round.
        takers: The jobs among which the pool is divided.
    """

    def __init__(self, view: RoundView, takers: Iterable[Taker]) -> None:
        self.view = view
        self.grants: list[Grant] = []
        self.misses: list[Miss] = []
        self._pinned = pinned(view)
        self._pool = view.pool
        for fixed in self._pinned.values():
            self._pool = self._pool - fixed
        self.room = Room(self._pool, view.cluster)
        self._of_app = {t.app.id: t.app.needs for t in takers}

    def can_take(self, taker: Taker) -> int:
        """How many GPUs a job would get now, going by counts alone."""
        return taker.fit(min(self.room.size, self._of_app[taker.app.id]))

    def bundle(self, taker: Taker, count: int) -> Allocation:
        """GPUs that a job could have now; nothing when they do not fit together."""
        if not count:
            return NOTHING
        if taker.own.size == count and self.room.has(taker.own):
            return taker.own
        gpus = self.room.nearest(count, taker.kept)
        return gpus if taker.spans or len(gpus) == 1 else NOTHING

    def give(self, taker: Taker, gpus: Allocation, key: float) -> Grant:
        """A job gets GPUs."""
        grant = Grant(taker, gpus, self._next_rank(), key)
        self.grants.append(grant)
        self._take(taker, gpus)
        return grant

    def offer(self, taker: Taker, key: float) -> bool:
        """A job gets all that it can use, or is noted as having missed; whether it got any."""
        gpus = self.bundle(taker, self.can_take(taker))
        if gpus:
            self.give(taker, gpus, key)
        else:
            self.miss(taker, key)
        return bool(gpus)

    def grow(self, grant: Grant) -> bool:
        """A job that got GPUs gets one more; False when there is none for it."""
        taker = grant.taker
        if grant.gpus.size >= taker.most or not min(self.room.size, self._of_app[taker.app.id]):
            return False
        more = self.room.nearest(1, grant.gpus + taker.kept)
        grant.gpus = grant.gpus + more
        self._take(taker, more)
        return True

    def miss(self, taker: Taker, key: float, *, gains: bool = True) -> None:
        """A job got nothing; not noted when it is its app that wants no more."""
        if self._of_app[taker.app.id] >= taker.gang:
            left = self.room.size if gains else None
            self.misses.append(Miss(taker, self._next_rank(), key, left))

    def _take(self, taker: Taker, gpus: Allocation) -> None:
        self.room.take(gpus)
        self._of_app[taker.app.id] -= gpus.size

    def _next_rank(self) -> int:
        return len(self.grants) + len(self.misses) + 1

    # -- the end of the round ---------------------------------------------------------------

    def settle(self, style: Callable[[Taker], Style] = lambda _: nearest) -> None:
        """Place all anew, those that run staying where they are, and serve who fits then.

        Args:
            style: How to choose for a job that does not run and may lie on several machines.
        """
        own = self._handed_on()
        requests = [
            Request(
                g.gpus.size,
                own[id(g)],
                g.taker.kept,
                style(g.taker) if g.taker.spans else nearest,
                g.taker.spans,
            )
            for g in self.grants
        ]
        placed = place(requests, self._pool, self.view.cluster)
        if placed is not None:
            self.room = Room(self._pool, self.view.cluster)
            for grant, gpus in zip(self.grants, placed, strict=True):
                grant.gpus = gpus
                self.room.take(gpus)
        for miss in list(self.misses):
            gpus = NOTHING
            if self.room.size and miss.left is not None:
                gpus = self.bundle(miss.taker, self.can_take(miss.taker))
            if gpus:
                self.misses.remove(miss)
                self.grants.append(Grant(miss.taker, gpus, miss.rank, miss.key))
                self._take(miss.taker, gpus)

    def _handed_on(self) -> dict[int, Allocation]:
        """The GPUs that each grant starts from, by the grant's ``id()``.

        Which of its jobs runs is the app's own affair. So a job that starts takes the GPUs of a
        job of its app that stops: were it sent elsewhere, and the app went on with the job that
        it has, the same move would be decided again in every round.
        """
        left: dict[str, Allocation] = {}
        for miss in self.misses:
            if miss.taker.own:
                name = miss.taker.app.id
                left[name] = left.get(name, NOTHING) + miss.taker.own
        own = {}
        for grant in self.grants:
            own[id(grant)] = grant.taker.own
            spare = left.get(grant.taker.app.id, NOTHING)
            if not grant.taker.own and spare.size >= grant.gpus.size:
                gpus = Room(spare, self.view.cluster).nearest(grant.gpus.size)
                if grant.taker.spans or len(gpus) == 1:
                    own[id(grant)] = gpus
                    left[grant.taker.app.id] = spare - gpus
        return own

    def outcome(self, policy: str, memory: Mapping[str, float] | None = None) -> Outcome:
        """Awards and reasons by app, from what its jobs got."""
        gpus = dict(self._pinned)
        best: dict[str, Grant] = {}
        for grant in sorted(self.grants, key=lambda g: g.rank):
            name = grant.taker.app.id
            gpus[name] = gpus.get(name, NOTHING) + grant.gpus
            best.setdefault(name, grant)
        first: dict[str, Miss] = {}
        for miss in self.misses:
            first.setdefault(miss.taker.app.id, miss)
        reasons: dict[str, Reason] = {}
        for name, app in self.view.apps.items():
            if not app.answered:
                reasons[name] = NoAnswer("report", REPORT_TIMEOUT_S)
            elif name in best:
                rank, key = best[name].rank, best[name].key
                reasons[name] = Assigned(gpus[name], policy, rank, key, self.view.lease_s)
            elif name in first:
                reasons[name] = _why_not(policy, first[name])
            else:
                reasons[name] = Satisfied(app.report.wants)
        awards = {name: Award(some) for name, some in gpus.items() if some}
        return Outcome(awards, reasons, dict(memory or {}))


def _why_not(policy: str, miss: Miss) -> Reason:
    if miss.left is None:
        return NoGain(policy)
    if miss.left:
        return GangTooLarge(policy, miss.rank, miss.taker.gang, miss.left)
    return Outranked(policy, miss.rank, miss.key)
