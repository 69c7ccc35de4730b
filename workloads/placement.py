"""Where the processes of a job are, as the placement slowdown depends on it."""

from __future__ import annotations

from collections import Counter

import ray
from ray.util.placement_group import PlacementGroup

from ..core.cluster import Allocation, Cluster, Machine
from ..core.slowdown import Signature
from ..live.placement import RACK_LABEL


def signature_of(lease: PlacementGroup | None, world: int) -> Signature:
    """The placement of a job's processes.

    Args:
        lease: The placement group whose first ``world`` bundles hold them; ``None`` for a job of
            this process alone.
        world: Number of processes.
    """
    if lease is None or world == 1:
        counts = {"here": 1}
    else:
        homes = ray.util.placement_group_table(lease)["bundles_to_node_id"]
        counts = dict(Counter(homes[rank] for rank in range(world)))
    racks = _racks() if len(counts) > 1 else {}
    machines = tuple(Machine(node, gpus, racks.get(node, "r0")) for node, gpus in counts.items())
    return Signature.of(Allocation(counts), Cluster(machines))


def _racks() -> dict[str, str]:
    return {node["NodeID"]: node.get("Labels", {}).get(RACK_LABEL, "r0") for node in ray.nodes()}
