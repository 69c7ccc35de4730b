"""What commands print (one JSON document, or a table for people) and write."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from themis_ray.errors import InvalidInputError


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


def check_file_to_write(option: str, file: str) -> None:
    """Find before the work that its result could not be kept.

    Raises:
        InvalidInputError: The file is a folder, or its folder is not there.
    """
    path = Path(file)
    if path.is_dir():
        raise InvalidInputError(f"{option}: {file} is a folder; name a file")
    if not path.parent.is_dir():
        raise InvalidInputError(f"{option}: {file}: no folder {path.parent}; make it first")


def write_file(option: str, file: str | Path, text: str) -> None:
    """Write a file that an option names.

    Raises:
        InvalidInputError: It cannot be written.
    """
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InvalidInputError(f"{option}: {file}: {reason}; name another file") from error
