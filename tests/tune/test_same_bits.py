"""A ResNet interrupted by the ends of its leases ends with the bits of an undisturbed one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ray import tune

from tests.rival import Rival
from themis_ray import ThemisScheduler

pytest.importorskip("torch")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

CONFIG = {"model": "resnet18", "global_batch": 8, "eval_examples": 4, "lr": 0.05, "num_threads": 1}
PAUSES = 2


class Ends(tune.Stopper):
    """Ends the trial some steps after its last interruption, however quick the machine is."""

    def __init__(self) -> None:
        self.near = False

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return self.near

    def stop_all(self) -> bool:
        return False


class TakesTurns(tune.Callback):
    """Twice, when the trial has made some progress, a rival takes all GPUs for a moment."""

    def __init__(self, rival: Rival, ends: Ends) -> None:
        self.rival, self.ends = rival, ends
        self.reports = self.paused = 0

    def on_trial_result(self, **info: Any) -> None:
        self.reports += 1
        if self.reports == 3 and self.paused < PAUSES:
            self.rival.want(4)
        elif self.reports == 3:
            self.ends.near = True

    def on_step_end(self, **info: Any) -> None:
        if self.rival.wants and self.rival.held == 4:
            self.paused += 1
            self.reports = 0
            self.rival.want(0)
            self.rival.wait_held(0)


@pytest.mark.long
def test_the_weights_are_the_same(arbiter: Callable[..., Any], tmp_path: Path) -> None:
    import torch

    from themis_ray.workloads import ImageClassifierTrainable
    from themis_ray.workloads.checkpoint import load_checkpoint
    from themis_ray.workloads.trainable import ClassifierJob

    arbiter(lease_s=5, min_bidders=1)
    rival, ends = Rival(), Ends()
    turns = TakesTurns(rival, ends)
    analysis = tune.run(
        ImageClassifierTrainable,
        config=CONFIG,
        stop=ends,
        resources_per_trial={"cpu": 0.5, "gpu": 1},
        scheduler=ThemisScheduler(app="resnet"),
        callbacks=[turns],
        checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True),
        storage_path=str(tmp_path),
        verbose=0,
    )
    rival.close()
    [trial] = analysis.trials
    assert turns.paused == PAUSES
    assert trial.num_failures == 0
    with ClassifierJob(CONFIG) as job:
        for _ in range(trial.last_result["training_iteration"]):
            job.advance()
        expected = {k: v.clone() for k, v in job.trainer.model.state_dict().items()}
    state = load_checkpoint(trial.checkpoint.path).state
    [weights] = [v for v in state.values() if isinstance(v, dict) and set(v) == set(expected)]
    for name, value in expected.items():
        assert torch.equal(weights[name], value), name
