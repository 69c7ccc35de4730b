"""Live tests share one cluster of two nodes, and each has its own arbiter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ray_process import Driver, ray_cluster, starts_arbiter
from themis_ray.live.journal_reader import read_journal
from themis_ray.sim.replay import Replay

NODES = [{"num_cpus": 2, "num_gpus": 2}, {"num_cpus": 2, "num_gpus": 2}]


@pytest.fixture(scope="package")
def cluster() -> Iterator[Any]:
    with ray_cluster(NODES) as cluster:
        yield cluster


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Where the arbiter of a test keeps its journal."""
    return tmp_path / "journal.jsonl"


@pytest.fixture
def arbiter(cluster: Any, journal: Path) -> Iterator[Callable[..., dict[str, Any]]]:
    """Starts the arbiter with given options.

    Afterwards nothing of ours may be left, and its journal must replay to the same decisions.
    """
    with starts_arbiter(lease_s=8.0, notice_s=1.5, grace_s=4.0, journal=str(journal)) as start:
        yield start
    check_replay(journal)


def check_replay(journal: Path) -> None:
    """Every decision of a live arbiter follows from the events in its journal."""
    warnings: list[str] = []
    replay = Replay()
    for place, line in read_journal(journal, warnings.append):
        replay.take(place, line)
    assert [str(parting) for parting in replay.partings] == []
    assert replay.events > 0
    assert replay.skipped == 0


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
