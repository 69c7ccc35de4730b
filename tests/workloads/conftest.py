from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import ray
from ray.util.placement_group import PlacementGroup

HERE = str(Path(__file__).parent)
# pytest imports test files by path here, the actors by name.
sys.path.insert(0, HERE)

import workload_jobs  # noqa: E402

from themis_ray.workloads import warm_runtime_env  # noqa: E402


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
        ray.init(
            num_cpus=4,
            num_gpus=workload_jobs.GPUS,
            include_dashboard=False,
            log_to_driver=False,
            # Most of such a test would be processes that import torch.
            runtime_env=warm_runtime_env(),
        )
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
    workload_jobs.assert_nothing_left()
