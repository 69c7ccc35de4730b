"""Workers forked from a process that has done the imports, and what happens without it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray

from themis_ray.workloads import warm_runtime_env

LIMIT_S = 120.0
# Something that nobody else imports, and that is quick to import.
MODULE = "sched"


class Worker:
    def look(self) -> tuple[int, int, bool]:
        """Its process, the parent, and whether the module was imported for it."""
        return os.getpid(), os.getppid(), MODULE in sys.modules

    def environment(self) -> tuple[str, str]:
        return os.environ["RAY_JOB_ID"], os.getcwd()


def await_that(what: str, condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def start(folder: str) -> Any:
    environment = {**warm_runtime_env([MODULE]), "env_vars": {"TMPDIR": folder}}
    return ray.remote(num_cpus=0)(Worker).options(runtime_env=environment).remote()


def look(worker: Any) -> tuple[int, int, bool]:
    found: tuple[int, int, bool] = ray.get(worker.look.remote(), timeout=LIMIT_S)
    return found


def test_later_workers_are_forked_with_the_imports_done(cluster: str) -> None:
    first = start(cluster)
    assert look(first)[2] is False
    home = Path(cluster) / f"themis-warm-{os.getuid()}"
    await_that("a nursery listens", lambda: list(home.glob("*.sock")))
    # It outlives the worker that left it behind.
    ray.kill(first)
    second = start(cluster)
    pid, nursery, warm = look(second)
    assert warm
    assert nursery != os.getpid()
    job, _ = ray.get(second.environment.remote(), timeout=LIMIT_S)
    assert job == ray.get_runtime_context().get_job_id()
    # Ray ends a forked worker like any other, and its sisters are not touched.
    third = start(cluster)
    assert look(third)[1:] == (nursery, True)
    ray.kill(second)
    await_that("the killed worker is gone", lambda: not Path(f"/proc/{pid}").exists())
    assert look(third)[1:] == (nursery, True)
    # Without the nursery, workers start as usual.
    os.kill(nursery, signal.SIGKILL)
    await_that("the nursery is gone", lambda: not Path(f"/proc/{nursery}/fd").exists())
    fourth = start(cluster)
    assert look(fourth)[2] is False
    for worker in (third, fourth):
        ray.kill(worker)


@pytest.mark.parametrize("ready", [True, False])
def test_a_nursery_ends_with_its_raylet(tmp_path: Path, ready: bool) -> None:
    raylet = subprocess.Popen(["sleep", "600"])
    socket = tmp_path / "n.sock"
    command = [*shlex.split(warm_runtime_env()["py_executable"])[:-1], "--serve", str(socket)]
    nursery = subprocess.Popen(
        [*command, MODULE], env={**os.environ, "RAY_RAYLET_PID": str(raylet.pid)}
    )
    if ready:
        await_that("the nursery listens", socket.exists)
    raylet.kill()
    raylet.wait()
    assert nursery.wait(LIMIT_S) == 0
    assert not socket.exists()
