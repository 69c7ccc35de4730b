"""What every command prints: one JSON document, or a table for people."""

from __future__ import annotations

import json
import math
import sys
from typing import Any


def finite(value: Any) -> Any:
    """``value`` with every infinite or undefined number as None, since JSON has none of them."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def print_json(document: Any) -> None:
    """Write one JSON document to standard output."""
    sys.stdout.write(json.dumps(finite(document), allow_nan=False) + "\n")
    sys.stdout.flush()


def number(value: float | None, digits: int = 3) -> str:
    """A figure for a table; a word for an infinite one."""
    if value is None or not math.isfinite(value):
        return "infinite"
    return f"{value:,.{digits}f}".rstrip("0").rstrip(".") if digits else f"{value:,.0f}"
