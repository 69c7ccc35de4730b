"""What a simulated app needs of the simulation that it is in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from themis_ray.core import events as ev
from themis_ray.core.cluster import Cluster
from themis_ray.sim.cluster_file import SimCluster
from themis_ray.sim.engine import Engine
from themis_ray.sim.jobrun import JobRun
from themis_ray.sim.settings import SimConfig

if TYPE_CHECKING:
    from themis_ray.sim.app import SimApp


class World(Protocol):
    """What an app needs of the simulation.

    Attributes:
        engine: Time.
        sim: The cluster, machines that are down included.
        cluster: Its machines.
        config: Assumptions.
        slot_gpus: GPUs in the largest slot of any machine.
    """

    engine: Engine
    sim: SimCluster
    cluster: Cluster
    config: SimConfig
    slot_gpus: int

    def send(self, event: ev.Event) -> None:
        """Tell the arbiter something, once what happens now has been dealt with."""

    def used(self, app: SimApp, job: JobRun, now: float) -> None:
        """A job leaves its GPUs."""

    def finished(self, app: SimApp, now: float) -> None:
        """An app is done."""
