"""Writes an arbiter's journal to a file, off the event loop.

:meth:`Journal.record` only puts frozen values into a queue; a thread turns them into text and
writes them, a batch at a time, each batch to the operating system at once, so that a killed
arbiter loses next to nothing. A file that has grown too large is packed and set aside as
``FILE.1.gz``, ``FILE.2.gz``, ..., oldest first. A restarted arbiter goes on in the same file, with
a header of its own.

An arbiter must not stop for its journal: when it cannot be written, that is said once in the log
and in ``themis status``, and the rest is not recorded (a journal with gaps could not be replayed).
"""

from __future__ import annotations

import contextlib
import gzip
import logging
import queue
import shutil
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from themis_ray.core import events as ev
from themis_ray.core.cluster import Machine
from themis_ray.core.commands import Command
from themis_ray.core.journal import Entry, Header, write_line

logger = logging.getLogger(__name__)

MAX_BYTES = 64 * 2**20
KEEP_PARTS = 64
# So many events that are not written yet are taken for a disk that does not answer.
MOST_WAITING = 100_000
BATCH = 1_000
CLOSE_TIMEOUT_S = 10.0

_Item = tuple[float, ev.Event, Sequence[Command], BaseException | None]


class Journal:
    """A journal that is being written.

    Args:
        path: The file; it is gone on with if it is there.
        header: Opens this run.
        max_bytes: A file that has grown larger is set aside.
        keep_parts: So many of those are kept; the oldest go first.

    Attributes:
        path: The file.
        error: Why nothing is recorded any more; None while all is well.
    """

    def __init__(
        self,
        path: Path,
        header: Header,
        *,
        max_bytes: int = MAX_BYTES,
        keep_parts: int = KEEP_PARTS,
    ) -> None:
        self.path = path
        self.error: str | None = None
        self._header = header
        self._max_bytes, self._keep_parts = max_bytes, keep_parts
        self._waiting: queue.Queue[_Item | None] = queue.Queue(MOST_WAITING)
        self._file: BinaryIO | None = None
        self._bytes = 0
        self._machines: tuple[Machine, ...] = ()
        self._thread = threading.Thread(target=self._run, name="themis-journal", daemon=True)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._open(header)
        except OSError as error:
            self._give_up(error)
        self._thread.start()

    # -- the arbiter's side -----------------------------------------------------------------

    def record(
        self,
        now: float,
        event: ev.Event,
        commands: Sequence[Command] = (),
        error: BaseException | None = None,
    ) -> None:
        """Note an event that the core has dealt with; returns at once.

        Args:
            now: The time that the core was told, on the arbiter's clock.
            event: The event.
            commands: What the core answered.
            error: What it raised instead.
        """
        if self.error is not None:
            return
        try:
            self._waiting.put_nowait((now, event, commands, error))
        except queue.Full:
            self._give_up(OSError(f"{MOST_WAITING} events wait to be written"))

    def close(self) -> None:
        """Write what has been recorded, and stop; later events are not recorded."""
        if self._thread.is_alive():
            with contextlib.suppress(queue.Full):
                self._waiting.put(None, timeout=CLOSE_TIMEOUT_S)
            self._thread.join(CLOSE_TIMEOUT_S)

    # -- the thread's side --------------------------------------------------------------------

    def _run(self) -> None:
        ended = False
        while not ended:
            batch = [self._waiting.get()]
            while len(batch) < BATCH and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            ended = None in batch
            if self.error is None:
                try:
                    self._write([item for item in batch if item is not None])
                except Exception as error:  # whatever it is, the arbiter goes on
                    self._give_up(error)
        if self._file is not None:
            with contextlib.suppress(OSError):  # what could not be written cannot be now, either
                self._file.close()

    def _write(self, items: Sequence[_Item]) -> None:
        for item in items:
            if isinstance(item[1], ev.ClusterChanged):
                self._machines = item[1].machines
            self._put(write_line(Entry.of(*item)))
            if self._bytes > self._max_bytes:
                self._set_aside(item[0])
        if self._file is not None:
            self._file.flush()

    def _put(self, text: str) -> None:
        assert self._file is not None
        self._bytes += self._file.write(text.encode())

    def _open(self, header: Header) -> None:
        self._file = self.path.open("a+b")
        self._bytes = self._file.seek(0, 2)
        if self._bytes:
            self._file.seek(-1, 2)
            if self._file.read(1) != b"\n":
                self._put("\n")  # what an earlier run was writing when it was killed
        self._put(write_line(header))
        self._file.flush()

    def _set_aside(self, now: float) -> None:
        """Go on in a new file, and pack the old one."""
        assert self._file is not None
        self._file.close()
        numbers = sorted(parts_of(self.path))
        last = numbers[-1] if numbers else 0
        plain = self.path.with_name(f"{self.path.name}.{last + 1}")
        self.path.rename(plain)
        self._header = replace(
            self._header,
            part=self._header.part + 1,
            now_s=now,
            wall_s=self._header.offset_s + now,
            machines=self._machines,
        )
        self._open(self._header)
        packed = plain.with_name(plain.name + ".gz")
        # Under another name until it is whole: a reader takes whichever of the two is there.
        unfinished = plain.with_name(plain.name + ".tmp")
        with plain.open("rb") as source, gzip.open(unfinished, "wb", compresslevel=5) as target:
            shutil.copyfileobj(source, target)
        unfinished.rename(packed)
        plain.unlink()
        for number in numbers[: max(0, len(numbers) + 1 - self._keep_parts)]:
            for file in parts_of(self.path)[number]:
                file.unlink()

    def _give_up(self, error: BaseException) -> None:
        if self.error is None:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            self.error = reason
            logger.warning(
                "the journal %s cannot be written: %s; the arbiter goes on without it",
                self.path,
                reason,
            )


def parts_of(path: Path) -> dict[int, list[Path]]:
    """The parts of a journal that were set aside, by number; oldest first when sorted."""
    parts: dict[int, list[Path]] = {}
    for file in path.parent.glob(f"{path.name}.*"):
        number = file.name[len(path.name) + 1 :].removesuffix(".gz")
        if number.isdigit():
            parts.setdefault(int(number), []).append(file)
    return parts
