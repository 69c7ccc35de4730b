"""What the store writes, held to MLflow's own limits."""

from __future__ import annotations

import pytest

from tests.reporting.mlflow_trials import (
    MLFLOW_WARNINGS,
    runs,
)
from themis_ray.reporting.mlflow_runs import PARENT, Points, RunSpec, RunStore, metric_key

pytestmark = MLFLOW_WARNINGS


@pytest.mark.parametrize(
    ("name", "key"),
    [("a/b", "a/b"), ("loss (val)", "loss _val_"), ("/é", "_"), ("x" * 300, "x" * 250)],
)
def test_names_that_mlflow_refuses_are_mended(name: str, key: str) -> None:
    assert metric_key(name) == key


def test_many_params_and_long_values_fit_mlflows_limits(uri: str) -> None:
    store = RunStore(uri, "themis")
    store.open(RunSpec(PARENT, "a", {"themis.app": "a", "themis.run": "r"}))
    params = {f"p{i}": "v" * 7000 for i in range(120)}
    store.open(RunSpec("t", "t", {}, params))
    store.log("t", [Points("t", {f"m{i}": 1.0 for i in range(1500)}, 1, 0)])
    _, (child,) = runs(uri)
    assert len(child.data.params) == 120
    assert len(child.data.metrics) == 1500
