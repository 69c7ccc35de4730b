"""A rank on another node that hangs: it is ended there, and the training goes on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import workload_jobs as jobs
from ray import tune
from workload_jobs import await_death, call

from tests.ray_process import ray_cluster, starts_arbiter
from themis_ray import ThemisScheduler

pytestmark = [
    pytest.mark.slow,
    # Tune's own use of its own and Ray's deprecated calls; nothing of ours.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[None]:
    """Two raylets with one logical GPU each."""
    with pytest.MonkeyPatch.context() as patch:
        # For the actors, which load the helpers beside this file.
        here = str(Path(__file__).parent)
        patch.setenv("PYTHONPATH", f"{here}:{os.environ.get('PYTHONPATH', '')}")
        with ray_cluster([{"num_cpus": 4, "num_gpus": 1}] * 2):
            yield


def test_a_rank_that_hangs_is_replaced(two_nodes: None, tmp_path: Path) -> None:
    group = ray.util.placement_group([{"CPU": 1, "GPU": 1}] * 2, strategy="STRICT_SPREAD")
    ray.get(group.ready(), timeout=60)
    trial = jobs.start_trial(group)
    losses, weights = call(trial, jobs.train_rich, 2)
    pid_file, folder = tmp_path / "pid", tmp_path / "checkpoints"
    again, their_weights, step = call(
        trial, jobs.train_past_a_loss, jobs.STOP, str(pid_file), str(folder)
    )
    await_death(int(pid_file.read_text()))
    assert step == 2 * jobs.STEPS
    assert again == losses
    assert jobs.same_bits(weights, their_weights)
    ray.kill(trial)
    ray.util.remove_placement_group(group)


@pytest.mark.parametrize(
    ("max_restarts", "failures"), [pytest.param(3, 0, marks=pytest.mark.long), (0, 1)]
)
def test_the_trial_goes_on(
    two_nodes: None, tmp_path: Path, max_restarts: int, failures: int
) -> None:
    """In the same lease, or from its checkpoint by Tune's own retry."""
    pid_file = tmp_path / "pid"
    config = {"pid_file": str(pid_file), "max_restarts": max_restarts}
    with starts_arbiter(lease_s=120.0) as start:
        start()
        analysis = tune.run(
            jobs.hang_once,
            config=config,
            resources_per_trial={"cpu": 1, "gpu": 1},
            scheduler=ThemisScheduler(
                app=f"hangs-{failures}", min_gpus_per_trial=2, max_gpus_per_trial=2
            ),
            max_failures=1,
            storage_path=str(tmp_path / "results"),
            verbose=0,
        )
        await_death(int(pid_file.read_text()))
    [trial] = analysis.trials
    last: dict[str, Any] = trial.last_result
    assert trial.num_failures == failures
    assert last["train_step"] == 2 * jobs.STEPS
    assert last["themis/placement"].startswith("1+1")
    with jobs.make_trainer() as alone:
        alone.run(jobs.STEPS)
        assert last["loss"] == pytest.approx(alone.run(jobs.STEPS), rel=1e-9)
