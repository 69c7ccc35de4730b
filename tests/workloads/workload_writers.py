"""A checkpoint writer that kills itself after so many bytes."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import workload_jobs as jobs

SAVES = 3


def train_until_killed(folder: str, fatal_byte: int, wait: bool) -> None:
    """Resume a job; a step and a checkpoint, some times, and dead at a byte of one of them."""
    with jobs.make_trainer() as trainer:
        trainer.restore(folder)
        die_at(fatal_byte)
        for _ in range(SAVES):
            trainer.run(1)
            trainer.save(folder, wait=wait)


def die_at(fatal_byte: int) -> None:
    """Have this process killed when it writes its ``fatal_byte``-th byte."""
    left = fatal_byte
    real_open = Path.open

    def open_fatal(path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        file = real_open(path, mode, *arguments, **options)
        return FatalFile(file) if "w" in mode else file

    class FatalFile:
        def __init__(self, file: Any) -> None:
            self._file = file

        def write(self, data: Any) -> int:
            nonlocal left
            view = memoryview(data).cast("B")
            if len(view) > left:
                self._file.write(view[:left])
                self._file.flush()
                os.kill(os.getpid(), signal.SIGKILL)
            left -= len(view)
            return int(self._file.write(view))

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

        def __enter__(self) -> FatalFile:
            return self

        def __exit__(self, *exception: Any) -> None:
            self._file.close()

    Path.open = open_fatal  # type: ignore[assignment,method-assign]
