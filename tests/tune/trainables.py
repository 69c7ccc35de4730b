"""Small trainables with curves that are the same in every run."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from ray import tune

import themis_ray


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


def endless_epochs(config: dict[str, Any]) -> None:
    """Its first epoch ends only with a notice; in the next lease it is done at once."""
    start = tune.get_checkpoint()
    if start is not None:
        with start.as_directory() as folder:
            tune.report({"resumed_with": (Path(folder) / "state").read_text()})
        return
    lease = themis_ray.current_lease()
    assert lease is not None
    before = lease.should_checkpoint()
    while not lease.should_checkpoint():
        time.sleep(0.02)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "state").write_text(f"saved in time, {before} before")
        report = {"left_s": lease.seconds_left}
        tune.report(report, checkpoint=tune.Checkpoint.from_directory(folder))
