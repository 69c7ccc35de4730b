"""Whether a trial would lose work if it were paused, and whether now is the time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.trainable import Trainable
from ray.tune.trainable.function_trainable import FunctionTrainable


def saves_itself(cls: Any) -> bool:
    """Whether a class trainable has its own ``save_checkpoint``: a pause then loses nothing."""
    if not isinstance(cls, type) or issubclass(cls, FunctionTrainable):
        return False
    return getattr(cls, "save_checkpoint", None) is not Trainable.save_checkpoint


def loses_nothing(trial: Trial, checkpointed: float | None) -> bool:
    """Whether a trial can be paused without losing all its work.

    Args:
        trial: The trial.
        checkpointed: Iterations covered by the last checkpoint seen; None without one.
    """
    if checkpointed is not None or trial.checkpoint is not None:
        return True
    return saves_itself(trial.get_trainable_cls())


def saved_now(trial: Trial, result: Mapping[str, Any], force: bool) -> bool:
    """Whether to pause at this report: now, if nothing would be lost; else at a later one.

    Args:
        trial: The trial.
        result: Its report.
        force: Trials that never save are paused all the same.
    """
    return (
        saves_itself(trial.get_trainable_cls())
        or bool(result.get("should_checkpoint"))
        or (trial.checkpoint is None and force)
    )
