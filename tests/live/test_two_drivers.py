"""Two data scientists, each in a driver process of their own, on one cluster."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import themis_ray
from tests.ray_process import Driver, eventually
from tests.rival import Rival

# MLflow's own queries use a loader option that SQLAlchemy has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning")

Start = Callable[..., dict[str, Any]]
Drive = Callable[..., Driver]


def runs_of(driver: Driver) -> dict[int, list[list[dict[str, Any]]]]:
    """The steps of each trial, divided by placement group."""
    out: dict[int, list[list[dict[str, Any]]]] = defaultdict(list)
    for entry in driver.steps():
        runs = out[entry["trial"]]
        if not runs or runs[-1][-1]["group"] != entry["group"]:
            runs.append([])
        runs[-1].append(entry)
    return out


def done_in(runs: list[list[dict[str, Any]]]) -> list[int]:
    """The steps of a trial, but for one that was under way when a lease ended with its start.

    A lease that a hidden payment has cut may be over before the trial's first report in it.
    """
    whole = [
        run
        for run, after in zip(runs, [*runs[1:], None], strict=True)
        if not (after and len(run) == 1 and after[0]["step"] == run[0]["step"])
    ]
    return [entry["step"] for run in whole for entry in run]


def held(app: str) -> int:
    """GPUs that an app holds, by the arbiter's word."""
    return sum(a["held"] for a in themis_ray.status()["apps"] if a["id"] == app)


@pytest.mark.slow
def test_apps_compete_and_trials_move(arbiter: Start, drive: Drive, tmp_path: Path) -> None:
    # Notice enough to report in also when the machine stands still for a while: a trial that does
    # not is stopped at the end of its lease.
    arbiter(lease_s=8, notice_s=3)
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    first = drive(app="first", trials=4, steps=80, mlflow=uri)
    eventually("the first app uses the whole cluster", lambda: held("first") == 4)
    eventually("its trials run", lambda: len({e["trial"] for e in first.steps()}) == 4)
    # Another app takes one machine for good: the trials that have run there have to move.
    rival = Rival("third", wants=2, machine=themis_ray.status()["nodes"][0]["id"])
    rival.wait_held(2, timeout_s=60)
    second = drive(app="second", trials=2, steps=40, mlflow=uri)
    eventually("the newcomer has GPUs", lambda: held("second") >= 1)
    results = {d.app: d.result() for d in (first, second)}

    rival.close()

    moved = 0
    for driver, steps in ((first, 80), (second, 40)):
        trials = results[driver.app]["trials"]
        assert {t["status"] for t in trials} == {"TERMINATED"}
        assert {t["iterations"] for t in trials} == {steps}
        assert {t["app"] for t in trials} == {driver.app}
        assert {t["failures"] for t in trials} == {0}
        for runs in runs_of(driver).values():
            # A class trainable is saved when it pauses: no step is lost, none is done twice.
            assert done_in(runs) == list(range(1, steps + 1))
            moved += len({run[0]["node"] for run in runs}) > 1
    assert moved, "no trial has run on two nodes"
    check_mlflow(uri, {"first": (4, 80), "second": (2, 40)})


def check_mlflow(uri: str, apps: dict[str, tuple[int, int]]) -> None:
    """Every report of every trial has r, in one run a trial under one parent an app."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("themis")
    runs = client.search_runs([experiment.experiment_id], max_results=1000)
    parents = {r.info.run_id: r for r in runs if "mlflow.parentRunId" not in r.data.tags}
    assert {r.data.tags["themis.app"] for r in parents.values()} == set(apps)
    assert len(parents) == len(apps)
    for run_id, parent in parents.items():
        trials, steps = apps[parent.data.tags["themis.app"]]
        assert parent.info.status == "FINISHED"
        assert client.get_metric_history(run_id, "themis/r")
        children = [r for r in runs if r.data.tags.get("mlflow.parentRunId") == run_id]
        assert len(children) == trials
        for child in children:
            assert child.info.status == "FINISHED"
            history = client.get_metric_history(child.info.run_id, "themis/r")
            # What the scheduler knows at the trial's end is logged at its last step, too.
            assert {point.step for point in history} == set(range(1, steps + 1))
            assert all(point.value > 0 for point in history)


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", [pytest.param(signal.SIGKILL, marks=pytest.mark.long), signal.SIGSTOP]
)
def test_a_dead_or_frozen_driver_frees_its_gpus(
    arbiter: Start, drive: Drive, how: signal.Signals
) -> None:
    arbiter(lease_s=60, notice_s=2)
    victim = drive(app="victim", trials=3, steps=2000)
    eventually("the victim's trials run", lambda: len(victim.steps()) > 3)
    heir = drive(app="heir", trials=4, steps=30)
    eventually("the heir has the rest", lambda: held("heir") == 1)
    os.kill(victim.process.pid, how)
    # It had one GPU; some of its trials may be over by the time it gets the others.
    eventually("the heir has the victim's GPUs", lambda: held("heir") > 1, 30)
    result = heir.result()
    assert {t["iterations"] for t in result["trials"]} == {30}
    gone = themis_ray.explain("victim")
    assert gone["reason"]["kind"] == "AppGone"


@pytest.mark.slow
def test_trials_that_save_nothing_keep_their_gpus(arbiter: Start, drive: Drive) -> None:
    arbiter(lease_s=5, notice_s=1)
    unsaved = drive(app="unsaved", trials=2, steps=60, kind="function", checkpoint_every=0)
    eventually("it runs", lambda: len(unsaved.steps()) >= 4)
    other = drive(app="other", trials=4, steps=20)
    other.result()
    unsaved.result()
    for runs in runs_of(unsaved).values():
        assert len(runs) == 1, "a trial without a checkpoint was interrupted"
    assert unsaved.log.read_text().count("save no checkpoint") == 1
