"""Small clusters and traces for the simulator's tests."""

from __future__ import annotations

from collections.abc import Sequence

from themis_ray.core.arbiter import Arbiter
from themis_ray.core.policies import make_policy
from themis_ray.core.settings import ArbiterConfig
from themis_ray.sim.cluster_file import MoveCost, SimCluster, parse_cluster
from themis_ray.sim.driver import Simulation
from themis_ray.sim.jobs import Trace, TraceApp, TraceJob, Tuner
from themis_ray.sim.records import AppRecord, RunResult
from themis_ray.sim.settings import Failure, SimConfig
from themis_ray.testing.invariants import check_arbiter

FREE = MoveCost(0.0, 0.0)
SMALL_NOTICE = ArbiterConfig(lease_s=600.0, notice_s=0.001, grace_s=10.0, min_lease_s=60.0)


def cluster(*gpus: int, slots: int = 1, racks: int = 1, **model: float) -> SimCluster:
    """Machines of so many GPUs; keyword arguments are S by level of the model ``m``."""
    machines = [
        {"count": 1, "gpus": g, "slots": slots, "rack": f"r{i * racks // len(gpus)}"}
        for i, g in enumerate(gpus)
    ]
    return parse_cluster({"name": "c", "machines": machines, "models": {"m": model}}, "c", "c")


def job(
    work_gpu_s: float, most: int = 1, least: int | None = None, name: str = "0", model: str = "m"
) -> TraceJob:
    """A job with iterations of one GPU-second; rigid unless ``least`` is given."""
    return TraceJob(name, model, most, work_gpu_s, 1.0, most if least is None else least)


def app(
    name: str, *jobs: TraceJob, at: float = 0.0, tuner: Tuner = "single", weight: float = 1.0
) -> TraceApp:
    """An app; its jobs are numbered."""
    numbered = [
        TraceJob(
            str(i), j.model, j.max_gpus, j.iterations, j.serial_iter_s, j.min_gpus, j.final_loss
        )
        for i, j in enumerate(jobs)
    ]
    return TraceApp(name, at, tuner, tuple(numbered), weight)


def simulate(
    sim: SimCluster,
    apps: Sequence[TraceApp],
    policy: str = "themis-paper",
    *,
    move: MoveCost = FREE,
    arbiter: ArbiterConfig = SMALL_NOTICE,
    failures: tuple[Failure, ...] = (),
    checkpoint_every_s: float = 600.0,
    **options: object,
) -> tuple[RunResult, dict[str, AppRecord]]:
    """Run apps with the arbiter's books checked after every event."""
    config = SimConfig(
        arbiter=arbiter,
        move=move,
        failures=failures,
        checkpoint_every_s=checkpoint_every_s,
        record=True,
    )
    run = Simulation(
        sim, Trace.of("t", list(apps)), make_policy(policy, **options), config, check_arbiter
    )
    result = run.run()
    left_over(run.arbiter)
    return result, {record.id: record for record in result.apps}


def left_over(arbiter: Arbiter) -> None:
    """Nothing is held once everybody has left."""
    assert not arbiter.state.apps
