"""Reads traces: the project's own CSV, and through :mod:`themis_ray.sim.importers` public formats.

The CSV has one row per job, with the columns :data:`REQUIRED` and any of :data:`OPTIONAL`, in any
order. Rows with the same ``app_id`` are jobs of one app. A file that ends in ``.gz`` is unpacked.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import NoReturn

from themis_ray.errors import InvalidInputError, TraceError
from themis_ray.sim.jobs import TUNERS, Trace, TraceApp, TraceJob, Tuner

REQUIRED = (
    "app_id",
    "job_id",
    "arrival_s",
    "tuner",
    "model",
    "max_gpus",
    "iterations",
    "serial_iter_s",
)
OPTIONAL = ("min_gpus", "weight", "final_loss", "decay")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table, with what a message needs to point at it.

    Attributes:
        source: The file's name.
        line: Its line number, from 1.
        columns: Column number of each name, from 0.
        cells: The cells.
    """

    source: str
    line: int
    columns: dict[str, int]
    cells: list[str]

    def fail(self, column: str, what: str) -> NoReturn:
        """Refuse a cell.

        Raises:
            TraceError: Always; it names the line and the column.
        """
        at = self.columns.get(column)
        where = f"column {at + 1} ({column})" if at is not None else column
        raise TraceError(f"{self.source}, line {self.line}, {where}: {what}")

    def text(self, column: str) -> str:
        """A cell that must not be empty."""
        value = self.cells[self.columns[column]].strip()
        if not value:
            self.fail(column, "is empty")
        return value

    def whole(self, column: str, at_least: int) -> int:
        """A whole number."""
        text = self.text(column)
        try:
            value = int(text)
        except ValueError:
            self.fail(column, f"{text!r} is not a whole number")
        if value < at_least:
            self.fail(column, f"{value} is too small; use {at_least} or more")
        return value

    def real(self, column: str, *, above: float = -math.inf, at_least: float = -math.inf) -> float:
        """A finite number, greater than ``above`` and no less than ``at_least``."""
        text = self.text(column)
        try:
            value = float(text)
        except ValueError:
            self.fail(column, f"{text!r} is not a number")
        if not math.isfinite(value):
            self.fail(column, f"{text!r} is not finite")
        if value <= above:
            self.fail(column, f"{text} is too small; use a number above {above:g}")
        if value < at_least:
            self.fail(column, f"{text} is too small; use {at_least:g} or more")
        return value

    def given(self, column: str) -> bool:
        """Whether the column exists and its cell is not empty."""
        at = self.columns.get(column)
        return at is not None and bool(self.cells[at].strip())


def read_text(path: str | Path) -> str:
    """The text of a file, unpacked if its name ends in ``.gz``.

    Raises:
        TraceError: It cannot be read.
    """
    path = Path(path)
    try:
        raw = path.read_bytes()
        data = gzip.decompress(raw) if path.suffix == ".gz" else raw
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: not a text file ({error.reason}); use UTF-8") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TraceError(f"{path}: not a whole gzip file ({error}); pack it again") from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise TraceError(f"{path}: {reason}; give the path of a trace file") from error


def table(
    text: str, source: str, required: tuple[str, ...], optional: tuple[str, ...] | None = ()
) -> Iterator[Row]:
    """The rows of a CSV file with a header.

    Args:
        text: The file's text.
        source: Its name, for messages.
        required: Columns it must have.
        optional: Columns it may have besides; None for any.

    Raises:
        TraceError: The header or the number of cells of a line is wrong.
    """
    lines = cells_of(text, source, ",")
    line, cells = next(lines, (1, []))
    header = [name.strip() for name in cells]
    if not header:
        raise TraceError(f"{source} is empty; its first line lists the columns")
    _check_header(header, f"{source}, line {line}", required, optional)
    columns = {name: i for i, name in enumerate(header)}
    for line, cells in lines:
        if len(cells) != len(header):
            raise TraceError(
                f"{source}, line {line}: {len(cells)} cells, but the header has "
                f"{len(header)} columns"
            )
        yield Row(source, line, columns, cells)


