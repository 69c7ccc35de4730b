"""Placement groups in Ray: made on named nodes, seen to be gone, and found again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup

from themis_ray.core.cluster import Allocation

NAME_PREFIX = "themis-lease/"
NODE_LABEL = "ray.io/node-id"
RACK_LABEL = "themis.io/rack"


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A placement group of ours as Ray lists it.

    Attributes:
        id: Ray's id, in hexadecimal.
        group: The name under which the core knows it.
        state: ``PENDING``, ``PREPARED``, ``CREATED``, ``RESCHEDULING`` or ``REMOVED``.
        bundles: Ray's node id and the resources of each bundle.
    """

    id: str
    group: str
    state: str
    bundles: tuple[tuple[str, dict[str, float]], ...] = ()


def create(
    group: str,
    allocation: Allocation,
    bundle: Mapping[str, float],
    node_ids: Mapping[str, str],
) -> PlacementGroup:
    """Ask Ray for a placement group; returns before it exists.

    Args:
        group: The core's name of the group.
        allocation: Leased units per machine; a bundle for each unit.
        bundle: The resources of one unit.
        node_ids: Ray's node id of each machine.

    Returns:
        The group, detached: it outlives the arbiter that made it.
    """
    nodes = [
        node_ids[machine]
        for machine, count in sorted(allocation.items(), key=lambda item: (-item[1], item[0]))
        for _ in range(count)
    ]
    return ray.util.placement_group(
        [dict(bundle) for _ in nodes],
        strategy="PACK",
        name=NAME_PREFIX + group,
        lifetime="detached",
        bundle_label_selector=[{NODE_LABEL: node} for node in nodes],
    )


def remove(placement_group_id: str) -> None:
    """Have Ray remove a group and kill what runs in it; harmless when it is gone already."""
    with contextlib.suppress(ValueError):
        ray.util.remove_placement_group(handle(placement_group_id))


def handle(placement_group_id: str) -> PlacementGroup:
    """The group of an id."""
    return PlacementGroup(ray.PlacementGroupID(bytes.fromhex(placement_group_id)))


def ours() -> list[GroupInfo]:
    """All placement groups that an arbiter of this cluster has made and that Ray remembers."""
    return [
        GroupInfo(
            info["placement_group_id"],
            info["name"][len(NAME_PREFIX) :],
            info["state"],
            tuple((info["bundles_to_node_id"][i], b) for i, b in info["bundles"].items()),
        )
        for info in ray.util.placement_group_table().values()
        if info["name"].startswith(NAME_PREFIX)
    ]


def occupied(placement_group_ids: Iterable[str]) -> set[str]:
    """Which of the groups still have a living actor in them.

    A removed group says nothing about its workers: they are killed a moment later.
    """
    from ray.core.generated import gcs_pb2

    wanted = set(placement_group_ids)
    if not wanted:
        return set()
    accessor: Any = ray._private.state.state._connect_and_get_accessor()
    alive = set()
    for raw in accessor.get_actor_table(None, "ALIVE"):
        alive.add(gcs_pb2.ActorTableData.FromString(raw).placement_group_id.hex())
    return wanted & alive
