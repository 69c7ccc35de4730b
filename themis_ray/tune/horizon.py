"""How many iterations a trial has, and how many trials a search has: the work left."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from themis_ray.searchers.metrics import concurrency_of

logger = logging.getLogger(__name__)

DEFAULT_ITERATIONS = 100
ITERATION_ATTR = "training_iteration"


def iterations_of(trial: Any, base: Any, given: int | None) -> tuple[float, str]:
    """The iterations of a trial from its first to its last.

    Looked for in this order: the scheduler's ``iterations_per_trial``, the trial's stop criterion
    on ``training_iteration``, the wrapped scheduler's ``max_t``.

    Args:
        trial: The Tune trial.
        base: The wrapped scheduler.
        given: ``iterations_per_trial``.

    Returns:
        The number, and where it comes from; ``"assumed"`` when nothing tells.
    """
    if given is not None:
        return float(given), "iterations_per_trial"
    found: list[tuple[float, str]] = []
    stop = getattr(trial, "stopping_criterion", None)
    if isinstance(stop, Mapping) and ITERATION_ATTR in stop:
        found.append((float(stop[ITERATION_ATTR]), "stop criterion"))
    max_t = max_t_of(base)
    if max_t is not None:
        found.append((max_t, f"max_t of {type(base).__name__}"))
    return min(found, default=(float(DEFAULT_ITERATIONS), "assumed"))


def max_t_of(base: Any) -> float | None:
    """The wrapped scheduler's last iteration; None when it has none or counts something else."""
    if getattr(base, "_time_attr", ITERATION_ATTR) != ITERATION_ATTR:
        return None
    for name in ("_max_t", "_max_t_attr"):
        value = getattr(base, name, None)
        if isinstance(value, int | float) and 0 < value < math.inf:
            return float(value)
    return None


def trials_of(controller: Any) -> tuple[int, float]:
    """Trials that the search will still create, and how many it runs at once at the most.

    Args:
        controller: Tune's controller (or its wrapper).

    Returns:
        ``(to_come, concurrency)``; concurrency is ``inf`` when it is not limited.
    """
    search = controller.search_alg
    total = getattr(search, "total_samples", None)
    existing = len(controller.get_trials())
    finished = bool(search.is_finished()) if hasattr(search, "is_finished") else False
    to_come = 0 if finished or not total else max(0, int(total) - existing)
    return to_come, concurrency_of(search)
