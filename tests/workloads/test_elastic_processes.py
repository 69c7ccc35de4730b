"""Several real processes in a lease: same training, and no hang when one is lost."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray
import workload_jobs as jobs
from ray.util.placement_group import PlacementGroup

CALL_LIMIT_S = 200.0

Grant = Callable[[int], PlacementGroup]


def call(trial: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    return ray.get(trial.call.remote(function, *arguments), timeout=CALL_LIMIT_S)


def test_training_does_not_depend_on_the_number_of_processes(lease: Grant) -> None:
    trial = jobs.start_trial(lease(3))
    alone = jobs.train_plain(1)
    assert alone["k"] == 1
    for k in (2, 3):
        several = call(trial, jobs.train_plain, k)
        assert several["k"] == k
        assert several["losses"] == pytest.approx(alone["losses"], rel=1e-10)
        for name, value in alone["weights"].items():
            assert (value - several["weights"][name]).abs().max() < 1e-10


@pytest.mark.parametrize("k", [2, 3])
def test_resume_with_equal_k_gives_equal_bits(lease: Grant, tmp_path: Path, k: int) -> None:
    trial = jobs.start_trial(lease(k))
    same_weights, same_losses = call(
        trial, jobs.train_with_and_without_a_break, k, str(tmp_path / "checkpoints")
    )
    assert same_weights
    assert same_losses


def test_a_lost_rank_ends_the_step(lease: Grant, tmp_path: Path) -> None:
    trial = jobs.start_trial(lease(2))
    folder = str(tmp_path / "checkpoints")
    # A death, then a hang; each time the same lease takes another set of ranks.
    for signum in (jobs.KILL, jobs.STOP):
        pid_file = tmp_path / f"pid-{signum}"
        took, message = call(trial, jobs.lose_a_rank, signum, str(pid_file), folder)
        assert took < 60
        assert "last checkpoint" in message
        await_death(int(pid_file.read_text()))
    assert call(trial, jobs.go_on, folder) == 3
    own_pid = call(trial, os.getpid)
    ray.kill(trial)
    await_death(own_pid)


def await_death(pid: int, limit_s: float = 30.0) -> None:
    deadline = time.monotonic() + limit_s
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_alive(pid)


def is_alive(pid: int) -> bool:
    try:
        # A zombie is dead; whoever started it has only not asked yet.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
