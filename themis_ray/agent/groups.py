"""Placement groups that the arbiter makes, as a driver sees them before and after."""

from __future__ import annotations

import uuid
from typing import Any

import ray
from ray._raylet import PlacementGroupID
from ray.util.placement_group import PlacementGroup


def group_name(app: str, trial_id: str) -> str:
    """A new name for a group of a trial: each lease of a trial has a group of its own."""
    return f"{app}/{trial_id}/{uuid.uuid4().hex[:8]}"


class LeasedPlacementGroup(PlacementGroup):  # type: ignore[misc]  # ray is untyped
    """A placement group that the arbiter makes; known by its request until it is there.

    Args:
        group: The request's name.
        granted: Resolves to Ray's id of the group.
    """

    def __init__(self, group: str, granted: ray.ObjectRef) -> None:
        self._group = group
        self._granted = granted
        self._placeholder = PlacementGroupID.from_random()
        self._known: PlacementGroupID | None = None
        self.bundle_cache: list[dict[str, float]] | None = None

    @property
    def id(self) -> PlacementGroupID:
        """Ray's id; before the lease is granted, one that no group has."""
        if self._known is None:
            ready, _ = ray.wait([self._granted], timeout=0)
            if not ready:
                return self._placeholder
            try:
                self._known = PlacementGroupID(bytes.fromhex(ray.get(self._granted)))
            except (ray.exceptions.RayError, ray.exceptions.TaskCancelledError):
                return self._placeholder  # cancelled, or the arbiter is gone
        return self._known

    @property
    def granted_id(self) -> str:
        """Ray's id in hexadecimal; empty before the lease is granted."""
        known = LeasedPlacementGroup.id.fget(self)  # type: ignore[attr-defined]
        return "" if known == self._placeholder else str(known.hex())

    def ready(self) -> ray.ObjectRef:
        """What Tune waits for."""
        return self._granted

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LeasedPlacementGroup):
            return self._group == other._group
        return isinstance(other, PlacementGroup) and bool(self.id == other.id)

    def __hash__(self) -> int:
        return hash(self._group)

    def __reduce__(self) -> tuple[Any, ...]:
        return (PlacementGroup, (self.id, self.bundle_cache))


class SharedPlacementGroup(LeasedPlacementGroup):
    """One trial's part of a group that several trials share.

    Tune removes a trial's group when the trial leaves it, and with it whatever else runs there.
    So once the trial's actor has been placed, this no longer says which group it is; the session
    gives the group back when the last of its trials has left.
    """

    placed = False

    @property
    def id(self) -> PlacementGroupID:
        """Ray's id, until the trial's actor has been placed; then one that no group has."""
        return self._placeholder if self.placed else super().id
