"""Snapshots of a job in memory, written to the storage while the training goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ..errors import CheckpointError
from .snapshot import snapshot

_BUFFERS = 2


class Saver:
    """Two buffers in the CPU's memory, and one thread that writes them in order.

    While one buffer is being written, the next snapshot goes to the other; only a third snapshot
    waits. The newest snapshot is also what a job goes back to when it loses a process.
    """

    def __init__(self) -> None:
        self._buffers: list[Any] = [None] * _BUFFERS
        self._writes: list[Future[Path] | None] = [None] * _BUFFERS
        self._slot = 0
        self._thread: ThreadPoolExecutor | None = None
        self.newest: Mapping[str, Any] | None = None

    def take(self, state: Mapping[str, Any]) -> Any:
        """Copy a state into the buffer that is not the newest one.

        Raises:
            CheckpointError: What was in the buffer could not be written.
        """
        slot = (self._slot + 1) % _BUFFERS
        self._wait_for(slot)
        self._slot = slot
        self._buffers[slot] = snapshot(state, self._buffers[slot])
        self.newest = self._buffers[slot]
        return self.newest

    def write(self, job: Callable[[], Path]) -> None:
        """Have the thread run ``job``, which writes the newest snapshot; does not wait."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="themis-checkpoint")
        self._writes[self._slot] = self._thread.submit(job)

    @property
    def slot(self) -> int:
        """The buffer of the newest snapshot; its number comes again when that is written."""
        return self._slot

    def flush(self) -> None:
        """Wait until all snapshots are written.

        Raises:
            CheckpointError: One could not be written.
        """
        for slot in range(_BUFFERS):
            self._wait_for(slot)

    def close(self) -> None:
        """Wait until all is written, end the thread, free the buffers.

        Raises:
            CheckpointError: A snapshot could not be written.
        """
        try:
            self.flush()
        finally:
            if self._thread is not None:
                self._thread.shutdown(wait=True)
                self._thread = None
            self._buffers = [None] * _BUFFERS
            self.newest = None

    def _wait_for(self, slot: int) -> None:
        write, self._writes[slot] = self._writes[slot], None
        if write is None:
            return
        try:
            write.result()
        except CheckpointError:
            raise
        except Exception as error:
            raise CheckpointError(
                f"a checkpoint could not be written in the background: {error!r}"
            ) from error
