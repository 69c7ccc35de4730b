"""Runs every benchmark of this folder: ``python tests/benchmarks/run_all.py [--quick]``.

A benchmark is a file ``*_bench.py``; options are passed on to each.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main() -> int:
    """Run them one after the other; returns how many failed."""
    failed = 0
    for file in sorted(Path(__file__).parent.glob("*_bench.py")):
        print(f"\n== {file.stem} ==", flush=True)
        failed += subprocess.run([sys.executable, str(file), *sys.argv[1:]]).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
