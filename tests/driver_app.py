"""A data scientist's driver for tests: one ``tune.run`` under ``ThemisScheduler``.

Called with one JSON document: ``app``, ``folder``, ``trials``, ``steps``, ``step_s``, and
optionally ``kind`` (class, function, unsaved), ``base`` (asha, hyperband, median), ``scheduler``
(arguments of ThemisScheduler), ``mlflow`` (a tracking URI), ``checkpoint_every``, ``cpu``.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler, HyperBandScheduler, MedianStoppingRule

from themis_ray import ThemisMLflowCallback, ThemisScheduler


def log_step(config: dict[str, Any], step: int) -> None:
    """One line for each step, written before it is reported."""
    group = ray.util.get_current_placement_group()
    entry = {
        "trial": config["index"],
        "step": step,
        "node": ray.get_runtime_context().get_node_id(),
        "gpus": group.bundle_count if group else 0,
        "group": group.id.hex() if group else "",
        "pid": os.getpid(),
        "time": time.time(),
    }
    with Path(config["folder"], f"steps-{config['index']}.jsonl").open("a") as file:
        file.write(json.dumps(entry) + "\n")


def score(config: dict[str, Any], step: int) -> float:
    """A curve that is the same in every run: better trials have a greater index."""
    return float(config["index"] * step)


class ClassTrial(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.done_steps = 0

    def step(self) -> dict[str, Any]:
        time.sleep(self.config["step_s"])
        self.done_steps += 1
        log_step(self.config, self.done_steps)
        return {"score": score(self.config, self.done_steps), "app": self.config["app"]}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "steps").write_text(str(self.done_steps))

    def load_checkpoint(self, checkpoint: str) -> None:
        self.done_steps = int(Path(checkpoint, "steps").read_text())


def function_trial(config: dict[str, Any]) -> None:
    step = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            step = int(Path(folder, "steps").read_text())
    while step < config["steps"]:
        time.sleep(config["step_s"])
        step += 1
        log_step(config, step)
        metrics = {"score": score(config, step), "app": config["app"]}
        every = config["checkpoint_every"]
        if every and step % every == 0:
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "steps").write_text(str(step))
                tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(folder))
        else:
            tune.report(metrics)


BASES = {
    "asha": lambda o: ASHAScheduler(max_t=o["steps"], grace_period=3, reduction_factor=3),
    "hyperband": lambda o: HyperBandScheduler(max_t=o["steps"], reduction_factor=3),
    "median": lambda o: MedianStoppingRule(time_attr="training_iteration", grace_period=3),
}


def main(options: dict[str, Any]) -> None:
    ray.init(log_to_driver=False)
    trainable = ClassTrial if options.get("kind", "class") == "class" else function_trial
    base = BASES[options["base"]](options) if options.get("base") else None
    config = {
        "index": tune.grid_search(list(range(options["trials"]))),
        "step_s": options["step_s"],
        "steps": options["steps"],
        "app": options["app"],
        "folder": options["folder"],
        "checkpoint_every": options.get("checkpoint_every", 1),
    }
    started = time.time()
    callbacks = []
    if options.get("mlflow"):
        callbacks.append(ThemisMLflowCallback(options["mlflow"]))
    analysis = tune.run(
        trainable,
        name=options["app"],
        config=config,
        metric="score",
        mode="max",
        stop={"training_iteration": options["steps"]},
        resources_per_trial={"cpu": options.get("cpu", 0.1), "gpu": 1},
        scheduler=ThemisScheduler(base, app=options["app"], **options.get("scheduler", {})),
        callbacks=callbacks,
        storage_path=str(Path(options["folder"], "storage")),
        verbose=0,
    )
    document = {
        "seconds": time.time() - started,
        "trials": [
            {
                "index": trial.config["index"],
                "id": trial.trial_id,
                "status": trial.status,
                "iterations": trial.last_result.get("training_iteration", 0),
                "failures": trial.num_failures,
                "app": trial.last_result.get("app"),
                "r": trial.last_result.get("themis/r"),
            }
            for trial in analysis.trials
        ],
    }
    Path(options["folder"], "result.json").write_text(json.dumps(document))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