def cells_of(text: str, source: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The lines of a table that are not blank, each with its number, from 1.

    Raises:
        TraceError: A line cannot be taken apart.
    """
    lines = csv.reader(io.StringIO(text), delimiter=delimiter)
    try:
        for cells in lines:
            if cells and (len(cells) > 1 or cells[0].strip()):
                yield lines.line_num, cells
    except csv.Error as error:
        raise TraceError(
            f"{source}, line {lines.line_num}: {error}; is a quotation mark not closed?"
        ) from error


def _check_header(
    header: list[str], where: str, required: tuple[str, ...], optional: tuple[str, ...] | None
) -> None:
    for name in required:
        if name not in header:
            raise TraceError(f"{where}: the column {name!r} is missing")
    for i, name in enumerate(header):
        if header.index(name) != i:
            raise TraceError(f"{where}, column {i + 1}: {name!r} stands there twice")
        if optional is not None and name not in required and name not in optional:
            near = get_close_matches(name, [*required, *optional], 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(optional)}"
            raise TraceError(f"{where}, column {i + 1}: no column {name!r}; {hint}")


def parse_themis_csv(text: str, source: str) -> Trace:
    """Read the project's own CSV.

    Raises:
        TraceError: With the line and the column.
    """
    apps: dict[str, _OpenApp] = {}
    for row in table(text, source, REQUIRED, OPTIONAL):
        name = row.text("app_id")
        arrival_s = row.real("arrival_s", at_least=0)
        tuner = row.text("tuner")
        if tuner not in TUNERS:
            row.fail("tuner", f"no tuner {tuner!r}; use {', '.join(TUNERS)}")
        weight = row.real("weight", above=0) if row.given("weight") else 1.0
        app = apps.get(name)
        if app is None:
            app = apps[name] = _OpenApp(row.line, arrival_s, tuner, weight, {})
        for column, value, first in (
            ("arrival_s", arrival_s, app.arrival_s),
            ("tuner", tuner, app.tuner),
            ("weight", weight, app.weight),
        ):
            if value != first:
                row.fail(column, f"app {name!r} has {first} in line {app.line}, but {value} here")
        job = _job(row)
        if job.id in app.jobs:
            row.fail("job_id", f"app {name!r} has a job {job.id!r} already")
        app.jobs[job.id] = job
    if not apps:
        raise TraceError(f"{source} lists no job")
    return Trace.of(source, {name: app.close(name) for name, app in apps.items()})


@dataclass(slots=True)
class _OpenApp:
    """An app whose jobs are still being read."""

    line: int
    arrival_s: float
    tuner: Tuner
    weight: float
    jobs: dict[str, TraceJob]

    def close(self, name: str) -> TraceApp:
        return TraceApp(name, self.arrival_s, self.tuner, tuple(self.jobs.values()), self.weight)


def _job(row: Row) -> TraceJob:
    max_gpus = row.whole("max_gpus", 1)
    min_gpus = row.whole("min_gpus", 1) if row.given("min_gpus") else 1
    if min_gpus > max_gpus:
        row.fail("min_gpus", f"{min_gpus} is more than max_gpus, {max_gpus}")
    return TraceJob(
        id=row.text("job_id"),
        model=row.text("model"),
        max_gpus=max_gpus,
        iterations=row.real("iterations", above=0),
        serial_iter_s=row.real("serial_iter_s", above=0),
        min_gpus=min_gpus,
        final_loss=row.real("final_loss", at_least=0) if row.given("final_loss") else None,
        decay=row.real("decay", above=0) if row.given("decay") else None,
    )


def write_themis_csv(trace: Trace) -> str:
    """The project's own CSV of a trace; numbers are written so that they read back the same."""
    jobs = [job for app in trace.apps for job in app.jobs]
    columns = [*REQUIRED, "min_gpus"]
    if any(app.weight != 1 for app in trace.apps):
        columns.append("weight")
    if any(job.final_loss is not None for job in jobs):
        columns += ["final_loss", "decay"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for app in trace.apps:
        for job in app.jobs:
            cells = {
                "app_id": app.id,
                "job_id": job.id,
                "arrival_s": _plain(app.arrival_s),
                "tuner": app.tuner,
                "model": job.model,
                "max_gpus": job.max_gpus,
                "iterations": _plain(job.iterations),
                "serial_iter_s": _plain(job.serial_iter_s),
                "min_gpus": job.min_gpus,
                "weight": _plain(app.weight),
                "final_loss": "" if job.final_loss is None else _plain(job.final_loss),
                "decay": "" if job.decay is None else _plain(job.decay),
            }
            writer.writerow([cells[column] for column in columns])
    return out.getvalue()


def _plain(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def load_trace(
    path: str | Path,
    *,
    format: str = "auto",
    throughputs: str | Path | None = None,
) -> Trace:
    """Read a trace file.

    Args:
        path: The file.
        format: One of :data:`themis_ray.sim.importers.FORMATS`, or ``auto`` to go by the file's
            own look.
        throughputs: Gavel's throughput table (JSON), for its format only.

    Raises:
        TraceError: The file cannot be used; the message names line and column.
    """
    from themis_ray.sim.importers import parse

    try:
        return parse(read_text(path), Path(path).name, format=format, throughputs=throughputs)
    except TraceError:
        raise
    except InvalidInputError as error:
        raise TraceError(f"{Path(path).name}: {error}") from error
