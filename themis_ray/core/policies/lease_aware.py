"""r for one lease: what a bundle is worth when it lasts a lease and not for ever.

An agent's table says how it would finish if it kept a bundle to its end (Equations 1 and 2 of
THEMIS). But a bundle is won for a lease, and what comes then is, on average, a fair share. So the
policy restates each row before it holds the auction; agents need not know which preset runs.

With ``elapsed`` the app's age, L the lease, ``left(G) = r(G) * T_id - elapsed`` the time that the
rest of its work takes on the bundle, ``fair`` the time that it takes on its share of the cluster,
and ``dead`` the part of the lease that a restart costs::

    r'(G) = (elapsed + L + (1 - (L - dead) / left(G)) * fair) / T_id

or ``(elapsed + dead + left(G)) / T_id`` when the app ends within the lease. Without any GPU the
fraction done is 0, so ``r'`` is finite: no app is worth infinitely more than another, and no
product of values is 0.

``fair`` is read off the same table: between two sizes, the speed ``1 / left`` is interpolated;
below the smallest it is proportional to the number of GPUs. T_id and the share of the cluster
come from the virtual fair-share clock (:mod:`themis_ray.core.policies.fair_clock`).
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from themis_ray.core.bids import BidRow, BidTable
from themis_ray.core.policies.base import AppView, RoundView
from themis_ray.core.policies.fair_clock import Forecast

SHORTEST_S = 1e-6
LEAST_R = 0.05


@dataclass(frozen=True, slots=True)
class _Terms:
    """What the restated r of one app depends on, besides the row."""

    elapsed_s: float
    t_ideal_s: float
    lease_s: float
    fair_s: float

    def r(self, left_s: float, dead_s: float) -> float:
        """r' of a bundle on which the rest takes ``left_s``."""
        useful_s = max(0.0, self.lease_s - dead_s)
        if left_s <= useful_s:
            return (self.elapsed_s + dead_s + left_s) / self.t_ideal_s
        done = useful_s / left_s
        return (self.elapsed_s + self.lease_s + (1 - done) * self.fair_s) / self.t_ideal_s


def lease_aware(
    table: BidTable, app: AppView, view: RoundView, restart_s: float, fair: Forecast
) -> BidTable:
    """A bid table with r' in place of r; rows no better than nothing are left out.

    A bundle is dead for ``2 * restart`` times the share of its GPUs that are new to the app: the
    restart at its start, and the one that it will bring about when the lease ends; but for no more
    than half a lease. Where restarts take longer than leases, newcomers could not bid otherwise.

    Args:
        table: The agent's bids.
        app: The app.
        view: The round.
        restart_s: Seconds of a restart, for apps that do not tell.
        fair: When the app would be done with its fair share all along, which makes its T_id,
            and what share it has until then.
    """
    told_s, t_ideal = app.report.t_ideal_s, fair.finish_s - app.joined_s
    if not (0 < told_s < math.inf and 0 < t_ideal < math.inf):
        return table
    elapsed = app.report.elapsed_s
    elapsed = view.now_s - app.joined_s if elapsed is None else elapsed
    # What the app's own r charges for moving is taken out again: dead time has it.
    charged = max((job.restart_s for job in app.report.jobs), default=0.0)
    rows = []
    for row in table.rows:
        new = row.size - (row.pinned & app.expiring).size
        left = row.r * told_s - elapsed - charged * new / row.size
        dead = 2 * (charged or restart_s) * new / (app.kept.size + row.size)
        dead = min(dead, view.lease_s / 2)
        rows.append((row, max(SHORTEST_S, left), dead))
    left_now = max(SHORTEST_S, table.r_nothing * told_s - elapsed)
    fair_s = _fair_s(app, fair.share, [(row, left) for row, left, _ in rows], left_now)
    if math.isinf(fair_s):
        return table
    terms = _Terms(max(0.0, elapsed), t_ideal, view.lease_s, fair_s)
    nothing = terms.r(left_now, 0.0)
    restated = [replace(row, r=terms.r(left, dead)) for row, left, dead in rows]
    return BidTable(table.app, nothing, tuple(row for row in restated if row.r < nothing))


def _fair_s(
    app: AppView, share: float, rows: Sequence[tuple[BidRow, float]], left_now: float
) -> float:
    """How long the rest would take on a share; infinite when the table does not tell."""
    best: dict[int, float] = {app.kept.size: left_now} if app.kept else {}
    for row, left in rows:
        size = app.kept.size + row.size
        best[size] = min(left, best.get(size, left))
    sizes = sorted(size for size, left in best.items() if left < math.inf)
    if not sizes:
        return math.inf
    share = min(share, float(app.report.wants))
    at = bisect.bisect_left(sizes, share)
    if at == 0 or at == len(sizes):
        size = sizes[min(at, len(sizes) - 1)]
        return best[size] * max(1.0, size / share)
    low, high = sizes[at - 1], sizes[at]
    part = (share - low) / (high - low)
    return 1 / ((1 - part) / best[low] + part / best[high])


def told(app: AppView, view: RoundView) -> Forecast:
    """The T_id that the app itself tells, and R / N as its share."""
    return Forecast(app.joined_s + app.report.t_ideal_s, fair_share(app, view))


def fair_share(app: AppView, view: RoundView) -> float:
    """R / N: the GPUs that an app would have alone on its share of the cluster; not 0."""
    return max(1e-9, view.cluster.gpus * app.weight / max(1.0, app.n_avg))


def fair_r(app: AppView, view: RoundView) -> float:
    """r of an app that has its fair share from now on: 1 plus how far it is behind, over T_id.

    It has lived ``elapsed`` and has been given what a fair share gives in ``attained / share``;
    the difference is what it will be late. The share counts no further than the app could use:
    its demand now, or the mean that it has held when that is more (its demand was greater once).
    """
    t_ideal, elapsed = app.report.t_ideal_s, view.now_s - app.joined_s
    if not t_ideal > 0 or elapsed <= 0:
        return 1.0
    usable = max(float(app.report.wants), app.attained_gpu_s / elapsed, 1e-9)
    fair_s = app.attained_gpu_s / min(fair_share(app, view), usable)
    return max(LEAST_R, 1 + (elapsed - fair_s) / t_ideal)
