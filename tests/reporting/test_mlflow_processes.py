"""The callback where others have a part: Tune itself, a second driver, a server that goes away."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ray_process import small_ray
from tests.reporting.mlflow_trials import (
    MLFLOW_WARNINGS,
    Trial,
    complete,
    history,
    known,
    report,
    runs,
    start,
)
from themis_ray.tune import metrics
from themis_ray.tune.callback import ThemisMLflowCallback
from themis_ray.tune.metrics import TrialMetrics

pytestmark = MLFLOW_WARNINGS


def test_a_driver_that_stops_early_leaves_no_run_open(uri: str, tmp_path: Path) -> None:
    code = (
        "import sys; from themis_ray.tune.callback import ThemisMLflowCallback\n"
        "from types import SimpleNamespace as N\n"
        "callback = ThemisMLflowCallback(sys.argv[1], flush_timeout_s=200)\n"
        "trial = N(trial_id='t1', config={}, experiment_dir_name='e', last_result=None)\n"
        "callback.on_trial_start(0, [trial], trial)\n"
        "callback.on_trial_result(0, [trial], trial, {'training_iteration': 1, 'loss': 1.0})\n"
        "sys.exit(3)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, uri], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 3, done.stderr
    (parent,), (child,) = runs(uri)
    assert (parent.info.status, child.info.status) == ("KILLED", "KILLED")
    assert child.data.metrics == {"loss": 1.0}


# -- Tune ------------------------------------------------------------------------------------------


def _train(config: dict[str, Any]) -> None:
    from ray import tune

    for step in range(3):
        tune.report({"loss": config["lr"] * (step + 1)})


def _publish_for(trial_id: str) -> TrialMetrics:
    return known(app="from-scheduler", lease=f"lease-of-{trial_id}")


@pytest.fixture
def local_ray() -> Iterator[None]:
    with small_ray(num_gpus=0):
        yield


# Third-party: Ray and its loggers leave sockets and subprocesses to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tune_run(
    local_ray: None, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray import tune

    # A callback that the user adds beside Tune's own loggers, one of which writes progress.csv.
    monkeypatch.delenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS")
    monkeypatch.setattr(metrics, "latest", _publish_for)
    analysis = tune.run(
        _train,
        name="sweep",
        config={"lr": tune.grid_search([0.1, 0.2])},
        callbacks=[ThemisMLflowCallback(uri, flush_timeout_s=200)],
        storage_path=str(tmp_path / "results"),
        verbose=0,
    )
    assert all(trial.last_result["themis/r"] == 0.9 for trial in analysis.trials)
    progress = list((tmp_path / "results" / "sweep").glob("*/progress.csv"))
    assert len(progress) == 2
    assert all("themis/r" in file.read_text().splitlines()[0] for file in progress)
    (parent,), children = runs(uri)
    assert parent.data.tags["themis.app"] == "from-scheduler"
    assert parent.data.tags["themis.run"] == "sweep"
    assert {run.info.status for run in [parent, *children]} == {"FINISHED"}
    assert len(children) == 2
    for child in children:
        lr = float(child.data.params["lr"])
        assert history(uri, child, "loss") == [(s, pytest.approx(lr * s)) for s in (1, 2, 3)]
        assert len(history(uri, child, "themis/r")) == 3


# -- several drivers, one database -----------------------------------------------------------------


def _write_app(uri: str, app: str, count: int, ready: Any) -> None:
    callback = ThemisMLflowCallback(uri, app=app)
    trial = Trial(f"{app}-t", experiment_dir_name=f"{app}-sweep")
    ready.wait()
    start(callback, trial)
    for step in range(1, count + 1):
        metrics.publish(trial.trial_id, known(app=app))
        report(callback, [trial], trial, step, loss=float(step))
    complete(callback, trial)
    callback.flush_timeout_s = 120
    callback.on_experiment_end(trials=[trial])


def test_two_apps_that_make_one_database_at_once_lose_nothing(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/shared.db"
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(2)
    writers = [
        context.Process(target=_write_app, args=(uri, app, 200, ready)) for app in ("a", "b")
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(240)
    assert [writer.exitcode for writer in writers] == [0, 0]
    parents, children = runs(uri)
    assert sorted(run.data.tags["themis.app"] for run in parents) == ["a", "b"]
    for child in children:
        assert history(uri, child, "loss") == [(s, float(s)) for s in range(1, 201)]
    assert all("themis.lost_points" not in run.data.tags for run in parents)
    assert {run.info.status for run in parents + children} == {"FINISHED"}


# -- a server --------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A real MLflow server on a port of its own, in a process group of its own."""

    def __init__(self, store: str, folder: Path) -> None:
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self._store = store
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"]
        command += ["--port", str(self.port), "--workers", "1"]
        command += ["--backend-store-uri", self._store]
        self._process = subprocess.Popen(
            command,
            cwd=self._folder,
            # Its runners of background jobs would double the time that it takes to start.
            env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        said = []
        for line in self._process.stdout:
            said.append(line)
            if re.search("Application startup complete", line):
                # Keep the pipe empty, or the server blocks on it.
                self._reader = threading.Thread(target=self._process.stdout.read, daemon=True)
                self._reader.start()
                return
        raise AssertionError("".join(said))

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._reader.join()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


@pytest.fixture
def server(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    # MLflow's own client would repeat a request for minutes before it tells that it failed.
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    running = Server(uri, tmp_path)
    running.start()
    yield running
    running.kill()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_server_that_is_down_for_a_while_gets_every_point(
    server: Server, uri: str, caplog: pytest.LogCaptureFixture
) -> None:
    callback = ThemisMLflowCallback(server.uri, app="vgg")
    trial = Trial("t1")
    start(callback, trial)
    report(callback, [trial], trial, 1, loss=1.0)
    assert callback._tracker is not None
    assert callback._tracker.drain(200)
    server.kill()
    for step in range(2, 12):
        report(callback, [trial], trial, step, loss=float(step))
    assert not callback._tracker.drain(0.5)
    server.start()
    assert callback._tracker.drain(200)
    complete(callback, trial)
    callback.flush_timeout_s = 200
    callback.on_experiment_end(trials=[trial])
    (parent,), (child,) = runs(uri)
    assert history(uri, child, "loss") == [(s, float(s)) for s in range(1, 12)]
    assert (parent.info.status, child.info.status) == ("FINISHED", "FINISHED")
    assert caplog.text.count("training goes on") == 1
    assert "were lost" not in caplog.text


def test_points_that_a_dead_server_never_takes_are_counted_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    callback = ThemisMLflowCallback(
        f"http://127.0.0.1:{free_port()}", app="vgg", flush_timeout_s=0.5
    )
    trial = Trial("t1")
    start(callback, trial)
    for step in range(1, 4):
        report(callback, [trial], trial, step, loss=1.0, acc=0.5)
    callback.on_experiment_end(trials=[trial])
    assert caplog.text.count("6 metric values were lost") == 1
