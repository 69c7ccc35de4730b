"""Which GPUs are taken back before their lease ends, for a job that cannot wait for it.

An app of a minute that meets a cluster leased out for the next ten is held up by many times its
T_id, while those that hold the GPUs would hardly notice the loss of one for that minute. So when
more GPUs are wanted than there are, each waiting job's r is forecast, were it to wait for the
leases that end next; where that r is greater by :attr:`~themis_ray.core.policies.themis.Themis
.recall_factor` than the one with which a holder ends without the GPUs for so long, they are
recalled. A recall costs the holder a restart at both ends, which its forecast contains; so jobs
that are long against a lease hardly ever recall any, and who has just started is not sent away
for one that is as short.

What is recalled is put up, not given away: the auction may leave it with its holder. Where all jobs
are short against a lease, giving it away has them send each other off again and again (on Tiresias'
60 jobs, max r rose from 3.1 to 9.7 and GPU time by a third).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from themis_ray.core.cluster import NOTHING, Allocation
from themis_ray.core.explain import Recalled
from themis_ray.core.fairness import PhaseWork
from themis_ray.core.policies.base import AppView, Recall, RoundView
from themis_ray.core.policies.life import Forecast
from themis_ray.core.policies.placing import Room
from themis_ray.core.policies.takers import Taker, takers_of_app
from themis_ray.core.policies.urgency import SHORTEST_T_ID_S


@dataclass(frozen=True, slots=True)
class Standing:
    """How an app fares.

    Attributes:
        app: The app.
        t_id_s: Its T_id.
        soonest_s: How long the rest of its work takes at least.
    """

    app: AppView
    t_id_s: float
    soonest_s: float

    def r(self, finish_s: float) -> float:
        """Its r when it ends at a time."""
        return (finish_s - self.app.joined_s) / self.t_id_s


@dataclass(frozen=True, slots=True)
class Waiter:
    """A job that waits for GPUs.

    Attributes:
        of: Its app.
        taker: The job.
        takes_s: How long it takes, its start included.
        rest_s: What the app does beyond its longest present job.
    """

    of: Standing
    taker: Taker
    takes_s: float
    rest_s: float

    def r(self, begin_s: float) -> float:
        """The r with which its app ends, as far as this job decides, when it begins at a time."""
        return self.of.r(begin_s + self.takes_s + self.rest_s)


@dataclass(frozen=True, slots=True)
class Holder:
    """A job that holds GPUs which it could lose.

    Attributes:
        of: Its app.
        gpus: The GPUs.
        finish_s: When its app would end, two restarts included.
    """

    of: Standing
    gpus: Allocation
    finish_s: float

    @property
    def order(self) -> tuple[float, str, str]:
        """Those that would lose least come first."""
        return (self.of.r(self.finish_s), self.of.app.id, str(self.gpus))


def standings(
    view: RoundView, fair: Mapping[str, Forecast], work: Mapping[str, Sequence[PhaseWork]]
) -> dict[str, Standing]:
    """How the apps fare that answered and tell of their work; of others it cannot be said.

    Args:
        view: The round.
        fair: When each app would be done with its fair share.
        work: What is left of each phase of each app.
    """
    out = {}
    for name, app in view.apps.items():
        if app.answered and 0 < app.report.t_ideal_s < math.inf:
            t_id_s = max(SHORTEST_T_ID_S, fair[name].finish_s - app.joined_s)
            soonest_s = sum(phase.gpu_s / phase.gpus for phase in work[name])
            out[name] = Standing(app, t_id_s, soonest_s)
    return out


def recalls(
    view: RoundView, some: Mapping[str, Standing], factor: float, restart_s: float
) -> dict[str, Recall]:
    """Whose GPUs are recalled.

    Args:
        view: The round, with the GPUs that are to be had without.
        some: How the apps fare.
        factor: A job's r by waiting has to be so many times 1, and so many times the holder's.
        restart_s: Seconds of a restart, for apps that do not tell.
    """
    waiters = [waiter for standing in some.values() for waiter in _waiters(standing, view)]
    waiters.sort(key=lambda w: (-w.r(view.now_s), w.of.app.id, w.taker.index))
    supply = _Supply(view)
    search = _Search(view, factor, some, restart_s)
    for waiter in waiters:
        if not search.has_room(waiter.taker):
            search.look(waiter, waiter.r(supply.next_s(waiter.taker.gang)))
    return search.found


def _waiters(of: Standing, view: RoundView) -> Iterator[Waiter]:
    if not of.app.needs:
        return
    takers = takers_of_app(of.app, view)
    longest_s = max((taker.job.soonest_s for taker in takers), default=0.0)
    rest_s = max(0.0, of.soonest_s - longest_s)
    for taker in takers:
        if taker.most and not taker.runs:
            yield Waiter(of, taker, taker.start_s + taker.job.soonest_s, rest_s)


def _holders(of: Standing, view: RoundView, restart_s: float) -> Iterator[Holder]:
    app, report = of.app, of.app.report
    if not app.kept:
        return
    age_s = view.now_s - app.joined_s if report.elapsed_s is None else report.elapsed_s
    finish_s = view.now_s + max(of.soonest_s, report.t_shared_s - age_s)
    for taker in takers_of_app(app, view):
        if taker.kept and not taker.kept & report.pinned:
            moves_s = 2 * (taker.job.restart_s or restart_s)
            yield Holder(of, taker.kept, finish_s + moves_s)


class _Supply:
    """When GPUs come free by themselves, and are not spoken for."""

    def __init__(self, view: RoundView) -> None:
        self._never_s = view.now_s + view.lease_s
        counts: dict[float, int] = {}
        for app in view.apps.values():
            if app.kept:
                counts[app.kept_until_s] = counts.get(app.kept_until_s, 0) + app.kept.size
        self._times = sorted(counts.items(), reverse=True)

    def next_s(self, gang: int) -> float:
        """When so many GPUs come free at once; in a lease's time when that is not known."""
        for i in range(len(self._times) - 1, -1, -1):
            time_s, count = self._times[i]
            if count >= gang:
                self._times[i] = (time_s, count - gang)
                while self._times and not self._times[-1][1]:
                    self._times.pop()
                return time_s
        return self._never_s


