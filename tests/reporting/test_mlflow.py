"""The callback and its tracker against real MLflow stores; trials are light stand-ins."""

import copy
import logging
import multiprocessing
import os
import pickle
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from themis_ray.errors import ConfigError, MissingExtraError
from themis_ray.reporting import mlflow as reporting
from themis_ray.reporting.mlflow import Tracker, resolve_tracking_uri
from themis_ray.reporting.mlflow_runs import PARENT, Points, RunSpec, RunStore, metric_key
from themis_ray.tune import metrics
from themis_ray.tune.callback import ThemisMLflowCallback, run_status
from themis_ray.tune.metrics import TrialMetrics

# Third-party: MLflow and what it imports still use what newer versions of pydantic, SQLAlchemy and
# Python call deprecated, and leave sqlite connections to the garbage collector.
pytestmark = [
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


# -- the tracking URI ------------------------------------------------------------------------------


def test_uri_defaults_to_a_file_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    assert resolve_tracking_uri(None) == f"sqlite:///{tmp_path}/mlflow.db"
    assert resolve_tracking_uri("sqlite:///a/b.db?timeout=9") == (
        f"sqlite:///{tmp_path}/a/b.db?timeout=9"
    )
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracker:5000")
    assert resolve_tracking_uri(None) == "http://tracker:5000"
    assert resolve_tracking_uri("databricks") == "databricks"


@pytest.mark.parametrize(
    "wrong", ["./mlruns", "mlruns", "file:///tmp/mlruns", "sqlite://", "sqlite:///:memory:"]
)
def test_a_uri_that_names_no_store_is_refused_before_anything_starts(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"sqlite:///mlflow\.db"):
        ThemisMLflowCallback(tracking_uri=wrong)


def test_missing_mlflow_comes_with_the_line_that_mends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"themis_ray\[mlflow\]"):
        ThemisMLflowCallback()


def test_the_callback_travels_with_its_settings_only(tmp_path: Path) -> None:
    callback = ThemisMLflowCallback(f"sqlite:///{tmp_path}/a.db", app="vgg", tags={"team": "blue"})
    for other in (pickle.loads(pickle.dumps(callback)), copy.deepcopy(callback)):
        assert other.tracking_uri == callback.tracking_uri
        assert (other.app, other.tags) == ("vgg", {"team": "blue"})


# -- what is logged --------------------------------------------------------------------------------


def test_parent_child_metrics_params_and_tags(uri: str) -> None:
    callback = ThemisMLflowCallback(uri, tags={"team": "blue"})
    trials = [Trial("t1"), Trial("t2")]
    for trial in trials:
        metrics.publish(trial.trial_id, known())
    start(callback, *trials)
    metrics.publish("t1", known(r=0.7))
    result = report(callback, trials, trials[0], 1, loss=2.5, nested={"acc": 0.5}, word="x")
    assert result["themis/r"] == 0.7
    assert result["themis/gpus"] == 2
    metrics.publish("t2", known(r=1.2, trial_r=None))
    other = report(callback, trials, trials[1], 1, loss=3.0, train_step=40)
    assert "themis/trial_r" not in other
    complete(callback, *trials)
    callback.on_experiment_end(trials=trials)

    (parent,), children = runs(uri)
    assert parent.info.run_name == "vgg"
    assert parent.info.status == "FINISHED"
    assert parent.data.tags["themis.app"] == "vgg"
    assert parent.data.tags["themis.policy"] == "themis-paper"
    # The steps of both trials together, so that the newest r is the one with the greatest step.
    assert history(uri, parent, "themis/r") == [(1, 0.7), (41, 1.2)]
    assert parent.data.metrics["themis/r"] == 1.2
    by_id = {run.data.tags["themis.trial_id"]: run for run in children}
    first = by_id["t1"]
    assert first.info.run_name == "train_t1"
    assert first.info.status == "FINISHED"
    assert first.data.params == {"lr": "0.1", "model/depth": "50"}
    assert first.data.metrics == {
        "loss": 2.5,
        "nested/acc": 0.5,
        "themis/r": 0.7,
        "themis/trial_r": 0.8,
        "themis/gpus": 2,
        "themis/placement_score": 0.91,
        "themis/t_shared_s": 90,
        "themis/t_ideal_s": 100,
        "themis/leases": 1,
    }
    assert first.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert first.data.tags["themis.lease"] == "lease-1"
    assert first.data.tags["team"] == "blue"
    assert history(uri, by_id["t2"], "loss") == [(40, 3.0)]


