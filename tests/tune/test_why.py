"""What ``themis why`` says of a search while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ray import tune

from tests.tune.test_scheduler import run
from tests.tune.trainables import Counting
from themis_ray import ThemisScheduler
from themis_ray.live import client
from themis_ray.reporting.render import explanation
from themis_ray.reporting.view import app_view

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


class Asks(tune.Callback):  # type: ignore[misc]  # ray is untyped
    """Asks at each report what the command asks, and keeps what it would print."""

    def __init__(self, app: str) -> None:
        self.app = app
        self.ended = 0
        self.heard: dict[int, list[str]] = {}

    def on_trial_complete(self, **info: Any) -> None:
        self.ended += 1

    def on_trial_result(self, **info: Any) -> None:
        said = str(explanation(app_view(client.explain(self.app))))
        self.heard.setdefault(self.ended, []).append(said)


class Slower(Counting):
    """Trial 1 is still at work when trial 0 has ended."""

    def step(self) -> dict[str, Any]:
        time.sleep(2.0 * self.config["index"])
        return super().step()


def test_it_tells_how_far_predicted_finish_times_were_off(
    arbiter: Callable[..., Any], tmp_path: Path
) -> None:
    arbiter(lease_s=60)
    asks = Asks("foreseen")
    trials = run(
        Slower, tmp_path, 2, 8, scheduler=ThemisScheduler(app="foreseen"), callbacks=[asks]
    )
    assert [t.status for t in trials] == ["TERMINATED"] * 2
    before, after = "\n".join(asks.heard[0]), "\n".join(asks.heard[1])
    assert "holds 2 of the 2 it can use" in before
    assert "predicted finish times" not in before
    assert "median of 1 trial," in after
