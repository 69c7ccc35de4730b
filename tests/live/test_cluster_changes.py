"""Nodes that come and go, other Ray jobs' GPUs, and an arbiter that is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import themis_ray
from tests.ray_process import Driver, eventually
from themis_ray.core.journal import Header
from themis_ray.live.journal_reader import read_journal

Start = Callable[..., dict[str, Any]]
Drive = Callable[..., Driver]

pytestmark = pytest.mark.slow


def leasable() -> int:
    return sum(node["gpus"] for node in themis_ray.status()["nodes"])


def test_nodes_join_and_leave(cluster: Any, arbiter: Start, drive: Drive) -> None:
    arbiter(lease_s=60)
    assert leasable() == 4
    node = cluster.add_node(num_cpus=1, num_gpus=1)
    eventually("the new node's GPU can be leased", lambda: leasable() == 5)
    app = drive(app="mover", trials=5, steps=40)
    eventually("all five run", lambda: len({e["trial"] for e in app.steps()}) == 5)
    cluster.remove_node(node, allow_graceful=False)
    eventually("the lost GPU is taken off the books", lambda: leasable() == 4, 60)
    document = themis_ray.status()
    held = sum(sum(lease["gpus"].values()) for a in document["apps"] for lease in a["leases"])
    assert held <= 4


def test_gpus_of_other_jobs_are_left_alone(arbiter: Start, drive: Drive) -> None:
    import ray

    @ray.remote(num_gpus=1, num_cpus=0)
    class Somebody:
        def ping(self) -> bool:
            return True

    somebody = Somebody.remote()
    ray.get(somebody.ping.remote())
    arbiter(lease_s=60)
    assert leasable() == 3
    assert sum(node["foreign"] for node in themis_ray.status()["nodes"]) == 1
    app = drive(app="modest", trials=4, steps=12)
    assert {t["iterations"] for t in app.result()["trials"]} == {12}
    ray.kill(somebody)
    eventually("its GPU can be leased now", lambda: leasable() == 4)


def test_a_killed_arbiter_comes_back_and_trials_go_on(
    arbiter: Start, drive: Drive, journal: Path
) -> None:
    """Groups are detached, so running trials do not notice; waiting ones get theirs later."""
    import ray
    from ray.core.generated import gcs_pb2

    arbiter(lease_s=60)
    app = drive(app="patient", trials=6, steps=60)
    eventually("it runs", lambda: len(app.steps()) >= 8)
    accessor = ray._private.state.state._connect_and_get_accessor()
    actors = [gcs_pb2.ActorTableData.FromString(a) for a in accessor.get_actor_table(None, "ALIVE")]
    [pid] = [a.pid for a in actors if a.name == "arbiter"]
    os.kill(pid, signal.SIGKILL)
    result = app.result()
    assert {t["iterations"] for t in result["trials"]} == {60}
    assert {t["failures"] for t in result["trials"]} == {0}
    done: dict[int, list[int]] = {}
    for entry in app.steps():
        done.setdefault(entry["trial"], []).append(entry["step"])
    assert all(steps == list(range(1, 61)) for steps in done.values())
    # The second arbiter has gone on in the first one's journal, and waited for what was held.
    headers = [x for _, x in read_journal(journal, lambda _: None) if isinstance(x, Header)]
    assert [header.hold_until_s is not None for header in headers] == [False, True]
