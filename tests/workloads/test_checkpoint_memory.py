"""A job that comes back to a node restores from its memory, within bounds, and never wrongly."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

from themis_ray.live.client import NAMESPACE
from themis_ray.workloads import load_checkpoint, save_checkpoint
from themis_ray.workloads.memory import Keeper, node_memory

LIMIT_S = 120.0
GUARDIAN = "guardian"
WORDS = 25_000


class Guardian:
    pass


class Job:
    """A process that saves or restores, and then ends."""

    def save(self, folder: str, step: int) -> None:
        state = {"step": step, "weights": np.arange(WORDS).tolist()}
        memory = node_memory(guardian=GUARDIAN)
        assert memory is not None
        memory.ready(LIMIT_S)
        save_checkpoint(folder, state, step, memory=memory)

    def restore(self, folder: str) -> tuple[int, bool]:
        loaded = load_checkpoint(folder, memory=node_memory(guardian=GUARDIAN))
        assert loaded.state["weights"][-1] == WORDS - 1
        return loaded.step, loaded.from_memory


def in_a_process_of_its_own(method: str, *arguments: Any) -> Any:
    job = ray.remote(num_cpus=0)(Job).remote()
    try:
        return ray.get(getattr(job, method).remote(*arguments), timeout=LIMIT_S)
    finally:
        ray.kill(job)


@pytest.fixture
def guardian(cluster: str) -> Any:
    made = ray.remote(num_cpus=0)(Guardian).options(name=GUARDIAN, namespace=NAMESPACE).remote()
    ray.get(made.__ray_ready__.remote(), timeout=LIMIT_S)
    return made


def test_a_checkpoint_outlives_its_writer_in_memory(guardian: Any, tmp_path: Path) -> None:
    in_a_process_of_its_own("save", str(tmp_path), 1)
    assert in_a_process_of_its_own("restore", str(tmp_path)) == (1, True)
    # Without the file it still works; what the manifest does not describe is not taken.
    [payload] = tmp_path.glob("*.pt")
    whole = payload.read_bytes()
    payload.unlink()
    assert in_a_process_of_its_own("restore", str(tmp_path)) == (1, True)
    payload.write_bytes(whole)
    memory = node_memory(guardian=GUARDIAN)
    assert memory is not None
    memory.put(payload.name, whole[:-1] + b"x")
    assert in_a_process_of_its_own("restore", str(tmp_path)) == (1, False)
    # The keeper ends with its guardian, and the storage is enough.
    keeper = f"checkpoints-{ray.get_runtime_context().get_node_id()}"
    assert ray.get_actor(keeper, namespace=NAMESPACE) is not None
    ray.kill(guardian)
    deadline = time.monotonic() + LIMIT_S
    while keeper in {a["name"] for a in ray.util.list_named_actors(all_namespaces=True)}:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert memory.get(payload.name) is None
    assert in_a_process_of_its_own("restore", str(tmp_path)) == (1, False)


def test_the_least_recently_used_makes_room(guardian: Any) -> None:
    keeper = ray.remote(num_cpus=0)(Keeper).remote(300, GUARDIAN)

    def held() -> set[str]:
        answers = {name: ray.get(keeper.get.remote(name), timeout=LIMIT_S) for name in "abcd"}
        return {name for name, answer in answers.items() if answer}

    for name in "abc":
        ray.get(keeper.put.remote(name, np.zeros(100, np.uint8)), timeout=LIMIT_S)
    assert held() == {"a", "b", "c"}
    ray.get(keeper.get.remote("a"), timeout=LIMIT_S)
    ray.get(keeper.put.remote("d", np.zeros(150, np.uint8)), timeout=LIMIT_S)
    assert held() == {"a", "d"}
    ray.get(keeper.put.remote("b", np.zeros(301, np.uint8)), timeout=LIMIT_S)
    assert held() == {"a", "d"}
    ray.kill(keeper)
    ray.kill(guardian)


def test_without_ray_or_a_guardian_there_is_no_memory(cluster: str) -> None:
    assert node_memory(guardian="nobody") is None
