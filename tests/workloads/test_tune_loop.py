"""A user's own loop as a trial: reports, early ones too, and checkpoints."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
import workload_jobs as jobs

from themis_ray.errors import ConfigError
from themis_ray.lease import CurrentLease
from themis_ray.workloads import ElasticTrainer, run_trial, tune_loop


def lease_of(seconds: float, final: bool) -> CurrentLease:
    state = {"expires_s": time.monotonic() + seconds, "final": final}
    return CurrentLease("app", "group", 1, {"here": 1}, "GPU", state)


@pytest.mark.parametrize(
    ("seconds", "final", "expected"),
    [(1e6, False, 4), (0.0, False, 4), (1e6, True, 4), (0.0, True, 1)],
)
def test_a_report_is_early_only_if_it_would_be_too_late(
    monkeypatch: pytest.MonkeyPatch, seconds: float, final: bool, expected: int
) -> None:
    monkeypatch.setattr(tune_loop, "current_lease", lambda: lease_of(seconds, final))
    with jobs.make_trainer() as trainer, jobs.make_trainer() as alone:
        loss = tune_loop.train_until_report(trainer, 4)
        assert trainer.step == expected
        assert loss == pytest.approx(alone.run(expected), rel=1e-12)


def test_measurements_tell_what_bids_are_made_of() -> None:
    with jobs.make_trainer() as trainer:
        trainer.run(3)
        told = tune_loop.measurements(trainer)
    assert told["train_step"] == 3
    assert told["themis/gpus"] == 1
    assert told["themis/iter_s"] > 0
    assert 0 < told["themis/skew"] <= 1


def test_a_senseless_interval_is_refused() -> None:
    with jobs.make_trainer() as trainer, pytest.raises(ConfigError, match="steps_per_report"):
        run_trial(trainer, steps_per_report=0)


def own_loop(config: dict[str, Any]) -> None:
    """What the documentation shows."""
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4)).double()
    with ElasticTrainer(
        model, lambda p: torch.optim.SGD(p, lr=0.1), jobs.Points, global_batch=7
    ) as trainer:
        run_trial(
            trainer, steps_per_report=2, max_steps=7, metrics=lambda: {"seen": trainer.step * 7}
        )


@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")
@pytest.mark.filterwarnings("ignore::FutureWarning:ray")
def test_a_loop_of_ones_own_is_paused_and_goes_on(cluster: str, tmp_path: Path) -> None:
    from ray import tune
    from test_tune_trainables import PauseOnce

    scheduler = PauseOnce()
    analysis = tune.run(
        tune.with_resources(own_loop, {"CPU": 1, "GPU": 1}),
        scheduler=scheduler,
        storage_path=str(tmp_path),
        verbose=0,
    )
    [trial] = analysis.trials
    assert trial.status == "TERMINATED"
    assert [report["train_step"] for report in scheduler.reports][:3] == [2, 4, 6]
    assert trial.last_result["train_step"] == 7
    assert trial.last_result["seen"] == 49
    assert len({report["pid"] for report in scheduler.reports}) == 2
