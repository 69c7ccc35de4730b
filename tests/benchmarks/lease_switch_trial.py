"""One app of the lease-switch benchmark: a driver, and a trial that notes when what happened.

Nothing heavy is imported at the top: the import of PyTorch is one of the things measured.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import ray
from ray import tune

STEPS = 10_000


def note(folder: str, life: str, event: str, **more: Any) -> None:
    """Append an event with the wall-clock time, which all processes of the machine share."""
    line = json.dumps({"life": life, "event": event, "time": time.time(), **more})
    with (Path(folder) / "events.jsonl").open("a") as file:
        file.write(line + "\n")


class Noting(tune.Trainable):  # type: ignore[misc]  # ray is untyped
    """An image classifier that notes each part of a lease's start and end."""

    def setup(self, config: dict[str, Any]) -> None:
        self._folder, self._life = config["folder"], f"{config['app']}-{os.getpid()}"
        note(self._folder, self._life, "setup", pid=os.getpid(), app=config["app"])
        import themis_ray.lease
        from themis_ray.workloads.trainable import ClassifierJob

        note(self._folder, self._life, "imported", warm=config["warm"])
        settings = {"model": config["model"], "global_batch": 8, "eval_examples": 1}
        self._job = ClassifierJob(settings)
        note(self._folder, self._life, "built")
        themis_ray.lease.REFRESH_S = 0.05
        threading.Thread(target=self._watch, daemon=True).start()
        self._stepped = False

    def _watch(self) -> None:
        import themis_ray

        lease = themis_ray.current_lease()
        while lease is not None and not lease.should_checkpoint():
            time.sleep(0.02)
        note(self._folder, self._life, "notice")

    def step(self) -> dict[str, Any]:
        report = self._job.advance()
        if not self._stepped:
            self._stepped = True
            note(self._folder, self._life, "first_step")
        return report

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        note(self._folder, self._life, "save")
        self._job.save(checkpoint_dir)
        note(self._folder, self._life, "saved")

    def load_checkpoint(self, checkpoint: Any) -> None:
        self._job.restore(checkpoint)
        note(self._folder, self._life, "restored")

    def cleanup(self) -> None:
        self._job.close()


class NoteGrants(tune.Callback):  # type: ignore[misc]  # ray is untyped
    """Notes when the placement group of a waiting trial is there."""

    def __init__(self, app: str, folder: str) -> None:
        # Here and not in the thread, where a failure would go unseen.
        from themis_ray.agent.session import _sessions

        self.app, self.folder, self.seen = app, folder, set[str]()
        self._sessions = _sessions

    def setup(self, **info: Any) -> None:
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            time.sleep(0.01)
            mine = self._sessions.get(self.app)
            for name, group in list(mine._waiting.items()) if mine else []:
                if name not in self.seen and ray.wait([group.ready()], timeout=0)[0]:
                    self.seen.add(name)
                    note(self.folder, f"{self.app}-driver", "granted", app=self.app)


def main() -> None:
    """Run one app until it is killed."""
    options = json.loads(sys.argv[1])
    app, folder = options["app"], options["folder"]
    environment = None
    if options["warm"]:
        from themis_ray.workloads import warm_runtime_env

        environment = warm_runtime_env()
    ray.init(address=options["address"], runtime_env=environment, log_to_driver=False)
    from themis_ray import ThemisScheduler

    tune.run(
        Noting,
        name=app,
        config={key: options[key] for key in ("app", "folder", "model", "warm")},
        resources_per_trial={"cpu": 1, "gpu": 1},
        stop={"training_iteration": STEPS},
        scheduler=ThemisScheduler(app=app),
        callbacks=[NoteGrants(app, folder)],
        storage_path=str(Path(folder) / "results"),
        checkpoint_config=tune.CheckpointConfig(num_to_keep=2),
        verbose=0,
    )


if __name__ == "__main__":
    # Pickled by name, so that a trial's process need not import this as __main__.
    from lease_switch_trial import main as run

    run()
