"""What schedulers of ours read off Tune: scores that can be compared, and limits of a search."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def value_of(result: Mapping[str, Any], metric: str | None) -> float | None:
    """A reported metric as a number; NaN when it diverged, None when it is missing or no number."""
    value: Any = result.get(metric) if metric else None
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    # An infinite loss and an infinite score alike come from training that diverged.
    return number if math.isfinite(number) else math.nan


def score_of(result: Mapping[str, Any], metric: str | None, mode: str | None) -> float | None:
    """A report's score, the greater the better; ``-inf`` when diverged, None when missing."""
    value = value_of(result, metric)
    if value is None:
        return None
    if math.isnan(value):
        return -math.inf
    return -value if mode == "min" else value


def concurrency_of(search: Any) -> float:
    """How many trials a Tune search algorithm runs at once at the most; ``inf`` without a limit."""
    limits = []
    seen = search
    while seen is not None:
        limit = getattr(seen, "max_concurrent", None)
        if isinstance(limit, int) and limit > 0:
            limits.append(float(limit))
        seen = getattr(seen, "searcher", None)
    return min(limits, default=math.inf)
