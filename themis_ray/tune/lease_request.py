"""How a trial waits for a lease: a resource request whose placement group the arbiter makes.

Tune asks a request for a placement group, waits for the group's ``ready()`` and only then uses
its ``id``. So ``ready()`` may be a call that waits at the arbiter, and the group may be one that
the arbiter has made. Tune itself is not patched; see :mod:`themis_ray.live.ray_version`.
"""

from __future__ import annotations

from collections.abc import Mapping

from ray.tune.execution.placement_groups import PlacementGroupFactory
from ray.util.placement_group import PlacementGroup

from themis_ray.agent.groups import group_name
from themis_ray.agent.session import session_of


class LeaseRequest(PlacementGroupFactory):  # type: ignore[misc]  # ray is untyped
    """A trial's request for one placement group of leased units.

    Each (re)start of a trial takes a new one: Tune tells requests apart by their content, and the
    group's name makes it unique.

    Args:
        app: The app's name.
        bundle: The resources of one leased unit.
        trial_id: Tune's id of the trial.
    """

    def __init__(self, app: str, bundle: Mapping[str, float], trial_id: str) -> None:
        self.app = app
        self.trial_id = trial_id
        self.group = group_name(app, trial_id)
        super().__init__([dict(bundle)], name=self.group)

    def to_placement_group(self) -> PlacementGroup:
        """Tell the app's AGENT that the trial waits, and give Tune a group to wait for."""
        return session_of(self.app).await_lease(self.trial_id, self.group)