def test_figures_that_come_with_a_trials_end_are_logged_at_its_last_step(uri: str) -> None:
    callback = ThemisMLflowCallback(uri, app="vgg")
    trial = Trial("t1")
    start(callback, trial)
    report(callback, [trial], trial, 5, loss=1.0)
    metrics.publish("t1", known(r=0.6))
    complete(callback, trial)
    callback.on_experiment_end(trials=[trial])
    (parent,), (child,) = runs(uri)
    assert history(uri, child, "themis/r") == [(5, 0.6)]
    assert history(uri, parent, "themis/r") == [(5, 0.6)]


def test_without_themis_scheduler_the_users_metrics_are_logged(uri: str) -> None:
    callback = ThemisMLflowCallback(uri)
    trial = Trial("t1")
    start(callback, trial)
    result = report(callback, [trial], trial, 1, loss=1.0)
    assert not any(key.startswith("themis/") for key in result)
    complete(callback, trial)
    callback.on_experiment_end(trials=[trial])
    (parent,), (child,) = runs(uri)
    assert parent.data.tags["themis.app"] == "sweep"
    assert child.data.metrics == {"loss": 1.0}


def test_an_infinite_r_is_left_out_and_a_diverged_loss_is_not(uri: str) -> None:
    callback = ThemisMLflowCallback(uri)
    trial = Trial("t1")
    metrics.publish("t1", known(r=float("inf")))
    start(callback, trial)
    result = report(callback, [trial], trial, 1, loss=float("nan"))
    assert "themis/r" not in result
    complete(callback, trial)
    callback.on_experiment_end(trials=[trial])
    _, (child,) = runs(uri)
    assert "themis/r" not in child.data.metrics
    assert child.data.metrics["loss"] != child.data.metrics["loss"]


def test_a_resumed_trial_with_another_config_keeps_its_run_and_params(uri: str) -> None:
    callback = ThemisMLflowCallback(uri)
    trial = Trial("t1")
    for step, gpus in enumerate((1, 2, 4), start=1):
        so_far = tuple(f"node:{count}" for count in (1, 2, 4)[:step])
        metrics.publish("t1", known(gpus=gpus, lease=f"lease-{gpus}", leases=step, history=so_far))
        start(callback, trial)
        report(callback, [trial], trial, step, loss=1.0 / step)
        trial.config = {**trial.config, "lr": 0.01 * step}
    complete(callback, trial)
    callback.on_experiment_end(trials=[trial])
    (parent,), (child,) = runs(uri)
    assert child.data.params["lr"] == "0.1"
    assert child.data.tags["themis.lease"] == "lease-4"
    assert child.data.tags["themis.history"] == "node:1 > node:2 > node:4"
    assert history(uri, child, "themis/gpus") == [(1, 1), (2, 2), (3, 4)]
    assert {run.info.status for run in (parent, child)} == {"FINISHED"}


