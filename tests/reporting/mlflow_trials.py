"""Light stand-ins for Tune's trials, what calls a callback for them, and what MLflow then has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from themis_ray.tune.callback import ThemisMLflowCallback
from themis_ray.tune.metrics import TrialMetrics

# Third-party: MLflow and what it imports still use what newer versions of pydantic, SQLAlchemy and
# Python call deprecated, and leave sqlite connections to the garbage collector.
MLFLOW_WARNINGS = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning"),
]


@dataclass(eq=False)
class Trial:
    """What the callback uses of a Tune trial."""

    trial_id: str
    config: dict[str, Any] = field(default_factory=lambda: {"lr": 0.1, "model": {"depth": 50}})
    experiment_dir_name: str = "sweep"
    status: str = "RUNNING"
    last_result: dict[str, Any] | None = None

    def __str__(self) -> str:
        return f"train_{self.trial_id}"


def client(uri: str) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(uri)


def runs(uri: str) -> tuple[list[Any], list[Any]]:
    """All parents and all children."""
    store = client(uri)
    experiments = [experiment.experiment_id for experiment in store.search_experiments()]
    found = list(store.search_runs(experiments, max_results=1000))
    parents = [run for run in found if "mlflow.parentRunId" not in run.data.tags]
    return parents, [run for run in found if run not in parents]


def history(uri: str, run: Any, metric: str) -> list[tuple[int, float]]:
    points = client(uri).get_metric_history(run.info.run_id, metric)
    return sorted((point.step, point.value) for point in points)


def known(app: str = "vgg", r: float = 0.9, **changes: Any) -> TrialMetrics:
    values: dict[str, Any] = {
        "app": app,
        "policy": "themis-paper",
        "r": r,
        "trial_r": 0.8,
        "t_shared_s": 90.0,
        "t_ideal_s": 100.0,
        "gpus": 2,
        "placement_score": 0.91,
        "lease": "lease-1",
    }
    return TrialMetrics(**{**values, **changes})


def report(
    callback: ThemisMLflowCallback, trials: list[Trial], trial: Trial, step: int, **own: Any
) -> dict[str, Any]:
    result = {"training_iteration": step, "trial_id": trial.trial_id, "pid": 1, **own}
    callback.on_trial_result(iteration=step, trials=trials, trial=trial, result=result)
    trial.last_result = result
    return result


def start(callback: ThemisMLflowCallback, *trials: Trial) -> None:
    for trial in trials:
        callback.on_trial_start(iteration=0, trials=list(trials), trial=trial)


def complete(callback: ThemisMLflowCallback, *trials: Trial) -> None:
    for trial in trials:
        callback.on_trial_complete(iteration=9, trials=list(trials), trial=trial)
        trial.status = "TERMINATED"
