"""What is left of an app, read off its bid table.

An agent's table says how the app would finish if it kept a bundle to its end (Equations 1 and 2 of
THEMIS): with ``elapsed`` the app's age, ``left(G) = r(G) * T_id - elapsed`` is the time that the
rest of its work takes on the bundle. From these times follow how soon the app can be done, how
much work it has left, and how well it runs on one bundle against others of the same size.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

from themis_ray.core.bids import BidRow, BidTable
from themis_ray.core.policies.base import AppView, RoundView
from themis_ray.core.policies.life import Forecast
from themis_ray.core.policies.water import LEAST_GPUS

SHORTEST_S = 1e-6


@dataclass(frozen=True, slots=True)
class Bundle:
    """A row of a bid table.

    Attributes:
        row: The row.
        left_s: How long the rest of the app's work takes on it, moving not counted; infinite
            when the app does not tell.
        moved_s: Likewise, moving counted as the app does.
        dead_s: How much of a lease on it is lost to moving.
    """

    row: BidRow
    left_s: float
    moved_s: float
    dead_s: float


@dataclass(frozen=True, slots=True)
class Remaining:
    """What is left of an app.

    Attributes:
        bundles: Its bids.
        work_gpu_s: Its work, GPU-seconds; 0 when it does not tell.
        soonest_s: How long that takes at least, with all the GPUs that it asks for.
        now_s: How long it takes with what the app keeps; infinite when that is nothing, or when
            it does not tell.
    """

    bundles: tuple[Bundle, ...]
    work_gpu_s: float
    soonest_s: float
    now_s: float = math.inf


def remaining(
    table: BidTable, app: AppView, view: RoundView, restart_s: float, fair: Forecast
) -> Remaining:
    """What is left of an app by its bids.

    A bundle is dead for ``2 * restart`` times the share of its GPUs that are new to the app: the
    restart at its start, and the one that it will bring about when the lease ends; but for no more
    than a quarter of a lease. Where restarts are long against leases, nobody new could outbid those
    who have the GPUs otherwise, however urgent.

    Args:
        table: The agent's bids.
        app: The app.
        view: The round.
        restart_s: Seconds of a restart, for apps that do not tell.
        fair: The share of the cluster by which the work is reckoned.
    """
    # What the app's own r charges for moving is taken out: dead time has it.
    charged = max((job.restart_s for job in app.report.jobs), default=0.0)
    bundles = []
    for row in table.rows:
        new = row.size - (row.pinned & app.expiring).size
        dead = 2 * (charged or restart_s) * new / (app.kept.size + row.size)
        moved = _left_s(row.r, app, view)
        left = max(SHORTEST_S, moved - charged * new / row.size)
        dead = min(dead, view.lease_s / 4)
        bundles.append(Bundle(row, left, max(SHORTEST_S, moved), dead))
    left_now = max(SHORTEST_S, _left_s(table.r_nothing, app, view))
    soonest = min((bundle.left_s for bundle in bundles), default=left_now)
    soonest = min(soonest, left_now)
    # Between offer and bid an app may have come to want nothing any more.
    share = max(LEAST_GPUS, min(fair.share, float(app.report.wants)))
    fair_s = _fair_s(app, share, bundles, left_now)
    if math.isinf(fair_s):
        return Remaining(tuple(bundles), 0.0, 0.0, left_now)
    return Remaining(tuple(bundles), fair_s * share, soonest, left_now)


def _left_s(r: float, app: AppView, view: RoundView) -> float:
    """The time left that an r stands for."""
    told_s, elapsed = app.report.t_ideal_s, app.report.elapsed_s
    if not 0 < told_s < math.inf:
        return math.inf
    return r * told_s - (view.now_s - app.joined_s if elapsed is None else elapsed)


def _fair_s(app: AppView, share: float, bundles: Sequence[Bundle], left_now: float) -> float:
    """How long the rest would take on a share; infinite when the table does not tell.

    Between two sizes, the speed ``1 / left`` is interpolated; below the smallest it is
    proportional to the number of GPUs.
    """
    best: dict[int, float] = {app.kept.size: left_now} if app.kept else {}
    for bundle in bundles:
        size = app.kept.size + bundle.row.size
        best[size] = min(bundle.left_s, best.get(size, bundle.left_s))
    sizes = sorted(size for size, left in best.items() if left < math.inf)
    if not sizes:
        return math.inf
    at = bisect.bisect_left(sizes, share)
    if at == 0 or at == len(sizes):
        size = sizes[min(at, len(sizes) - 1)]
        return best[size] * max(1.0, size / share)
    low, high = sizes[at - 1], sizes[at]
    part = (share - low) / (high - low)
    return 1 / ((1 - part) / best[low] + part / best[high])
