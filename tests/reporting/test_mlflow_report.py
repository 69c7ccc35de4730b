"""The table of finished apps, from a real MLflow store."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from tests.reporting.mlflow_trials import MLFLOW_WARNINGS
from themis_ray.reporting.mlflow_report import app_report

mlflow = pytest.importorskip("mlflow")

pytestmark = MLFLOW_WARNINGS


def test_r_leases_and_the_best_trial(tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    client = MlflowClient(tracking_uri=uri)
    experiment = client.create_experiment("themis")
    parent = client.create_run(experiment, run_name="app", tags={"themis.app": "app"})
    client.log_metric(parent.info.run_id, "themis/r", 0.75)
    for lr, loss, history in (("0.1", 3.0, "a:1 > b:1"), ("0.2", 2.0, "b:2")):
        tags = {
            "themis.app": "app",
            "mlflow.parentRunId": parent.info.run_id,
            "themis.history": history,
        }
        run = client.create_run(experiment, run_name=f"trial-{lr}", tags=tags)
        client.log_param(run.info.run_id, "lr", lr)
        client.log_param(run.info.run_id, "model", "m")
        client.log_metric(run.info.run_id, "loss", loss)
    console = Console(width=120, record=True)
    console.print(app_report(uri, ["app", "absent"]))
    text = console.export_text()
    assert "app: r = 0.75" in text
    assert "lr=0.2 (best)" in text
    assert "lr=0.1 " in text
    assert "a:1 > b:1" in text
    assert "mlflow ui --backend-store-uri" in text
