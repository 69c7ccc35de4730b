"""An app of one trial, in a driver of its own: ``lease_app.py APP ITERATIONS``.

Prints, as JSON, what its trial last said of its lease.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ITERATION_S = 0.5
TOLD = ("i", "processes", "gpus", "nodes", "unit", "seconds_left", "asked_s", "cuda")


def train(config: dict[str, Any]) -> None:
    """Multiply matrices, save at each iteration, and report what the lease says."""
    import torch
    from ray import tune

    import themis_ray

    state: dict[str, Any] = {"i": 0, "processes": 0}
    start = tune.get_checkpoint()
    if start is not None:
        with start.as_directory() as folder:
            state = torch.load(Path(folder) / "state.pt", weights_only=True)
    state["processes"] += 1
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.ones(512, 512, device=device)
    while state["i"] < config["iterations"]:
        x = (x @ x).tanh()
        float(x.sum())
        time.sleep(ITERATION_S)
        state["i"] += 1
        lease = themis_ray.current_lease()
        assert lease is not None
        begin = time.perf_counter()
        lease.should_checkpoint()
        report = {
            **state,
            "asked_s": time.perf_counter() - begin,
            "loss": float(x.mean()),
            "gpus": lease.gpus,
            "nodes": len(lease.nodes),
            "unit": lease.unit,
            "seconds_left": lease.seconds_left,
            "cuda": torch.cuda.device_count(),
        }
        with tempfile.TemporaryDirectory() as folder:
            torch.save(state, Path(folder) / "state.pt")
            tune.report(report, checkpoint=tune.Checkpoint.from_directory(folder))


def main(app: str, iterations: int) -> None:
    """Run the app in the cluster that RAY_ADDRESS names."""
    import ray
    from ray import tune

    import themis_ray

    ray.init(log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        analysis = tune.run(
            tune.with_resources(train, {"cpu": 1, "gpu": 1}),
            config={"iterations": iterations},
            scheduler=themis_ray.ThemisScheduler(app=app, iterations_per_trial=iterations),
            storage_path=folder,
            verbose=0,
        )
    (trial,) = analysis.trials
    print(json.dumps({name: trial.last_result[name] for name in TOLD}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
