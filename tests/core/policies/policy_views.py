"""Rounds made by hand."""

import math

from themis_ray.core.bids import BidRow, BidTable
from themis_ray.core.cluster import NOTHING, Allocation, Cluster, Machine
from themis_ray.core.events import AppReport, JobReport
from themis_ray.core.policies.base import AppView, RoundView

NOW_S = 1000.0


def job(gpus=1, *, least=None, left=100.0, iter_s=1.0, name="j", **more):
    """A rigid job of ``gpus`` GPUs, or an elastic one from ``least``; more fields of the report."""
    return JobReport(name, left, iter_s, gpus if least is None else least, gpus, **more)


def app(
    name,
    *jobs,
    joined=0.0,
    r=math.inf,
    t_ideal=1000.0,
    wants=None,
    weight=1.0,
    n_avg=1.0,
    answered=True,
    kept=NOTHING,
    expiring=NOTHING,
    attained=0.0,
    pinned=NOTHING,
    elapsed=None,
    phases=(),
    kept_until=math.inf,
):
    wants = sum(j.max_gpus for j in jobs) if wants is None else wants
    gang = min((j.min_gpus for j in jobs), default=1)
    report = AppReport(r, r * t_ideal, t_ideal, wants, gang, jobs, pinned, elapsed, phases=phases)
    return AppView(
        name,
        weight,
        joined,
        n_avg,
        report,
        answered,
        _gpus(kept),
        _gpus(expiring),
        attained,
        kept_until,
    )


def round_of(machines, *apps, pool=None, now=NOW_S, memory=None, round_id=1, lease=600.0):
    """A round on machines such as ``{"m0": 4}`` or ``[Machine(...)]``; all GPUs are put up."""
    if isinstance(machines, dict):
        machines = [Machine(m, gpus) for m, gpus in machines.items()]
    cluster = Cluster(tuple(machines))
    pool = cluster.capacity if pool is None else Allocation(pool)
    views = {a.id: a for a in apps}
    return RoundView(now, round_id, cluster, pool, views, lease, memory or {})


def bid_table(view, name, work, most=None, own=False):
    """Honest bids of linear speed: ``work`` GPU-seconds left, GPUs that are kept included.

    With ``own``, the GPUs that the app has now are named.
    """
    a = view.apps[name]
    elapsed, kept = view.now_s - a.joined_s, a.kept.size
    most = a.needs if most is None else most

    def r(gpus):
        return (elapsed + work / gpus) / a.report.t_ideal_s if gpus else math.inf

    rows = []
    for n in range(1, most + 1):
        pinned = Allocation({m: min(n, c) for m, c in a.expiring.items()} if own else {})
        rows.append(BidRow(r(kept + n), pinned, (1,) * (n - pinned.size)))
    return BidTable(name, r(kept), tuple(rows))


def counts(outcome):
    """How many GPUs each app got."""
    return {name: award.gpus.size for name, award in sorted(outcome.awards.items())}


def got(outcome):
    """Which GPUs each app got."""
    return {name: dict(award.gpus) for name, award in sorted(outcome.awards.items())}


def kinds(outcome):
    """The kind of each app's reason."""
    return {name: reason.kind for name, reason in outcome.reasons.items()}


def _gpus(counts):
    return counts if isinstance(counts, Allocation) else Allocation(counts)
