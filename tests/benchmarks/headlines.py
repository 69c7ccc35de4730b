"""What a benchmark tells ``run_all.py``: lines for the table at the end."""

from __future__ import annotations

import os
import sys

MARK = "=> "
BETWEEN = " | "


def headline(what: str, found: str, target: str = "", met: bool | None = None) -> None:
    """Print a result that belongs into the table.

    Args:
        what: What was measured, in words.
        found: The figure, with its unit.
        target: What it should be; empty when there is none.
        met: Whether it is; None when there is no target.
    """
    verdict = "" if met is None else ("yes" if met else "NO")
    print(MARK + BETWEEN.join((what, found, target, verdict)), flush=True)


def parse(line: str) -> tuple[str, str, str, str] | None:
    """What :func:`headline` printed; None for another line."""
    cells = line.rstrip("\n").removeprefix(MARK).split(BETWEEN)
    if not line.startswith(MARK) or len(cells) != 4:
        return None
    return cells[0], cells[1], cells[2], cells[3]


def mute_libraries() -> None:
    """Send what C libraries print (HiGHS does) to nowhere, and only that."""
    sys.stdout.flush()
    ours = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    sys.stdout = os.fdopen(ours, "w", encoding="utf-8")