def test_a_restarted_driver_continues_the_same_runs(uri: str) -> None:
    trials = [Trial(f"t{i}", {"lr": i}) for i in range(3)]
    for trial in trials:
        metrics.publish(trial.trial_id, known())
    before = ThemisMLflowCallback(uri)
    start(before, *trials)
    for trial in trials:
        report(before, trials, trial, 1, loss=1.0)
    complete(before, trials[0])
    assert before._tracker is not None
    assert before._tracker.drain(60)
    state = before.get_state()
    # The driver is killed here: nothing more is written. A trial that is not restored stays open.
    after = pickle.loads(pickle.dumps(before))
    after.set_state(state)
    restored = trials[:2]
    trials[1].config = {"lr": 99}
    start(after, trials[1])
    report(after, restored, trials[1], 2, loss=0.5)
    complete(after, trials[1])
    after.on_experiment_end(trials=restored)

    (parent,), children = runs(uri)
    by_id = {run.data.tags["themis.trial_id"]: run for run in children}
    assert len(children) == 3
    assert {key: run.info.status for key, run in by_id.items()} == {
        "t0": "FINISHED",
        "t1": "FINISHED",
        "t2": "KILLED",
    }
    assert parent.info.status == "FINISHED"
    assert by_id["t1"].data.params == {"lr": "1"}
    assert history(uri, by_id["t1"], "loss") == [(1, 1.0), (2, 0.5)]
    assert max(step for step, _ in history(uri, parent, "themis/r")) == 3
    before._finish({})


def test_two_apps_with_quotes_in_their_names_stay_apart(uri: str) -> None:
    for app in ('it\'s "mine"', "it-s -mine-"):
        callback = ThemisMLflowCallback(uri, app=app)
        trial = Trial(f"t{len(app)}{app[2] == '-'}")
        start(callback, trial)
        complete(callback, trial)
        callback.on_experiment_end(trials=[trial])
    parents, children = runs(uri)
    assert {run.data.tags["themis.app"] for run in parents} == {'it\'s "mine"', "it-s -mine-"}
    assert len(children) == 2
    assert len({run.data.tags["mlflow.parentRunId"] for run in children}) == 2


def test_statuses(uri: str) -> None:
    callback = ThemisMLflowCallback(uri)
    good, bad, cut, never = (Trial(name) for name in ("good", "bad", "cut", "never"))
    trials = [good, bad, cut, never]
    start(callback, good, bad, cut)
    complete(callback, good)
    callback.on_trial_error(iteration=1, trials=trials, trial=bad)
    # An interrupted experiment: Tune terminates what runs without telling the callbacks.
    cut.status = "TERMINATED"
    bad.status = "ERROR"
    never.status = "PENDING"
    report(callback, trials, cut, 1, loss=1.0)
    callback.on_experiment_end(trials=trials)
    (parent,), children = runs(uri)
    assert {run.data.tags["themis.trial_id"]: run.info.status for run in children} == {
        "good": "FINISHED",
        "bad": "FAILED",
        "cut": "KILLED",
    }
    assert parent.info.status == "KILLED"


@pytest.mark.parametrize(
    ("ended", "started", "tune", "parent"),
    [
        ({"a": "FINISHED"}, {"a"}, {"a": "TERMINATED"}, "FINISHED"),
        ({"a": "FAILED", "b": "FINISHED"}, {"a", "b"}, {"a": "ERROR", "b": "TERMINATED"}, "FAILED"),
        ({}, {"a"}, {"a": "TERMINATED"}, "KILLED"),
        ({}, set(), {"a": "TERMINATED"}, "FINISHED"),
        ({}, set(), {"a": "PENDING"}, "KILLED"),
        ({"a": "FINISHED"}, {"a"}, {}, "KILLED"),
    ],
)
def test_the_parents_status_follows_from_the_childrens(
    ended: dict[str, str], started: set[str], tune: dict[str, str], parent: str
) -> None:
    assert run_status(ended, started, tune, PARENT) == parent


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


def test_a_fault_in_tracking_is_logged_and_goes_no_further(
    uri: str, caplog: pytest.LogCaptureFixture
) -> None:
    callback = ThemisMLflowCallback(uri)
    with caplog.at_level(logging.ERROR):
        callback.on_trial_start(iteration=0, trials=[], trial=None)
    assert "training goes on" in caplog.text


# -- the real thing --------------------------------------------------------------------------------


def _train(config: dict[str, Any]) -> None:
    from ray import tune

    for step in range(3):
        tune.report({"loss": config["lr"] * (step + 1)})


def _publish_for(trial_id: str) -> TrialMetrics:
    return known(app="from-scheduler", lease=f"lease-of-{trial_id}")


