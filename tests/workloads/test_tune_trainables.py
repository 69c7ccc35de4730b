"""The trainables in Tune, paused and resumed as the end of a lease does it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ray import tune
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from workload_jobs import assert_nothing_left

from themis_ray.workloads import ImageClassifierTrainable, train_image_classifier

pytestmark = [
    pytest.mark.usefixtures("cluster"),
    # Tune's own use of its own and Ray's deprecated calls; nothing of ours.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
]


class PauseOnce(FIFOScheduler):
    """Pauses each trial at its second report, as a lease's end does."""

    def __init__(self) -> None:
        super().__init__()
        self.reports: list[dict[str, Any]] = []
        self._paused: set[str] = set()

    def on_trial_result(self, controller: Any, trial: Any, result: dict[str, Any]) -> str:
        self.reports.append(result)
        if result["training_iteration"] == 2 and trial.trial_id not in self._paused:
            self._paused.add(trial.trial_id)
            return TrialScheduler.PAUSE
        return TrialScheduler.CONTINUE


@pytest.mark.parametrize(
    ("trainable", "processes"), [(ImageClassifierTrainable, 2), (train_image_classifier, 1)]
)
def test_a_paused_trial_goes_on_where_it_stopped(
    trainable: Any, processes: int, tmp_path: Path
) -> None:
    scheduler = PauseOnce()
    bundles = tune.PlacementGroupFactory([{"CPU": 1, "GPU": 1}] * processes)
    config = {"model": "squeezenet1_1", "global_batch": 6, "steps_per_report": 2, "max_steps": 7}
    analysis = tune.run(
        tune.with_resources(trainable, bundles),
        config=config,
        scheduler=scheduler,
        storage_path=str(tmp_path),
        verbose=0,
    )
    (trial,) = analysis.trials
    assert trial.status == "TERMINATED"
    steps = [report["train_step"] for report in scheduler.reports]
    # Tune does not show a scheduler the report that says "done".
    assert steps in ([2, 4, 6], [2, 4, 6, 7])
    assert len({report["pid"] for report in scheduler.reports}) == 2
    last = trial.last_result
    assert last["train_step"] == 7
    assert last["themis/gpus"] == processes
    assert last["themis/iter_s"] > 0
    assert last["checkpoint_train_step"] >= 4
    assert_nothing_left()
