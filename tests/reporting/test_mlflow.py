"""The tracking URI, and the tracker with a store that fails, hangs or refuses."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from themis_ray.reporting.mlflow import Tracker, resolve_tracking_uri
from themis_ray.reporting.mlflow_runs import PARENT, Points, RunSpec


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


# -- the tracker -----------------------------------------------------------------------------------


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