# Third-party: Ray and its loggers leave sockets and subprocesses to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tune_run(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray
    from ray import tune

    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setattr(metrics, "latest", _publish_for)
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        analysis = tune.run(
            _train,
            name="sweep",
            config={"lr": tune.grid_search([0.1, 0.2])},
            callbacks=[ThemisMLflowCallback(uri, flush_timeout_s=200)],
            storage_path=str(tmp_path / "results"),
            verbose=0,
        )
    finally:
        ray.shutdown()
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


# -- the tracker alone -----------------------------------------------------------------------------


class Refused(Exception):
    error_code = "INVALID_PARAMETER_VALUE"


class FakeStore:
    """Keeps what it is given; ``trouble`` is called first and may raise or block."""

    def __init__(self, trouble: Callable[[str, str], None] = lambda what, key: None) -> None:
        self.trouble = trouble
        self.done: list[tuple[str, str]] = []
        self.values: dict[str, list[float]] = {}
        self.opened: set[str] = set()
        self.lost_points = -1
        self.both_good = threading.Event()

    def open(self, spec: RunSpec) -> None:
        self.trouble("open", spec.key)
        self.opened.add(spec.key)
        self.done.append(("open", spec.key))

    def log(self, key: str, points: list[Points]) -> None:
        self.trouble("log", key)
        self.values.setdefault(key, []).extend(p.metrics["loss"] for p in points)
        if key == "good" and len(self.values[key]) == 2:
            self.both_good.set()

    def close(self, key: str, status: str) -> None:
        self.trouble("close", key)
        self.done.append((status, key))

    def settle(self, verdict: Callable[[str], str], lost_points: int) -> None:
        self.trouble("settle", "")
        self.lost_points = lost_points
        self.done.append((verdict(PARENT), PARENT))

    def is_open(self, key: str) -> bool:
        return key in self.opened


def tracker(store: FakeStore, **options: Any) -> Tracker:
    as_store: Any = store
    made = Tracker("http://user:secret@host", "themis", store=as_store, **options)
    made.open(RunSpec(PARENT, "app"))
    return made


def point(key: str, value: float) -> Points:
    return Points(key, {"loss": value}, int(value), 0)


def test_what_fails_for_a_while_is_repeated_in_order(caplog: pytest.LogCaptureFixture) -> None:
    left = {"open": 2, "log": 2, "close": 1, "settle": 1}

    def trouble(what: str, key: str) -> None:
        if left[what]:
            left[what] -= 1
            raise ConnectionError("no route\nand more")

    store = FakeStore(trouble)
    made = tracker(store)
    made.open(RunSpec("t", "t"))
    for value in range(3):
        made.add(point("t", value))
    made.end("t", "FINISHED")
    assert made.finish(lambda key: "FINISHED", 60) == 0
    assert sorted(store.values["t"]) == [0, 1, 2]
    assert store.done == [("open", ""), ("open", "t"), ("FINISHED", "t"), ("FINISHED", "")]
    assert caplog.text.count("training goes on") == 1
    assert "secret" not in caplog.text


def test_a_trial_that_comes_and_goes_during_a_slow_write_loses_nothing() -> None:
    free, busy = threading.Event(), threading.Event()

    def trouble(what: str, key: str) -> None:
        if (what, key) == ("log", "slow"):
            busy.set()
            assert free.wait(60)

    store = FakeStore(trouble)
    made = tracker(store)
    made.open(RunSpec("slow", "slow"))
    made.add(point("slow", 1))
    assert busy.wait(60)
    made.open(RunSpec("quick", "quick"))
    made.add(point("quick", 1))
    made.end("quick", "FINISHED")
    free.set()
    assert made.finish(lambda key: "FINISHED", 60) == 0
    assert store.values == {"slow": [1], "quick": [1]}
    assert store.done[-2:] == [("FINISHED", "quick"), ("FINISHED", "")]


