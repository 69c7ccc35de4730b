"""What a simulated app tells of its work when its tuner stops jobs early."""

from __future__ import annotations

import pytest
from sim_worlds import FREE, SMALL_NOTICE, app, cluster, job

from themis_ray.core.arbiter import Arbiter
from themis_ray.core.fairness import PhaseWork
from themis_ray.core.policies import make_policy
from themis_ray.sim.driver import Simulation
from themis_ray.sim.jobs import Trace, TraceApp
from themis_ray.sim.settings import SimConfig
from themis_ray.sim.tuners import plan_of


def told(apps: list[TraceApp], gpus: int) -> list[tuple[tuple[PhaseWork, ...], float]]:
    """The phases and T_id that the app ``a`` reports, each once, in order."""
    seen: list[tuple[tuple[PhaseWork, ...], float]] = []

    def look(arbiter: Arbiter, *_: object) -> None:
        known = arbiter.state.apps.get("a")
        if known is not None:
            report = known.report
            if not seen or seen[-1] != (report.phases, report.t_ideal_s):
                seen.append((report.phases, report.t_ideal_s))

    config = SimConfig(arbiter=SMALL_NOTICE, move=FREE)
    Simulation(cluster(gpus), Trace.of("t", apps), make_policy("drf"), config, look).run()
    return seen


def test_the_work_of_a_stopped_job_is_taken_back() -> None:
    """As a live AGENT does, whose search then has fewer iterations to come."""
    worse = app("a", job(10_000), job(10_000), tuner="curve_stopping")
    phase, *_ = plan_of(worse, 0)
    done = sorted(iterations for _, iterations in phase.runs)
    assert done[0] < done[1] == 10_000, "choose losses of which one cannot win"
    (first, first_s), *_, (last, last_s) = told([worse], gpus=2)
    assert first == (PhaseWork(20_000.0, 2.0),)
    assert last == (PhaseWork(sum(done), sum(done) / 10_000),)
    assert last_s == pytest.approx(first_s * sum(done) / 20_000)


def test_an_app_whose_jobs_all_run_to_their_end_tells_the_same_all_along() -> None:
    both = app("a", job(3000), job(5000))
    assert {phases for phases, _ in told([both], gpus=2)} == {(PhaseWork(8000.0, 1.6),)}
