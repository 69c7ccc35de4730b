"""Refuses a Ray Train job inside a leased trial, which would wait for ever.

Ray Train makes a placement group of its own, beside the trial's: its GPUs are not leased, so they
are somebody else's or not there. Ray Train loads the classes that the environment variable
``RAY_TRAIN_CALLBACKS`` names when a job starts; :func:`.warm_start.warm_runtime_env` sets it.
"""

from __future__ import annotations

from ray.train import UserCallback

from ..errors import ConfigError
from ..lease import current_lease


class RefuseInLease(UserCallback):  # type: ignore[misc]  # ray is untyped
    """Made when a Ray Train job starts, before it asks for resources.

    Raises:
        ConfigError: This process is a trial under ``ThemisScheduler``.
    """

    def __init__(self) -> None:
        lease = current_lease()
        if lease is not None:
            raise ConfigError(
                f"a Ray Train trainer inside a trial of {lease.app!r} would ask for GPUs outside "
                f"the trial's lease of {lease.gpus} {lease.unit}s and wait for ever. Train in the "
                "trial itself with themis_ray.workloads.ElasticTrainer, which runs one process for "
                "each leased GPU (docs/workloads.md has recipes for other loops)"
            )
