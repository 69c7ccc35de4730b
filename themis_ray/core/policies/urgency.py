"""Urgency: which of an app's jobs cannot wait, and what a bundle of GPUs is worth by that.

On a virtual cluster with fair shares (:mod:`themis_ray.core.policies.fair_clock`) each app has a
finish time. Who serves apps in the order of these times, each with all that it can use, ends every
app no later than fair sharing does, as long as any app can use any number of GPUs (the fair sojourn
protocol: Friedman and Henderson, SIGMETRICS '03). Jobs of a search cannot: the longest one sets
the pace, and an app that has waited for its turn can no longer catch up. So each job has a laxity,
the time for which it could wait and still end when its app is due (as in least-laxity scheduling),
and a job whose laxity is used up comes before all that can wait.

When not everything can be ready when it is due, everything is put off alike: each app is due at
``arrival + rho * T_id`` with the least common ``rho >= 1`` that the work left allows. That is how
the greatest stretch of jobs is made small (Bender, Chakrabarti and Muthukrishnan, SODA '98), and
rho stands for the greatest r that is to be expected.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from themis_ray.core.bids import BidTable
from themis_ray.core.policies.base import AppView, RoundView
from themis_ray.core.policies.life import Forecast
from themis_ray.core.policies.remaining import Remaining
from themis_ray.core.policies.takers import Taker

SHORTEST_T_ID_S = 1.0
# The greatest rho looked for, and how closely.
GREATEST_R = 1e6
STEPS = 40


@dataclass(frozen=True, slots=True)
class Claim:
    """A job's claim to GPUs.

    Attributes:
        taker: The job.
        laxity_s: For how long it could wait and still end when its app is due.
        weight: What a GPU for it counts: from 1 down to 0 the later its app is due, and 1 more when
            it cannot wait.
    """

    taker: Taker
    laxity_s: float
    weight: float


def due_times_s(
    view: RoundView, fair: Mapping[str, Forecast], left: Mapping[str, Remaining]
) -> dict[str, float]:
    """When each app is due, on the arbiter's clock.

    Args:
        view: The round.
        fair: When each app would be done with its fair share.
        left: What is left of the apps; only these are reckoned with.
    """
    joined = {app: view.apps[app].joined_s for app in left}
    ideal = {app: max(SHORTEST_T_ID_S, fair[app].finish_s - joined[app]) for app in left}

    def due(r: float) -> dict[str, float]:
        return {app: joined[app] + r * ideal[app] for app in left}

    low = max(
        ((view.now_s + rest.soonest_s - joined[app]) / ideal[app] for app, rest in left.items()),
        default=1.0,
    )
    low = high = min(max(1.0, low), GREATEST_R)
    while not _can_be_done(due(high), left, view) and high < GREATEST_R:
        high *= 2
    for _ in range(STEPS if high > low else 0):
        middle = (low + high) / 2
        if _can_be_done(due(middle), left, view):
            high = middle
        else:
            low = middle
    return due(high)


def _can_be_done(due: Mapping[str, float], left: Mapping[str, Remaining], view: RoundView) -> bool:
    """Whether the cluster can do all work that is due by any time, were it divided like water."""
    work = 0.0
    for app in sorted(due, key=due.__getitem__):
        work += left[app].work_gpu_s
        if work > view.cluster.gpus * max(0.0, due[app] - view.now_s) * (1 + 1e-9):
            return False
    return True


def claims(
    app: AppView,
    takers: Sequence[Taker],
    left: Remaining,
    due_s: float,
    later_s: float,
    horizon_s: float,
    view: RoundView,
) -> tuple[Claim, ...]:
    """The claims of an app's jobs, the most urgent first.

    Args:
        app: The app.
        takers: Its jobs that could use GPUs of the pool.
        left: What is left of it.
        due_s: When it is due.
        later_s: By how much that is later than the first of all apps is due.
        horizon_s: A job with less laxity cannot wait; an app that is due so much later than the
            first counts half.
        view: The round.
    """
    jobs = [*app.report.jobs, *(taker.job for taker in takers)]
    longest_s = max((job.soonest_s for job in jobs), default=0.0)
    spare_s = due_s - view.now_s - max(left.soonest_s, longest_s)
    weight = horizon_s / (horizon_s + later_s)
    out = []
    for taker in takers:
        laxity_s = spare_s + longest_s - taker.job.soonest_s - taker.start_s
        out.append(Claim(taker, laxity_s, weight + (laxity_s < horizon_s)))
    return tuple(sorted(out, key=lambda c: (c.laxity_s, not c.taker.runs, c.taker.index)))


def worth(some: Sequence[Claim], gpus: int) -> float:
    """What a number of GPUs is worth: those that jobs take in their order, by weight."""
    total = 0.0
    for claim in some:
        taken = claim.taker.fit(gpus)
        gpus -= taken
        total += claim.weight * taken
        if not gpus:
            break
    return total


def valued(table: BidTable, left: Remaining, some: Sequence[Claim], view: RoundView) -> BidTable:
    """A bid table whose ``-log r`` is what a bundle is worth, as a part of the whole cluster.

    A bundle counts for the part of the lease in which it does work, and less the later the app is
    done with it than with the best bundle of its size, moving counted: who is nearly done need not
    move together. Rows no better than nothing are left out. While jobs wait, moving is not counted
    against a row: who waits has to start, on these GPUs or on others.
    """
    best: dict[int, float] = {}
    for bundle in left.bundles:
        best[bundle.row.size] = min(bundle.moved_s, best.get(bundle.row.size, math.inf))
    waits = any(not claim.taker.runs for claim in some)
    by_size = {size: worth(some, size) for size in best}
    rows = []
    for bundle in left.bundles:
        size = bundle.row.size
        gains = bundle.left_s < left.now_s if waits else bundle.row.r < table.r_nothing
        if not gains or not by_size[size]:
            continue
        speed = best[size] / bundle.moved_s if bundle.moved_s < math.inf else 1.0
        useful = 1 - bundle.dead_s / view.lease_s
        value = by_size[size] * speed * useful / view.cluster.gpus
        rows.append(replace(bundle.row, r=math.exp(-value)))
    return BidTable(table.app, 1.0, tuple(rows))
