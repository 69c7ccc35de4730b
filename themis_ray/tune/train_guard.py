"""Refuses a Ray Train job inside a leased trial, which would wait for ever.

Ray Train makes a placement group of its own, beside the trial's: its GPUs are not leased, so they
are somebody else's or not there. When a job starts, Ray Train makes an object of each class that
the environment variable ``RAY_TRAIN_CALLBACKS`` names, and Tune can hand that on to its trials.
"""

from __future__ import annotations

import os

from ray.train import UserCallback
from ray.tune.execution import class_cache

from themis_ray.errors import ConfigError
from themis_ray.lease import current_lease

_VARIABLE = "RAY_TRAIN_CALLBACKS"


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


def refuse_in_trials() -> None:
    """Have the trials that this process starts from now on refuse Ray Train jobs."""
    guard = f"{RefuseInLease.__module__}.{RefuseInLease.__qualname__}"
    named = [name for name in os.environ.get(_VARIABLE, "").split(",") if name]
    if guard not in named:
        os.environ[_VARIABLE] = ",".join([*named, guard])
    # Which of its variables Tune gives to trials.
    class_cache.ENV_VARS_TO_PROPAGATE.add(_VARIABLE)
