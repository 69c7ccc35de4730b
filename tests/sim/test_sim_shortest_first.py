"""SRTF, SRSF and smallest first against an independent schedule of rigid jobs without any cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_worlds import app, cluster, job, simulate

from themis_ray.sim.cluster_file import MoveCost

GPUS = 4


@dataclass
class Job:
    name: str
    arrival_s: float
    gpus: int
    left_s: float
    runs: bool = False


KEYS: dict[str, Callable[[Job], float]] = {
    "srtf": lambda j: j.left_s,
    "srsf": lambda j: j.left_s * j.gpus,
    "sf": lambda j: float(j.gpus),
}


def schedule(jobs: list[Job], key: Callable[[Job], float]) -> dict[str, float]:
    """When each job ends: at each arrival and end, in order, skipping who is too big."""
    ends: dict[str, float] = {}
    to_come, here, now = list(jobs), list[Job](), 0.0
    while to_come or here:
        times = [j.arrival_s for j in to_come[:1]] + [now + j.left_s for j in here if j.runs]
        for j in here:
            j.left_s -= (min(times) - now) * j.runs
        now = min(times)
        ends |= {j.name: now for j in here if j.left_s < 1e-9}
        here = [j for j in here if j.left_s >= 1e-9]
        while to_come and to_come[0].arrival_s <= now:
            here.append(to_come.pop(0))
        free = GPUS
        for j in sorted(here, key=lambda j: (key(j), j.arrival_s)):
            j.runs = j.gpus <= free
            free -= j.gpus * j.runs
    return ends


@pytest.mark.parametrize("policy", sorted(KEYS))
@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 60), st.integers(1, GPUS), st.integers(1, 40)),
        min_size=2,
        max_size=9,
    )
)
def test_jobs_end_when_the_schedule_says(policy: str, drawn: list[tuple[int, int, int]]) -> None:
    jobs, now = [], 0.0
    for i, (gap, gpus, length) in enumerate(drawn):
        # Lengths and gaps of which no sums are equal: ties are not what this is about.
        now += gap + 0.0173 * (i + 1)
        jobs.append(Job(f"j{i}", now, gpus, length * 7 + 0.0119 * (i + 1) ** 2))
    apps = [app(j.name, job(j.left_s * j.gpus, j.gpus), at=j.arrival_s) for j in jobs]
    _, done = simulate(cluster(GPUS), apps, policy)
    expected = schedule(jobs, KEYS[policy])
    # A notice of a millisecond, and rounds a second apart.
    assert {n: r.finish_s for n, r in done.items()} == pytest.approx(expected, abs=2 * len(jobs))


@pytest.mark.parametrize("policy", ["srtf", "srsf"])
def test_a_gang_waits_for_the_gpus_that_its_app_has_won(policy: str) -> None:
    """One GPU is free at once, the other is left by a job of which notice has been given."""
    apps = [
        app("long", job(1000), at=0),
        app("first", job(30), at=0),
        app("gang", job(200, 2), at=20),
    ]
    _, done = simulate(cluster(2), apps, policy)
    assert done["gang"].finish_s == pytest.approx(130, abs=1)
    assert done["long"].preemptions == 1


def test_a_start_counts_as_time_left() -> None:
    """A shorter job does not stop the one that runs for less than its start costs."""
    apps = [app("a", job(100), at=0), app("b", job(60), at=10)]
    _, done = simulate(cluster(1), apps, "srtf", move=MoveCost(10, 35))
    assert done["a"].finish_s == pytest.approx(135)
    assert done["a"].preemptions == 0
