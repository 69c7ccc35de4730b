from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis_ray.agent.split import growth_saves_s, place, shares_of, staying
from themis_ray.core.cluster import NOTHING, Allocation, Cluster, Level, Machine, total
from themis_ray.core.explain import TrialSpread, TrialTogether
from themis_ray.core.slowdown import Signature, SlowdownTable
from themis_ray.searchers.api import JobInfo
from themis_ray.testing.strategies import allocations


@given(st.lists(allocations(3, 3), max_size=6), allocations(3, 8))
def test_who_stays_fits_and_none_that_is_passed_over_would_have(
    groups: list[Allocation], room: Allocation
) -> None:
    named = [(str(i), a) for i, a in enumerate(groups)]
    keep, idle = staying(named, room)
    kept = total([a for i, a in named if i in keep])
    assert kept + idle == room
    taken = NOTHING
    for name, allocation in named:
        assert (name in keep) == (taken + allocation <= room)
        if name in keep:
            taken = taken + allocation


@given(st.integers(0, 40), st.integers(0, 10), st.integers(1, 4), st.integers(0, 4))
def test_shares(idle: int, waiting: int, smallest: int, more: int) -> None:
    largest = smallest + more
    shares = shares_of(idle, waiting, smallest, largest)
    assert len(shares) == min(waiting, idle // smallest)  # as many trials as possible
    assert all(smallest <= share <= largest for share in shares)
    assert sum(shares) <= idle
    assert max(shares, default=0) - min(shares, default=0) <= 1
    if shares and more:
        assert sum(shares) == min(idle, largest * len(shares))  # nothing idles that could be used


RACKS = {"m0": "r0", "m1": "r1", "m2": "r0", "m3": "r1"}


def signature(allocation: Allocation) -> Signature:
    machines = tuple(Machine(m, 16, RACKS[m]) for m in sorted(RACKS))
    return Signature.of(allocation, Cluster(machines))


def job(name: str, least: int, most: int, work: float = 1.0, apart: float = 1.1) -> JobInfo:
    table = SlowdownTable(
        {Level.SLOT: 1, Level.MACHINE: 1, Level.RACK: apart, Level.CLUSTER: apart}
    )
    return JobInfo(name, work, 1.0, least, most, sensitivity=table)


def placed(jobs: list[JobInfo], idle: Allocation) -> dict[str, Allocation]:
    return place(jobs, idle, signature, RACKS)[0]


@given(
    allocations(4, 8),
    st.lists(
        st.tuples(
            st.sampled_from([(1, 1), (1, 4), (2, 2), (2, 4), (4, 4)]),
            st.floats(1, 100),
            st.floats(1, 3),
        ),
        max_size=6,
    ),
)
def test_placing(idle: Allocation, given: list[tuple[tuple[int, int], float, float]]) -> None:
    jobs = [job(f"t{i}", *limits, work, apart) for i, (limits, work, apart) in enumerate(given)]
    got, reasons = place(jobs, idle, signature, RACKS)
    assert total(list(got.values())) <= idle
    assert set(reasons) <= set(got)
    room = idle.size
    for j in jobs:  # in order, as many as can be
        fits = j.min_gpus <= room
        assert (j.id in got) == fits
        room -= j.min_gpus if fits else 0
    for j in jobs:
        if j.id in got:
            mine = got[j.id]
            assert j.min_gpus <= mine.size <= j.max_gpus
            best = Allocation({max(mine, key=mine.on): max(mine.values())})
            speeds = [a.size / j.sensitivity.s(signature(a)) for a in (mine, best)]
            # None is spread that would be faster on one of its machines, if it may run there.
            assert speeds[0] >= speeds[1] or best.size < j.min_gpus


def test_trials_lie_together_where_they_can() -> None:
    idle = Allocation({"m0": 2, "m1": 4, "m2": 3})
    got = placed([job("a", 1, 4), job("b", 1, 4)], idle)
    assert sorted(len(a) for a in got.values()) == [1, 2]
    assert {a.size for a in got.values()} == {4}


def test_gangs_leave_the_large_gaps() -> None:
    idle = Allocation({"m0": 8, "m1": 2, "m2": 3})
    assert placed([job("a", 2, 2), job("b", 2, 2)], idle) == {
        "a": Allocation({"m1": 2}),
        "b": Allocation({"m2": 2}),
    }


@pytest.mark.parametrize("order", [("calm", "touchy"), ("touchy", "calm")])
def test_the_sensitive_trial_is_not_spread_while_the_other_could_be(order: tuple[str, str]) -> None:
    by_name = {"calm": job("calm", 3, 3, apart=1.0), "touchy": job("touchy", 3, 3, apart=1.4)}
    idle = Allocation({"m0": 4, "m1": 2})
    got, reasons = place([by_name[name] for name in order], idle, signature, RACKS)
    assert got == {"touchy": Allocation({"m0": 3}), "calm": Allocation({"m0": 1, "m1": 2})}
    assert [type(r) for r in reasons.values()] == [TrialSpread]


def test_a_trial_that_is_slower_when_spread_takes_fewer_gpus() -> None:
    """3 GPUs at S = 2 do less than 2 on one machine; the third is left for others."""
    got, reasons = place([job("t", 1, 3, apart=2.0)], Allocation({"m0": 2, "m1": 1}), signature,
                         RACKS)  # fmt: skip
    assert got == {"t": Allocation({"m0": 2})}
    assert isinstance(reasons["t"], TrialTogether)
    assert "m0:2" in str(reasons["t"])


@given(
    st.floats(1, 1e5),
    st.floats(0.5, 8),
    st.floats(1.01, 4),
    st.floats(0.1, 300),
    st.floats(1, 3600),
)
def test_growing_pays_only_if_the_lease_is_long_enough(
    left: float, rate: float, factor: float, restart_s: float, window_s: float
) -> None:
    def saves(restart: float, window: float) -> float:
        return growth_saves_s(left, rate, rate * factor, restart, window)

    assert saves(0, window_s) > 0  # more GPUs for nothing
    assert saves(restart_s, window_s) <= saves(restart_s, 2 * window_s) + 1e-9 * left
    # What is lost is at most the restart; what is won at most what twice the GPUs would bring.
    assert -restart_s - 1e-6 <= saves(restart_s, window_s) <= left / rate * (1 - 1 / factor)
    if window_s <= restart_s:
        assert saves(restart_s, window_s) < 0


def test_growing_by_hand() -> None:
    """600 GPU-s at one GPU; three more after a restart of 20 s, in a lease of 100 s."""
    # It does 80 * 4 = 320 of it, and the other 280 at the old rate: 380 s instead of 600.
    assert growth_saves_s(600, 1, 4, 20, 100) == pytest.approx(220)
    assert growth_saves_s(600, 1, 4, 20, math.inf) == pytest.approx(600 - 170)
    assert growth_saves_s(25, 1, 4, 20, 100) < 0


@pytest.mark.parametrize("waiting", [0, 3])
def test_nothing_to_place(waiting: int) -> None:
    assert placed([job(f"t{i}", 1, 2) for i in range(waiting)], NOTHING) == {}
