"""A checkpoint writer that kills itself after so many bytes."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import torch

from themis_ray.workloads import save_checkpoint
from themis_ray.workloads.saver import Saver

SAVES = 3


def write_until_killed(folder: str, step: int, fatal_byte: int) -> None:
    """One checkpoint, written at once."""
    die_at(fatal_byte)
    save_checkpoint(folder, state_of(step), step)


def train_until_killed(folder: str, step: int, fatal_byte: int) -> None:
    """Some checkpoints after that of ``step``, written by a thread while the next one is made."""
    die_at(fatal_byte)
    saver = Saver()
    for saved in range(step + 1, step + SAVES + 1):
        taken = saver.take(state_of(saved))
        saver.write(partial(save_checkpoint, folder, taken, saved))
    saver.close()


def state_of(step: int) -> dict[str, Any]:
    return {"step": step, "weights": torch.full((500,), float(step)), "random": None}


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
