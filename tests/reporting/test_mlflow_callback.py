"""ThemisMLflowCallback against real MLflow stores; trials are light stand-ins."""

from __future__ import annotations

import copy
import logging
import pickle
from pathlib import Path

import pytest

from tests.reporting.mlflow_trials import (
    MLFLOW_WARNINGS,
    Trial,
    client,
    complete,
    history,
    known,
    report,
    runs,
    start,
)
from themis_ray.errors import ConfigError, MissingExtraError
from themis_ray.reporting import mlflow as reporting
from themis_ray.reporting.mlflow_runs import PARENT
from themis_ray.tune import metrics
from themis_ray.tune.callback import ThemisMLflowCallback, run_status

pytestmark = MLFLOW_WARNINGS


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


def test_a_fault_in_tracking_is_logged_and_goes_no_further(
    uri: str, caplog: pytest.LogCaptureFixture
) -> None:
    callback = ThemisMLflowCallback(uri)
    with caplog.at_level(logging.ERROR):
        callback.on_trial_start(iteration=0, trials=[], trial=None)
    assert "training goes on" in caplog.text


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