def test_what_is_refused_is_lost_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    def trouble(what: str, key: str) -> None:
        if (what, key) == ("log", "bad"):
            raise Refused("no such metric")

    store = FakeStore(trouble)
    made = tracker(store)
    for key in ("bad", "good"):
        made.open(RunSpec(key, key))
        made.add(point(key, 1))
    assert made.finish(lambda key: "FINISHED", 60) == 1
    assert store.values == {"good": [1]}
    assert store.lost_points == 1
    assert caplog.text.count("were lost") == 1


def test_without_a_parent_nothing_is_written_and_nothing_hangs() -> None:
    def trouble(what: str, key: str) -> None:
        if key == PARENT:
            raise Refused("the experiment is deleted")

    store = FakeStore(trouble)
    made = tracker(store)
    made.open(RunSpec("t", "t"))
    made.add(point("t", 1))
    assert made.drain(60)
    assert store.done == []
    assert made.finish(lambda key: "FINISHED", 0.5) == 1


def test_memory_is_bounded_and_the_oldest_reports_go_first() -> None:
    free, busy = threading.Event(), threading.Event()

    def trouble(what: str, key: str) -> None:
        busy.set()
        assert free.wait(60)

    store = FakeStore(trouble)
    made = tracker(store, max_waiting=5)
    assert busy.wait(60)
    made.open(RunSpec("t", "t"))
    for value in range(8):
        made.add(point("t", value))
    free.set()
    assert made.finish(lambda key: "FINISHED", 60) == 3
    assert store.values["t"] == [3, 4, 5, 6, 7]
    assert store.lost_points == 3


def test_a_store_that_hangs_does_not_hold_up_the_end(caplog: pytest.LogCaptureFixture) -> None:
    free, busy = threading.Event(), threading.Event()

    def trouble(what: str, key: str) -> None:
        if what == "log":
            busy.set()
            assert free.wait(60)

    store = FakeStore(trouble)
    made = tracker(store)
    made.open(RunSpec("t", "t"))
    made.add(point("t", 1))
    assert busy.wait(60)
    made.add(point("t", 2))
    assert made.finish(lambda key: "KILLED", 0.05) == 2
    assert "2 metric values were lost and runs may still look open" in caplog.text
    free.set()
    made._thread.join(60)


def test_a_run_in_trouble_does_not_hold_up_the_others() -> None:
    def trouble(what: str, key: str) -> None:
        if (what, key) == ("log", "bad"):
            raise RuntimeError("always")

    store = FakeStore(trouble)
    made = tracker(store)
    for key in ("bad", "good"):
        made.open(RunSpec(key, key))
    for value in (1, 2):
        made.add(point("bad", value))
        made.add(point("good", value))
    assert store.both_good.wait(60)
    assert made.finish(lambda key: "FINISHED", 0.2) == 2
    assert sorted(store.values["good"]) == [1, 2]


@pytest.mark.parametrize(
    ("name", "key"),
    [("a/b", "a/b"), ("loss (val)", "loss _val_"), ("/é", "_"), ("x" * 300, "x" * 250)],
)
def test_names_that_mlflow_refuses_are_mended(name: str, key: str) -> None:
    assert metric_key(name) == key


def test_a_deleted_experiment_is_refused_once(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    store = client(uri)
    store.delete_experiment(store.create_experiment("themis"))
    callback = ThemisMLflowCallback(uri)
    trial = Trial("t1")
    start(callback, trial)
    report(callback, [trial], trial, 1, loss=1.0)
    complete(callback, trial)
    callback.flush_timeout_s = 5
    callback.on_experiment_end(trials=[trial])
    assert caplog.text.count("training goes on") == 1
    assert "active" in caplog.text


def test_many_params_and_long_values_fit_mlflows_limits(uri: str) -> None:
    store = RunStore(uri, "themis")
    store.open(RunSpec(PARENT, "a", {"themis.app": "a", "themis.run": "r"}))
    params = {f"p{i}": "v" * 7000 for i in range(120)}
    store.open(RunSpec("t", "t", {}, params))
    store.log("t", [Points("t", {f"m{i}": 1.0 for i in range(1500)}, 1, 0)])
    _, (child,) = runs(uri)
    assert len(child.data.params) == 120
    assert len(child.data.metrics) == 1500
