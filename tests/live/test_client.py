"""The way from a process that has not joined Ray to the arbiter."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import ray

from themis_ray.errors import ArbiterUnavailableError
from themis_ray.live import client as live


def test_looking_for_the_arbiter_starts_no_ray() -> None:
    # A driver that has shut Ray down may still have an AGENT, whose thread goes on looking.
    assert not ray.is_initialized()
    assert live.find_actor() is None
    with pytest.raises(ArbiterUnavailableError, match="no arbiter runs"):
        live.endpoint()
    assert not ray.is_initialized()


@pytest.mark.parametrize("call", [live.status, lambda: live.explain("a"), live.stop])
def test_without_a_cluster_a_question_starts_none(
    monkeypatch: pytest.MonkeyPatch, call: Callable[[], Any]
) -> None:
    monkeypatch.setattr(live, "a_cluster_runs", lambda: False)
    with pytest.raises(ArbiterUnavailableError, match="no Ray cluster runs"):
        call()
    assert not ray.is_initialized()


def test_a_question_joins_the_cluster_that_runs(cluster: Any, arbiter: Callable[..., Any]) -> None:
    arbiter()
    script = "import ray, themis_ray; print(themis_ray.status()['policy'], ray.is_initialized())"
    answer = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "RAY_ADDRESS": cluster.address},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert answer.stdout.split() == ["themis-paper", "False"]
