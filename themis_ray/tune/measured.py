"""What trials say of their own speed, and of which model they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.tune.experiment import Trial


def model_of(trial: Trial, shared: set[str]) -> str:
    """The key of a trial's S(G): the name in ``config["model"]``, else the trainable's.

    A name in the config means the same to all apps, and is added to ``shared``; a trainable's own
    name (``train``, ``objective``) means something only within its app.
    """
    named = (trial.config or {}).get("model")
    if not isinstance(named, str) or not named:
        return str(trial.trainable_name)
    shared.add(named.lower())
    return named.lower()


def measured_in(result: Mapping[str, Any]) -> dict[str, float | None]:
    """Seconds per training step and the tensor-size skew, where a trial reports usable ones."""
    return {
        "step_s": _within(result.get("themis/iter_s"), 1e-9, 1e9),
        "skew": _within(result.get("themis/skew"), 0.0, 1.0),
    }


def _within(value: Any, least: float, most: float) -> float | None:
    """A number from a report, if it is one and can be meant."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if least <= value <= most else None
