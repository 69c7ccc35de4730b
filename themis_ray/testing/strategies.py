"""Hypothesis strategies for the core's values. Needs ``hypothesis`` (the ``dev`` extra)."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

from themis_ray.core import events as ev
from themis_ray.core.bids import BidRow, BidTable
from themis_ray.core.cluster import NOTHING, Allocation, Cluster, Level, Machine
from themis_ray.core.events import AppReport, JobReport
from themis_ray.core.fairness import PhaseWork
from themis_ray.core.slowdown import MeasuredSlowdown, Signature

__all__ = [
    "allocations",
    "bid_tables",
    "clusters",
    "events",
    "job_reports",
    "machines",
    "reports",
    "rs",
    "within",
]


@st.composite
def machines(draw: st.DrawFn, most: int = 4, most_gpus: int = 8) -> tuple[Machine, ...]:
    """Machines ``m0``, ``m1``, ... in up to two racks."""
    sizes = draw(st.lists(st.integers(0, most_gpus), min_size=1, max_size=most))
    racks = draw(st.lists(st.sampled_from(["r0", "r1"]), min_size=most, max_size=most))
    slots = draw(st.lists(st.sampled_from([1, 2]), min_size=most, max_size=most))
    return tuple(
        Machine(f"m{i}", gpus, racks[i], slots[i] if gpus % slots[i] == 0 else 1)
        for i, gpus in enumerate(sizes)
    )


def clusters(most: int = 4, most_gpus: int = 8) -> st.SearchStrategy[Cluster]:
    """Small clusters."""
    return machines(most, most_gpus).map(Cluster)


def within(whole: Allocation) -> st.SearchStrategy[Allocation]:
    """Any part of an allocation."""
    return st.fixed_dictionaries({m: st.integers(0, c) for m, c in whole.items()}).map(Allocation)


def allocations(most: int = 4, most_gpus: int = 8) -> st.SearchStrategy[Allocation]:
    """GPUs on machines ``m0``, ``m1``, ..."""
    names = st.sampled_from([f"m{i}" for i in range(most)])
    return st.dictionaries(names, st.integers(0, most_gpus), max_size=most).map(Allocation)


def rs(*, infinite: bool = True) -> st.SearchStrategy[float]:
    """Values of r: positive, perhaps infinite."""
    finite = st.floats(1e-3, 1e3)
    return finite | st.just(math.inf) if infinite else finite


@st.composite
def bid_rows(draw: st.DrawFn, offer: Allocation) -> BidRow:
    """A row that fits into a non-empty offer."""
    pinned = draw(within(offer))
    room = (offer - pinned).size
    largest = max(offer.values())
    parts: list[int] = []
    while room and ((not pinned and not parts) or draw(st.booleans())):
        parts.append(draw(st.integers(1, min(room, largest))))
        room -= parts[-1]
    levels = [Level.RACK, Level.CLUSTER]
    if len(pinned) <= 1:
        levels.append(Level.MACHINE)
    level = draw(st.sampled_from(levels))
    return BidRow(draw(rs()), pinned, tuple(sorted(parts, reverse=True)), level)


@st.composite
def bid_tables(draw: st.DrawFn, app: str, offer: Allocation, most_rows: int = 4) -> BidTable:
    """A table whose rows fit into an offer."""
    rows = draw(st.lists(bid_rows(offer), max_size=most_rows)) if offer else []
    return BidTable(app, draw(rs()), tuple(rows))


@st.composite
def reports(draw: st.DrawFn, most_wants: int = 8, pinned: Allocation = NOTHING) -> AppReport:
    """Reports of apps with jobs of one size."""
    gang = draw(st.sampled_from([1, 1, 2, 4]))
    wants = draw(st.integers(0, most_wants // gang)) * gang
    t_ideal_s = draw(st.floats(1, 1e4))
    r = draw(rs())
    jobs = tuple(
        JobReport(f"j{i}", draw(st.floats(1, 1e3)), 1.0, gang, gang) for i in range(wants // gang)
    )
    notes = tuple(draw(st.lists(st.text(max_size=8), max_size=2)))
    return AppReport(r, r * t_ideal_s, t_ideal_s, wants, gang, jobs, pinned, notes=notes)


@st.composite
def job_reports(draw: st.DrawFn) -> JobReport:
    """Reports of a job with every field set or left out."""
    times = st.floats(0, 1e9)
    min_gpus = draw(st.integers(1, 8))
    return JobReport(
        id=draw(st.text(min_size=1, max_size=8)),
        iterations_left=draw(times | st.just(math.inf)),
        serial_iter_s=draw(times),
        min_gpus=min_gpus,
        max_gpus=min_gpus + draw(st.integers(0, 8)),
        iterations_done=draw(times),
        attained_gpu_s=draw(times),
        model=draw(st.sampled_from(["", "vgg16"])),
        loss_decrease=draw(st.floats(allow_nan=False)),
        held=draw(allocations()),
        started_ago_s=draw(st.none() | times),
        waited_s=draw(times),
        skew=draw(st.none() | st.floats(0, 1)),
        slowdown=tuple(draw(st.lists(st.floats(1, 3), max_size=4))),
        restart_s=draw(times),
        spans=draw(st.booleans()),
    )


@st.composite
def full_reports(draw: st.DrawFn) -> AppReport:
    """Reports of apps with jobs of all sorts."""
    jobs = tuple(draw(st.lists(job_reports(), max_size=3)))
    return AppReport(
        r=draw(rs()),
        t_shared_s=draw(st.floats(allow_nan=False)),
        t_ideal_s=draw(st.floats(allow_nan=False)),
        wants=draw(st.integers(0, 64)),
        gang=draw(st.integers(1, 8)),
        jobs=jobs,
        pinned=draw(allocations()),
        elapsed_s=draw(st.none() | st.floats(0, 1e9)),
        measured=tuple(draw(st.lists(measured_slowdowns(), max_size=2))),
        phases=tuple(draw(st.lists(phase_works(), max_size=3))),
    )


def phase_works() -> st.SearchStrategy[PhaseWork]:
    """What a phase takes."""
    return st.builds(PhaseWork, st.floats(0, 1e9), st.floats(0, 1e3))


def measured_slowdowns() -> st.SearchStrategy[MeasuredSlowdown]:
    """S(G) as some app has measured it."""
    parts = st.lists(st.integers(1, 8), min_size=1, max_size=3)
    signatures = st.builds(Signature, parts.map(tuple), st.sampled_from(Level))
    return st.builds(MeasuredSlowdown, st.sampled_from(["", "vgg16"]), signatures, st.floats(1, 3))


def events(kind: type[Any] | None = None) -> st.SearchStrategy[ev.Event]:
    """Events of the arbiter, of all kinds or of one; they need not fit together."""
    apps, gpus = st.sampled_from(["a", "b", "über/1"]), allocations()
    groups, whys, rounds = st.text(max_size=8), st.text(max_size=20), st.integers(1, 1000)
    held = st.builds(ev.HeldGroup, groups, gpus)
    offer = Allocation({"m0": 4, "m1": 2})
    made: dict[type[Any], st.SearchStrategy[ev.Event]] = {
        ev.ClusterChanged: st.builds(ev.ClusterChanged, machines()),
        ev.AppJoined: st.builds(
            ev.AppJoined,
            apps,
            full_reports(),
            st.floats(0.01, 100),
            st.lists(held, max_size=2).map(tuple),
        ),
        ev.AppLeft: st.builds(ev.AppLeft, apps, whys),
        ev.Reported: st.builds(ev.Reported, apps, full_reports(), st.none() | rounds),
        ev.BidReceived: st.builds(
            ev.BidReceived, rounds, apps.flatmap(lambda app: bid_tables(app, offer))
        ),
        ev.GroupRequested: st.builds(ev.GroupRequested, apps, groups, gpus),
        ev.GroupReleased: st.builds(ev.GroupReleased, apps, groups),
        ev.GpusReturned: st.builds(ev.GpusReturned, apps, gpus),
        ev.GroupReady: st.builds(ev.GroupReady, groups),
        ev.GroupFailed: st.builds(ev.GroupFailed, groups, whys),
        ev.GroupGone: st.builds(ev.GroupGone, groups),
        ev.Tick: st.just(ev.Tick()),
    }
    return st.one_of(list(made.values())) if kind is None else made[kind]
