"""What Ray's nodes have to lease: GPUs, less those of other Ray jobs, as CPUs and memory allow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import ray

from themis_ray.core.cluster import Machine
from themis_ray.live.placement import RACK_LABEL


@dataclass(frozen=True, slots=True)
class NodeView:
    """A live Ray node.

    Attributes:
        id: Ray's node id.
        host: Its host name or address.
        rack: The value of its rack label, or ``"r0"``.
        total: All its resources.
        available: What Ray counts as free now.
    """

    id: str
    host: str
    rack: str
    total: Mapping[str, float]
    available: Mapping[str, float]

    @property
    def machine(self) -> str:
        """The core's machine id: short enough to read, and unique where hosts run many raylets."""
        return f"{self.host}-{self.id[:8]}"


def read_nodes() -> list[NodeView]:
    """The nodes that are alive, by id."""
    free = ray._private.state.available_resources_per_node()
    return sorted(
        (
            NodeView(
                id=node["NodeID"],
                host=node.get("NodeManagerHostname") or node["NodeManagerAddress"],
                rack=node.get("Labels", {}).get(RACK_LABEL, "r0"),
                total=node["Resources"],
                available=free.get(node["NodeID"], {}),
            )
            for node in ray.nodes()
            if node["Alive"]
        ),
        key=lambda node: node.id,
    )


def leased_unit(nodes: Iterable[NodeView]) -> str:
    """``"GPU"`` when any node has one, else ``"CPU"``."""
    return "GPU" if any(node.total.get("GPU", 0) >= 1 for node in nodes) else "CPU"


@dataclass(slots=True)
class ClusterWatch:
    """Turns what Ray says of its nodes into the machines that the core may lease.

    Attributes:
        unit: What is leased, ``"GPU"`` or ``"CPU"``.
        bundles: The resources of one unit, for each app: a node is offered only as far as it
            can hold the most demanding of them.
    """

    unit: str
    bundles: dict[str, Mapping[str, float]] = field(default_factory=dict)
    # What other jobs use of each node, as of the last look at which nothing of ours was moving.
    _foreign: dict[str, dict[str, float]] = field(default_factory=dict)

    def machines(
        self,
        nodes: Iterable[NodeView],
        ours: Mapping[str, Mapping[str, float]],
        moving: Iterable[str],
        leased: Mapping[str, int],
    ) -> tuple[Machine, ...]:
        """The machines to lease.

        Args:
            nodes: From :func:`read_nodes`.
            ours: Resources that our own placement groups hold, per node.
            moving: Nodes on which one of our groups is being made or removed, where Ray's
                figures cannot be told apart from ours just now.
            leased: Units leased on each node now. An app that joins with a more demanding bundle
                does not shrink what others already hold.
        """
        busy = set(moving)
        out = []
        for node in nodes:
            if node.machine not in busy:
                self._foreign[node.machine] = {
                    resource: max(
                        0.0,
                        total
                        - node.available.get(resource, 0.0)
                        - ours.get(node.machine, {}).get(resource, 0.0),
                    )
                    for resource, total in node.total.items()
                }
            foreign = self._foreign.get(node.machine, {})
            here = node.total.get(self.unit, 0.0) - foreign.get(self.unit, 0.0)
            units = max(
                self._units(node.total, foreign),
                min(math.floor(here + 1e-6), leased.get(node.machine, 0)),
            )
            out.append(Machine(node.machine, units, node.rack))
        return tuple(out)

    def foreign(self, machine: str) -> int:
        """Leasable units of a machine that other Ray jobs hold."""
        return math.ceil(self._foreign.get(machine, {}).get(self.unit, 0.0) - 1e-6)

    def need(self) -> dict[str, float]:
        """The most that one unit takes, over all apps."""
        need: dict[str, float] = {self.unit: 1.0}
        for bundle in self.bundles.values():
            for resource, amount in bundle.items():
                need[resource] = max(need.get(resource, 0.0), amount)
        return need

    def _units(self, total: Mapping[str, float], foreign: Mapping[str, float]) -> int:
        units = math.inf
        for resource, amount in self.need().items():
            if amount > 0:
                have = total.get(resource, 0.0) - foreign.get(resource, 0.0)
                units = min(units, math.floor(have / amount + 1e-6))
        return max(0, int(units))
