"""``CurveStopping`` in a real Tune run, on leased GPUs."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ray import tune

from themis_ray import ThemisScheduler
from themis_ray.searchers.curve_stopping import CurveStopping

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def curve_trainable() -> type[tune.Trainable]:
    """Made in a function, so that it travels to the workers by value: they lack this module."""

    class Curve(tune.Trainable):
        """Rises to ``top``; its state is how many iterations it has done."""

        def setup(self, config: dict[str, Any]) -> None:
            self.done_steps = 0

        def step(self) -> dict[str, Any]:
            self.done_steps += 1
            t = self.done_steps
            return {"acc": self.config["top"] * (1 - math.exp(-t / 6)) + 0.003 * math.sin(7 * t)}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            Path(checkpoint_dir, "steps").write_text(str(self.done_steps))

        def load_checkpoint(self, checkpoint: str) -> None:
            self.done_steps = int(Path(checkpoint, "steps").read_text())

    return Curve


def test_hopeless_trials_are_stopped(arbiter: Callable[..., Any], tmp_path: Path) -> None:
    arbiter()
    base = CurveStopping(max_t=40, limits=(0, 1), target=0.8, end_at_target=False)
    analysis = tune.run(
        curve_trainable(),
        config={"top": tune.grid_search([0.9, 0.2, 0.3])},
        resources_per_trial={"cpu": 0.5, "gpu": 1},
        metric="acc",
        mode="max",
        scheduler=ThemisScheduler(base, app="curves"),
        storage_path=str(tmp_path),
        verbose=0,
    )
    done = {t.config["top"]: t.last_result["training_iteration"] for t in analysis.trials}
    assert done[0.9] == 40
    assert done[0.2] < 40
    assert done[0.3] < 40
    assert len(base.stopped) == 2
    assert base.verdict(analysis.best_trial.trial_id).chance == 1.0
