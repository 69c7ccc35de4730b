"""What the seam into Ray relies on, in one place, and the check that it is there.

Relied on (seen on ray 2.60):

* ``PlacementGroupFactory.to_placement_group()`` may return a ``PlacementGroup`` subclass, whose
  ``ready()`` gives the ObjectRef that Tune waits for and whose ``id`` is read only afterwards.
* ``Trial.placement_group_factory`` may be replaced while a trial is PENDING or PAUSED.
* ``TrialScheduler.choose_trial_to_run`` is called in each step of the controller, and
  ``pause_trial(trial, should_checkpoint=False)`` does not count as a failure.
* ``TuneController._cached_trial_decisions`` holds what is to follow a save that is under way.
* ``placement_group(..., bundle_label_selector=[{"ray.io/node-id": ...}], lifetime="detached")``.
* The actor table of the GCS names each actor's placement group.
"""

from __future__ import annotations

import re

from themis_ray.errors import UnsupportedRayError

MINIMUM = (2, 60)


def check_ray_version(version: str | None = None) -> str:
    """Refuse a Ray that is too old.

    Args:
        version: The version to judge; the installed one when None.

    Returns:
        The version.

    Raises:
        UnsupportedRayError: It is older than :data:`MINIMUM`, or Ray is not installed.
    """
    if version is None:
        try:
            import ray
        except ImportError as error:
            raise UnsupportedRayError(
                "Ray is not installed; mend it with: pip install 'ray[tune]>=2.60'"
            ) from error
        version = str(ray.__version__)
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None or (int(match[1]), int(match[2])) < MINIMUM:
        raise UnsupportedRayError(
            f"Ray {version} is too old: themis_ray leases placement groups through parts of Ray "
            f"Tune that are there from {MINIMUM[0]}.{MINIMUM[1]} on; mend it with: "
            "pip install -U 'ray[tune]>=2.60'"
        )
    return version
