"""A lease under the default policy that is recalled, long before its end, for a short search."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ray import tune

from tests.rival import Rival
from tests.tune.trainables import endless_epochs
from themis_ray import ThemisScheduler
from themis_ray.live import client

Start = Callable[..., dict[str, Any]]

pytestmark = [
    # Tune's own use of its own and Ray's deprecated calls; nothing of ours.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


class Short(tune.Callback):  # type: ignore[misc]  # ray is untyped
    """A search of a second comes when the trial has started; it ends as soon as it has GPUs."""

    def __init__(self) -> None:
        self.rival: Rival | None = None
        self.why: dict[str, Any] = {}

    def on_trial_start(self, **info: Any) -> None:
        if self.rival is None:
            self.rival = Rival("short", wants=4, weight=1.0, t_ideal_s=1.0)

    def on_step_end(self, **info: Any) -> None:
        if self.rival is not None and self.rival.held and not self.why:
            self.why = client.explain("long")["reason"]
            self.rival.want(0)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_lease_of_an_hour_is_recalled_for_a_search_of_a_second(
    arbiter: Start, tmp_path: Path
) -> None:
    """The trial saves when it is given notice, and goes on: otherwise that would take an hour."""
    arbiter(policy="themis", lease_s=3600, notice_s=5, grace_s=20)
    short = Short()
    analysis = tune.run(
        endless_epochs,
        scheduler=ThemisScheduler(
            app="long", iterations_per_trial=1_000_000, min_gpus_per_trial=4, max_gpus_per_trial=4
        ),
        resources_per_trial={"cpu": 0.1, "gpu": 1},
        storage_path=str(tmp_path),
        verbose=0,
        callbacks=[short],
    )
    assert short.rival is not None
    short.rival.close()
    assert analysis.trials[0].last_result["resumed_with"] == "saved in time, False before"
    assert short.why["kind"] == "Recalled"
    assert short.why["urgent"] == "short"
