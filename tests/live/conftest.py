"""Live tests share one cluster of two nodes, and each has its own arbiter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ray_process import Driver, eventually, ray_cluster

NODES = [{"num_cpus": 2, "num_gpus": 2}, {"num_cpus": 2, "num_gpus": 2}]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    with ray_cluster(NODES) as cluster:
        yield cluster


@pytest.fixture
def arbiter(cluster: Any) -> Iterator[Callable[..., dict[str, Any]]]:
    """Starts the arbiter with given options; afterwards nothing of ours may be left."""
    import themis_ray

    def start(**options: Any) -> dict[str, Any]:
        given = {"lease_s": 8.0, "notice_s": 1.5, "grace_s": 4.0, **options}
        return themis_ray.start(**given)

    yield start
    themis_ray.stop()
    eventually("all of ours is gone", lambda: not left_over(), 30)


def left_over() -> list[str]:
    """Placement groups and actors that are still there, and GPUs that are not back."""
    import ray
    from ray.core.generated import gcs_pb2

    left = [
        f"group {info['name']} {info['state']}"
        for info in ray.util.placement_group_table().values()
        if info["state"] != "REMOVED"
    ]
    accessor = ray._private.state.state._connect_and_get_accessor()
    for raw in accessor.get_actor_table(None, "ALIVE"):
        actor = gcs_pb2.ActorTableData.FromString(raw)
        left.append(f"actor {actor.class_name} {actor.name}")
    total, free = ray.cluster_resources(), ray.available_resources()
    if free.get("GPU", 0) != total.get("GPU", 0):
        left.append(f"{free.get('GPU', 0)} of {total.get('GPU', 0)} GPUs are free")
    return left


@pytest.fixture
def drive(cluster: Any, tmp_path: Path) -> Iterator[Callable[..., Driver]]:
    """Starts drivers; those that still run at the end are killed."""
    drivers: list[Driver] = []

    def start(**options: Any) -> Driver:
        driver = Driver(tmp_path, cluster.address, **{"step_s": 0.2, **options})
        drivers.append(driver)
        return driver

    yield start
    for driver in drivers:
        driver.stop()