class _Search:
    """Looks for GPUs to recall, for one job after the other."""

    def __init__(
        self, view: RoundView, factor: float, some: Mapping[str, Standing], restart_s: float
    ) -> None:
        self.found: dict[str, Recall] = {}
        self._view = view
        self._factor = factor
        self._room = Room(view.pool, view.cluster)
        self._holders = sorted(
            (h for standing in some.values() for h in _holders(standing, view, restart_s)),
            key=lambda h: h.order,
        )

    def has_room(self, taker: Taker) -> bool:
        """Whether the job gets GPUs without a recall; it then takes them."""
        count = taker.fit(self._room.size)
        gpus = self._room.nearest(count, taker.kept)
        if not gpus or (len(gpus) > 1 and not taker.spans):
            return False
        self._room.take(gpus)
        return True

    def look(self, waiter: Waiter, r: float) -> None:
        """Recall GPUs for a job that would otherwise end at ``r``, if that is worth it."""
        if r < self._factor:
            return
        away_s = min(waiter.takes_s, self._view.lease_s)
        able = []
        for holder in self._holders:
            r_holder = holder.of.r(holder.finish_s + away_s)
            if holder.of.r(holder.finish_s) * self._factor > r:
                break  # all others lose more
            if holder.of is not waiter.of and r_holder * self._factor <= r:
                able.append((r_holder, holder))
        able.sort(key=lambda a: (a[0], *a[1].order))
        chosen = self._fewest(waiter.taker, able)
        for r_holder, holder in chosen:
            name = holder.of.app.id
            before = self.found.get(name)
            gpus = holder.gpus + (before.gpus if before else NOTHING)
            self.found[name] = Recall(gpus, Recalled(gpus, waiter.of.app.id, r, r_holder))
            self._holders.remove(holder)
            self._room.give(holder.gpus)
        if chosen:
            self.has_room(waiter.taker)

    def _fewest(
        self, taker: Taker, able: Sequence[tuple[float, Holder]]
    ) -> list[tuple[float, Holder]]:
        """The first of those able that make room for a job; nothing when they are too few."""
        if taker.spans or taker.gang == 1:
            return _enough(able, taker.gang - self._room.size, None)
        best: list[tuple[float, Holder]] = []
        for machine in sorted({machine for _, holder in able for machine in holder.gpus}):
            lacks = taker.gang - self._room.free.get(machine, 0)
            some = _enough(able, lacks, machine)
            if some and (not best or some[-1][0] < best[-1][0]):
                best = some
        return best


def _enough(
    able: Sequence[tuple[float, Holder]], lacks: int, machine: str | None
) -> list[tuple[float, Holder]]:
    """The first that hold so many GPUs together, on a machine if one is named.

    Of these, whoever can be spared after all is, those that would lose most first.
    """
    out: list[tuple[float, Holder]] = []
    sizes = []
    for r, holder in able:
        size = holder.gpus.size if machine is None else holder.gpus.on(machine)
        if size and lacks > 0:
            out.append((r, holder))
            sizes.append(size)
            lacks -= size
    if lacks > 0:
        return []
    for i in range(len(out) - 1, -1, -1):
        if sizes[i] + lacks <= 0:
            lacks += sizes[i]
            del out[i]
    return out
