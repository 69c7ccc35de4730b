from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.util.placement_group import PlacementGroup

HERE = str(Path(__file__).parent)
sys.path.insert(0, HERE)
GPUS = 4
LEAK_LIMIT_S = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """A Ray of our own with logical GPUs; yields a folder for its files."""
    # Not under tmp_path: a unix socket's path may have some 107 characters.
    folder = tempfile.mkdtemp(prefix="wl", dir="/tmp")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("HOME", folder)
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.delenv("RAY_ADDRESS", raising=False)
        # For the actors, which load the helpers beside this file.
        patch.setenv("PYTHONPATH", f"{HERE}:{os.environ.get('PYTHONPATH', '')}")
        ray.init(num_cpus=4, num_gpus=GPUS, include_dashboard=False, log_to_driver=False)
        try:
            yield folder
        finally:
            ray.shutdown()
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def lease(cluster: str) -> Iterator[Callable[[int], PlacementGroup]]:
    """Makes placement groups of k one-GPU bundles; checks that nothing is left of them."""
    groups: list[PlacementGroup] = []

    def grant(k: int) -> PlacementGroup:
        group = ray.util.placement_group([{"CPU": 1, "GPU": 1}] * k)
        groups.append(group)
        ray.get(group.ready(), timeout=60)
        return group

    yield grant
    for group in groups:
        ray.util.remove_placement_group(group)
    assert_nothing_left()


def assert_nothing_left() -> None:
    """No placement group, and every GPU free again."""
    deadline = time.monotonic() + LEAK_LIMIT_S
    while (held := _held()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not held


def _held() -> list[Any]:
    states = [entry["state"] for entry in ray.util.placement_group_table().values()]
    held: list[Any] = [state for state in states if state != "REMOVED"]
    free = ray.available_resources().get("GPU", 0)
    return held if free == GPUS else [*held, f"{GPUS - free} GPUs in use"]
