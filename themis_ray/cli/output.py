"""What commands print (one JSON document, or a table for people) and write."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
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


def print_table(
    title: str, headings: Sequence[str], rows: Mapping[str, Sequence[str]], first: str
) -> None:
    """Print rows of figures, none of them cut short.

    On a terminal that is too narrow, the columns go to several tables below each other; what is
    sent to a file or on to another program is as wide as it has to be.

    Args:
        title: Above the table.
        headings: Of the columns after the first.
        rows: The texts of each row, by the text in its first column.
        first: The heading of the first column.
    """
    from rich.console import Console
    from rich.table import Table

    console = Console()
    widths = [
        max(len(heading), *(len(row[i]) for row in rows.values()), 0)
        for i, heading in enumerate(headings)
    ]
    border = 3  # of each column, and 1 more at the end
    of_first = max(map(len, (first, *rows))) + border + 1
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = max(console.width, of_first + sum(widths) + border * len(widths))
    for part in _parts([width + border for width in widths], console.width - of_first):
        table = Table(title=title)
        table.add_column(first, no_wrap=True)
        for i in part:
            table.add_column(headings[i], justify="right", no_wrap=True)
        for name, cells in rows.items():
            table.add_row(name, *(cells[i] for i in part))
        console.print(table)
        title = ""


def _parts(widths: Sequence[int], room: int) -> Iterator[range]:
    """Columns that fit beside each other, at least one at a time."""
    begin, used = 0, 0
    for i, width in enumerate(widths):
        if i > begin and used + width > room:
            yield range(begin, i)
            begin, used = i, 0
        used += width
    yield range(begin, len(widths))
