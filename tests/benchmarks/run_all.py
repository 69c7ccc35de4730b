"""Runs the benchmarks of this folder and ends with one table of what they found.

    python tests/benchmarks/run_all.py [--quick] [--only NAME]

A benchmark is a file ``*_bench.py`` that takes ``--quick`` and exits with 0 unless it fails or
misses a target. What belongs into the table it prints by :func:`headlines.headline`; of one that
does not, the last line stands there.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from headlines import parse
from rich import box
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
FILES = {file.stem.removesuffix("_bench"): file for file in sorted(HERE.glob("*_bench.py"))}


@dataclass
class Outcome:
    """What came of a benchmark.

    Attributes:
        name: Its name.
        code: Its exit status.
        took_s: How long it ran.
        headlines: What it told for the table.
        last: Its last line.
    """

    name: str
    code: int = 0
    took_s: float = 0.0
    headlines: list[tuple[str, str, str, str]] = field(default_factory=list)
    last: str = ""


def run(name: str, options: list[str]) -> Outcome:
    """Run one, showing what it prints as it comes."""
    outcome, begin = Outcome(name), time.monotonic()
    command = [sys.executable, str(FILES[name]), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            found = parse(line)
            if found is not None:
                outcome.headlines.append(found)
            outcome.last = line.strip() or outcome.last
    outcome.code, outcome.took_s = process.returncode, time.monotonic() - begin
    return outcome


def table_of(outcomes: list[Outcome]) -> Table:
    """All that was found."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("benchmark")
    table.add_column("took", justify="right")
    for heading in ("measured", "found", "target", "met"):
        table.add_column(heading, overflow="fold")
    for outcome in outcomes:
        rows = outcome.headlines or [(outcome.last, "", "", "")]
        if outcome.code:
            rows = [*rows, (f"it failed: exit status {outcome.code}", "", "", "NO")]
        for i, row in enumerate(rows):
            first = (outcome.name, f"{outcome.took_s:.0f} s") if i == 0 else ("", "")
            table.add_row(*first, *row, end_section=row is rows[-1])
    return table


def load() -> str:
    """How busy the machine is."""
    return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def main() -> int:
    """Run them one after the other; returns how many failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    parser.add_argument("--only", choices=FILES, action="append", help="this one; may be repeated")
    asked = parser.parse_args()
    before = load()
    outcomes = []
    for name in asked.only or FILES:
        print(f"\n== {name} ==", flush=True)
        outcomes.append(run(name, ["--quick"] if asked.quick else []))
    console = Console(width=None if sys.stdout.isatty() else 110)
    console.print(table_of(outcomes))
    console.print(f"{before} at the start, {load()} at the end.", highlight=False)
    console.print("On a machine that is busy, compare figures of one run only.")
    return sum(outcome.code != 0 for outcome in outcomes)


if __name__ == "__main__":
    sys.exit(main())
