"""Reads an arbiter's journal: the file, and the parts of it that were set aside before.

A journal that is still being written, or whose arbiter was killed, may end in half a line: that is
passed over with a warning. Anything else that cannot be read is an error with file and line.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from themis_ray.core.journal import Header, Line, read_line
from themis_ray.errors import JournalError
from themis_ray.live.journal import parts_of

Warn = Callable[[str], None]


def read_journal(path: str | Path, warn: Warn) -> Iterator[tuple[str, Line]]:
    """The lines of a journal with all its parts, each with its place (file and line).

    A header is given only where a run begins; one whose ``part`` is above 1 means that the parts
    of the run before it are gone. Lines are read as they are asked for: journals can be long.

    Args:
        path: The journal's file; the parts that were set aside are looked for beside it.
        warn: Told what is not as it should be, and is passed over.

    Raises:
        JournalError: It cannot be read, or it is not a journal; the message names file and line.
    """
    path = Path(path)
    parts = parts_of(path)
    # Unpacked first: a part of which both are there was not yet packed whole.
    files = [sorted(parts[number])[0] for number in sorted(parts)]
    last: Header | None = None
    for file in [*files, path]:
        for place, line in _read_file(file, warn):
            if isinstance(line, Header):
                last, before = line, last
                if _goes_on(before, line):
                    continue
                if line.part > 1:
                    warn(f"{place}: the parts of this run before part {line.part} are gone")
            elif last is None:
                raise JournalError(f"{place}: an event before any header; the beginning is missing")
            yield place, line
    if last is None:
        raise JournalError(
            f"{path} is empty; give the journal of an arbiter (`themis status --json` says where "
            "it is)"
        )


def _goes_on(before: Header | None, header: Header) -> bool:
    """Whether a header only opens another file of the same run."""
    return before is not None and (before.run, before.part + 1) == (header.run, header.part)


def _read_file(file: Path, warn: Warn) -> Iterator[tuple[str, Line]]:
    broken: JournalError | None = None
    ended, first = True, True
    for place, raw in _lines(file):
        try:
            line = read_line(raw.decode("utf-8", errors="replace"), place)
        except JournalError as error:
            if broken is not None or first:
                raise (broken or error) from None
            broken, ended = error, raw.endswith(b"\n")
            continue
        first = False
        if broken is not None:
            # Only a restarted arbiter goes on after half a line.
            if not isinstance(line, Header):
                raise broken
            warn(_torn(broken))
            broken = None
        yield place, line
    if broken is not None:
        if ended:
            raise broken
        warn(_torn(broken))


def _torn(error: JournalError) -> str:
    return f"{error}: passed over, since its arbiter stopped while it was writing it"


def _lines(file: Path) -> Iterator[tuple[str, bytes]]:
    """The lines of a file that are not empty, each with its place."""
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            for number, raw in enumerate(stream, 1):
                if raw.strip():
                    yield f"{file}, line {number}", raw
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise JournalError(f"{file}: not a whole gzip file ({error}); get it anew") from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise JournalError(f"{file}: {reason}; give the path of an arbiter's journal") from error
