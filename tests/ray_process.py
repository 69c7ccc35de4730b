"""Ray in tests: an isolated cluster of several raylets, and drivers in processes of their own."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent

# The fixtures that start Ray. Tests with them are marked ``ray`` and run one after the other, since
# each wants the machine for itself.
RAY_FIXTURES = frozenset({"cluster", "local_ray", "ray_here", "two_nodes", "two_racks"})

# What becomes of leases is tested under the paper's rule: there a rival who claims the greatest r
# can be sure to win.
RULES = {
    "policy": "themis-paper",
    "payment": "time",
    "leftover": "placed",
    "min_bidders": 3,
    "lease_grid_s": 0.0,
}


@contextlib.contextmanager
def isolated_ray_environment() -> Iterator[Path]:
    """Ray's files in a short temporary folder (socket paths are limited), no token, no address."""
    assert "PYTEST_XDIST_WORKER" not in os.environ, "a fixture that is not among RAY_FIXTURES"
    folder = Path(tempfile.mkdtemp(prefix="thm"))
    kept = dict(os.environ)
    os.environ.update(
        RAY_TMPDIR=str(folder),
        RAY_AUTH_MODE="disabled",
        RAY_ENABLE_UV_RUN_RUNTIME_ENV="0",
        TUNE_DISABLE_AUTO_CALLBACK_LOGGERS="1",
        OMP_NUM_THREADS="1",
    )
    for name in ("RAY_ADDRESS", "MLFLOW_TRACKING_URI"):
        os.environ.pop(name, None)
    try:
        yield folder
    finally:
        os.environ.clear()
        os.environ.update(kept)
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def small_ray(num_gpus: int, **options: Any) -> Iterator[None]:
    """A Ray of one node with so many logical GPUs; this process is its driver."""
    import ray

    with isolated_ray_environment() as folder:
        ray.init(
            num_cpus=4,
            num_gpus=num_gpus,
            include_dashboard=False,
            log_to_driver=False,
            _temp_dir=str(folder / "ray"),
            **options,
        )
        try:
            yield
        finally:
            ray.shutdown()


@contextlib.contextmanager
def starts_arbiter(**defaults: Any) -> Iterator[Callable[..., dict[str, Any]]]:
    """A function that starts the arbiter with options; afterwards nothing of ours may be left."""
    import themis_ray

    def start(**options: Any) -> dict[str, Any]:
        return themis_ray.start(**{**RULES, **defaults, **options})

    yield start
    close_agents()
    themis_ray.stop()
    eventually("all of ours is gone", lambda: not left_over(), 30)


def close_agents() -> None:
    """End the AGENTs that a failed test has left: they would join the next test's arbiter."""
    from themis_ray.rpc.client import AgentClient

    for thing in gc.get_objects():
        if type(thing) is AgentClient:  # asking a proxy for its class may import things
            thing.close("the test is over")


@contextlib.contextmanager
def ray_cluster(nodes: list[dict[str, Any]]) -> Iterator[Any]:
    """A cluster with these nodes, the first of them the head; this process is connected to it."""
    import ray
    from ray.cluster_utils import Cluster

    with isolated_ray_environment() as folder:
        head = {**nodes[0], "include_dashboard": False, "temp_dir": str(folder / "ray")}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            for node in nodes[1:]:
                cluster.add_node(**node)
            cluster.wait_for_nodes()
            ray.init(address=cluster.address, log_to_driver=False)
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()


def eventually(what: str, condition: Callable[[], Any], timeout_s: float = 60.0) -> Any:
    """Wait until ``condition`` is true (or returns something true), and return that.

    Raises:
        AssertionError: It was not, for ``timeout_s`` seconds.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what}")
        time.sleep(0.1)


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


class Driver:
    """A data scientist's driver: ``driver_app.py`` in a process of its own.

    Args:
        folder: Where its files go.
        address: The Ray cluster's address.
        **options: See ``driver_app.py``.
    """

    def __init__(self, folder: Path, address: str, **options: Any) -> None:
        self.app = options["app"]
        self.folder = folder / self.app
        self.folder.mkdir(parents=True)
        self.options = {**options, "folder": str(self.folder)}
        self.log = self.folder / "driver.log"
        script = TESTS / "driver_app.py"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", str(script), json.dumps(self.options)],
                env={**os.environ, "RAY_ADDRESS": address},
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def result(self, timeout_s: float = 180.0) -> dict[str, Any]:
        """Wait for its end and return what it wrote."""
        code = self.process.wait(timeout_s)
        assert code == 0, f"{self.app} ended with {code}:\n{self.log.read_text()[-4000:]}"
        document: dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        return document

    def steps(self) -> list[dict[str, Any]]:
        """Every step that a trial of the app has done, in order, as the trials logged them."""
        out = []
        for file in sorted(self.folder.glob("steps-*.jsonl")):
            out += [json.loads(line) for line in file.read_text().splitlines()]
        return sorted(out, key=lambda entry: entry["time"])

    def stop(self) -> None:
        """Kill it if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
