"""What must hold in any run: work is conserved, everything ends, no GPU is used twice."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sim_worlds import app, cluster, job, simulate

from themis_ray.core.policies import POLICIES
from themis_ray.core.settings import ArbiterConfig
from themis_ray.sim.cluster_file import MoveCost, SimCluster
from themis_ray.sim.jobs import TraceApp
from themis_ray.sim.records import AppRecord, RunResult
from themis_ray.sim.tuners import plan_of

CLUSTERS = (
    cluster(4),
    cluster(2, 2, 1, rack=1.3),
    cluster(4, 4, slots=2, racks=2, machine=1.1, cluster=1.6),
)
TUNERS = ("single", "successive_halving", "curve_stopping")


@st.composite
def jobs(draw: st.DrawFn) -> object:
    most = draw(st.integers(1, 4))
    least = draw(st.integers(1, most))
    return job(draw(st.integers(1, 3000)), most, least, model=draw(st.sampled_from(["m", "other"])))


@st.composite
def workloads(draw: st.DrawFn) -> list[TraceApp]:
    return [
        app(
            f"a{i}",
            *draw(st.lists(jobs(), min_size=1, max_size=4)),
            at=draw(st.sampled_from([0, 0, 7, 300, 1000])),
            tuner=draw(st.sampled_from(TUNERS)),
            weight=draw(st.sampled_from([1, 1, 2])),
        )
        for i in range(draw(st.integers(1, 4)))
    ]


def check_run(
    sim: SimCluster, apps: list[TraceApp], result: RunResult, done: dict[str, AppRecord]
) -> None:
    assert sorted(done) == sorted(a.id for a in apps)
    for a in apps:
        own = [stay for stay in result.stays if stay.app == a.id]
        given_gpu_s = sum(stay.size * (stay.end_s - stay.begin_s) for stay in own)
        assert done[a.id].gpu_s == pytest.approx(given_gpu_s)
        # Each GPU-second at S does 1/S of work at most, and the work is done.
        work = math.fsum(
            steps * a.jobs[i].serial_iter_s for p in plan_of(a, 0) for i, steps in p.runs
        )
        usable = sum(stay.size * (stay.end_s - stay.begin_s) / stay.s for stay in own)
        assert usable >= work * (1 - 1e-9)
        assert done[a.id].finish_s == pytest.approx(max(stay.end_s for stay in own))
        for stay in own:
            spec = next(j for j in a.jobs if j.id == stay.job)
            assert spec.min_gpus <= stay.size <= spec.max_gpus
    in_use: Counter[str] = Counter()
    moves = [(s.end_s, 0, s) for s in result.stays] + [(s.begin_s, 1, s) for s in result.stays]
    for _, begins, stay in sorted(moves, key=lambda move: move[:2]):
        for machine, count in stay.gpus.items():
            in_use[machine] += count if begins else -count
            assert in_use[machine] <= sim.cluster.by_id[machine].gpus


@settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(
    workloads(),
    st.sampled_from(CLUSTERS),
    st.sampled_from(["themis", "themis-paper", "srtf", "tiresias-l", "drf", "yarn-cs", "gandiva"]),
    st.sampled_from([MoveCost(0, 0), MoveCost(10, 35), MoveCost(40, 100)]),
    st.sampled_from([60.0, 600.0]),
)
def test_any_run_conserves_work_and_ends(
    apps: list[TraceApp], sim: SimCluster, policy: str, move: MoveCost, lease_s: float
) -> None:
    arbiter = ArbiterConfig(lease_s=lease_s, notice_s=5, grace_s=10, min_lease_s=lease_s / 10)
    result, done = simulate(sim, apps, policy, move=move, arbiter=arbiter)
    check_run(sim, apps, result, done)


MIXED = [
    app("a", job(4000, 4, 1), job(900, 2)),
    app("b", *[job(1500, 2, 1) for _ in range(4)], tuner="successive_halving", at=5),
    app("c", job(2000, 4), at=300, weight=2),
    app("d", *[job(600) for _ in range(3)], tuner="curve_stopping", at=700),
]


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_runs_a_mixed_workload_twice_alike(policy: str) -> None:
    arbiter = ArbiterConfig(lease_s=300, notice_s=10, grace_s=10)
    sim = CLUSTERS[2]
    first, done = simulate(sim, MIXED, policy, move=MoveCost(5, 20), arbiter=arbiter)
    again, _ = simulate(sim, MIXED, policy, move=MoveCost(5, 20), arbiter=arbiter)
    check_run(sim, MIXED, first, done)
    assert first == again


def test_a_liar_gets_another_result_and_an_honest_error_hurts_nobody_much() -> None:
    from themis_ray.core.policies import make_policy
    from themis_ray.sim.driver import Simulation
    from themis_ray.sim.jobs import Trace
    from themis_ray.sim.settings import SimConfig

    def jct(config: SimConfig) -> dict[str, float]:
        trace = Trace.of("t", MIXED)
        result = Simulation(CLUSTERS[2], trace, make_policy("srtf"), config).run()
        return {record.id: record.jct_s for record in result.apps}

    honest = jct(SimConfig())
    assert jct(SimConfig(lies={"a": 0.1}))["a"] <= honest["a"]
    wrong = jct(replace(SimConfig(), error=0.2))
    assert sorted(wrong) == sorted(honest)
