"""Small trainables with curves that are the same in every run."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from ray import tune


class Counting(tune.Trainable):
    """Reports ``index * step``; saves its step."""

    def setup(self, config: dict[str, Any]) -> None:
        self.steps = 0

    def step(self) -> dict[str, Any]:
        time.sleep(self.config.get("step_s", 0.1))
        self.steps += 1
        return {"score": float(self.config["index"] * self.steps), "steps": self.steps}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "steps").write_text(str(self.steps))

    def load_checkpoint(self, checkpoint: str) -> None:
        self.steps = int(Path(checkpoint, "steps").read_text())


class Unsaved(tune.Trainable):
    """Saves nothing."""

    def setup(self, config: dict[str, Any]) -> None:
        self.steps = 0

    def step(self) -> dict[str, Any]:
        time.sleep(0.2)
        self.steps += 1
        return {"score": 1.0, "steps": self.steps}


def counting_function(config: dict[str, Any]) -> None:
    """The same as a function, with a checkpoint at each report."""
    step = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            step = int(Path(folder, "steps").read_text())
    while step < config["steps"]:
        time.sleep(config.get("step_s", 0.1))
        step += 1
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "steps").write_text(str(step))
            tune.report(
                {"score": float(config["index"] * step), "steps": step},
                checkpoint=tune.Checkpoint.from_directory(folder),
            )
