"""A database with MLflow's tables, made once."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from themis_ray.tune import metrics


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with MLflow's tables: to make them takes seconds, to copy them does not."""
    file = tmp_path_factory.mktemp("mlflow") / "empty.db"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from mlflow import MlflowClient; "
            "MlflowClient(sys.argv[1]).search_experiments()",
            f"sqlite:///{file}",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return file


@pytest.fixture
def uri(empty_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    yield f"sqlite:///{tmp_path / 'mlflow.db'}"
    metrics._latest.clear()
