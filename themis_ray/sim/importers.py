"""Readers of public trace formats; :func:`parse` finds out which one a file has.

| format | looks like |
|---|---|
| ``themis`` | this project's CSV, see :mod:`themis_ray.sim.traces` |
| ``tiresias`` | CSV ``job_id,num_gpu,submit_time,iterations,model_name,duration,interval`` |
| ``gavel`` | ten columns between tabs, no header; needs its throughput table |
| ``philly-csv`` | CSV ``timestamp,duration,num_gpus,...`` with ISO times |
| ``philly-json`` | Philly's ``cluster_job_log``, a JSON list of jobs with their attempts |
| ``pcs`` | CSV ``app_id,submit_time,service,num_jobs,sleep_time,model_name`` |

Jobs of these traces ran on a fixed number of GPUs, so they become rigid gangs. Their lengths are
taken to hold on well-placed GPUs: GPU-seconds = duration * GPUs.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from themis_ray.errors import TraceError
from themis_ray.sim.jobs import Trace, TraceApp, TraceJob
from themis_ray.sim.traces import REQUIRED, Row, cells_of, parse_themis_csv, read_text, table

TIRESIAS = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration")
PHILLY_CSV = ("timestamp", "duration", "num_gpus")
PCS = ("app_id", "service", "num_jobs", "sleep_time")
GAVEL_COLUMNS = (
    "job type",
    "command",
    "directory",
    "step argument",
    "needs data",
    "total steps",
    "GPUs",
    "weight",
    "SLO",
    "arrival",
)
# Lengths in Gavel's table are those of this GPU.
GAVEL_GPU = "v100"


def detect(text: str, source: str) -> str:
    """Which format a file has, by its first line.

    Raises:
        TraceError: None of the known ones.
    """
    if text.lstrip()[:1] in ("[", "{"):
        return "philly-json"
    first = text.lstrip("\r\n").split("\n", 1)[0]
    if first.count("\t") == len(GAVEL_COLUMNS) - 1:
        return "gavel"
    header = {name.strip() for name in first.split(",")}
    for name, required in (("tiresias", TIRESIAS), ("philly-csv", PHILLY_CSV), ("pcs", PCS)):
        if header.issuperset(required):
            return name
    if header & set(REQUIRED):
        return "themis"
    if not first.strip():
        raise TraceError(f"{source} is empty")
    raise TraceError(
        f"{source}, line 1: no known trace format; the columns are to be {','.join(REQUIRED)}, "
        f"or name one of the formats {', '.join(FORMATS)}"
    )


def parse(
    text: str, source: str, *, format: str = "auto", throughputs: str | Path | None = None
) -> Trace:
    """Read the text of a trace file.

    Args:
        text: The text.
        source: The file's name, for messages.
        format: One of :data:`FORMATS`, or ``auto``.
        throughputs: Gavel's throughput table, a path.

    Raises:
        TraceError: It cannot be used; the message names line and column.
    """
    if format == "auto":
        format = detect(text, source)
    if format == "gavel":
        return parse_gavel(text, source, throughputs)
    if format not in _PARSERS:
        raise TraceError(f"no trace format {format!r}; there are: {', '.join(FORMATS)}")
    return _PARSERS[format](text, source)


def _gang(name: str, arrival_s: float, model: str, gpus: int, duration_s: float) -> TraceApp:
    """An app of one rigid job that takes ``duration_s`` on its GPUs; an iteration is a second."""
    steps = max(1.0, float(round(duration_s)))
    job = TraceJob("0", model, gpus, steps, duration_s * gpus / steps, min_gpus=gpus)
    return TraceApp(name, arrival_s, "single", (job,))


def parse_tiresias(text: str, source: str) -> Trace:
    """Tiresias' simulator input; ``duration`` is in seconds on ``num_gpu`` GPUs."""
    apps = []
    for row in table(text, source, TIRESIAS, None):
        gpus = row.whole("num_gpu", 1)
        steps = row.real("iterations", above=0)
        serial_s = row.real("duration", above=0) * gpus / steps
        job = TraceJob("0", row.text("model_name"), gpus, steps, serial_s, min_gpus=gpus)
        arrival_s = row.real("submit_time", at_least=0)
        apps.append((row, TraceApp(f"j{row.text('job_id')}", arrival_s, "single", (job,))))
    return _trace(source, apps, "job_id")


def parse_philly_csv(text: str, source: str) -> Trace:
    """``timestamp,duration,num_gpus,...``: ISO times and seconds, as Sia and others list Philly."""
    rows = []
    for row in table(text, source, PHILLY_CSV, None):
        stamp = row.text("timestamp")
        try:
            at_s = _epoch_s(stamp)
        except ValueError:
            row.fail("timestamp", f"{stamp!r} is not an ISO time such as 2017-10-03T12:00:00")
        rows.append((row, at_s, row.real("duration", above=0)))
    start_s = min((at_s for _, at_s, _ in rows), default=0.0)
    apps = []
    for i, (row, at_s, duration_s) in enumerate(rows):
        name = next((row.text(c) for c in ("job_id", "jobid", "name") if row.given(c)), f"j{i}")
        model = next((row.text(c) for c in ("model", "application") if row.given(c)), "unknown")
        gpus = row.whole("num_gpus", 1)
        apps.append((row, _gang(name, at_s - start_s, model, gpus, duration_s)))
    return _trace(source, apps, "timestamp")


def parse_pcs(text: str, source: str) -> Trace:
    """PCS' traces: ``service`` is the GPU-seconds of the app, divided evenly among its jobs.

    As in its own simulator, each app arrives ``sleep_time`` after the one before it.
    """
    apps, now = [], 0.0
    for row in table(text, source, PCS, None):
        count = row.whole("num_jobs", 1)
        work = row.real("service", above=0) / count
        now += row.real("sleep_time", at_least=0)
        model = row.text("model_name") if row.given("model_name") else "unknown"
        steps = max(1.0, float(round(work)))
        jobs = tuple(TraceJob(str(i), model, 1, steps, work / steps) for i in range(count))
        apps.append((row, TraceApp(f"a{row.text('app_id')}", now, "single", jobs)))
    return _trace(source, apps, "app_id")


def _trace(source: str, apps: list[tuple[Row, TraceApp]], column: str) -> Trace:
    seen: dict[str, TraceApp] = {}
    for row, app in apps:
        if app.id in seen:
            row.fail(column, f"{app.id!r} was listed before")
        seen[app.id] = app
    if not seen:
        raise TraceError(f"{source} lists no job")
    return Trace.of(source, seen)


def parse_gavel(text: str, source: str, throughputs: str | Path | None) -> Trace:
    """Gavel's trace: steps divided by the steps per second of its own throughput table."""
    if throughputs is None:
        raise TraceError(
            f"{source} is a Gavel trace: lengths are in steps; give its throughput table too "
            "(--throughputs FILE)"
        )
    rates = _gavel_rates(throughputs)
    columns = {name: i for i, name in enumerate(GAVEL_COLUMNS)}
    apps = []
    for i, (line, cells) in enumerate(cells_of(text, source, "\t")):
        row = Row(source, line, columns, cells)
        if len(cells) != len(GAVEL_COLUMNS):
            raise TraceError(
                f"{source}, line {row.line}: {len(cells)} cells between tabs, "
                f"not {len(GAVEL_COLUMNS)}"
            )
        model, gpus = row.text("job type"), row.whole("GPUs", 1)
        rate = rates.get((model, gpus))
        if rate is None:
            row.fail("job type", f"{model!r} on {gpus} GPUs is not in the throughput table")
        job = TraceJob(
            "0", model, gpus, row.real("total steps", above=0), gpus / rate, min_gpus=gpus
        )
        arrival_s = row.real("arrival", at_least=0)
        weight = row.real("weight", above=0)
        apps.append((row, TraceApp(f"j{i}", arrival_s, "single", (job,), weight)))
    return _trace(source, apps, "job type")


def _gavel_rates(path: str | Path) -> dict[tuple[str, int], float]:
    """Steps per second by (job type, GPUs)."""
    name = Path(path).name
    try:
        document = json.loads(read_text(path))
        entries = document[GAVEL_GPU]
        return {
            (str(model), int(gpus)): float(rates["null"])
            for (model, gpus), rates in ((ast.literal_eval(k), v) for k, v in entries.items())
            if float(rates["null"]) > 0
        }
    except json.JSONDecodeError as error:
        raise TraceError(f"{name}, line {error.lineno}: not JSON: {error.msg}") from error
    except (AttributeError, KeyError, TypeError, ValueError, SyntaxError) as error:
        raise TraceError(
            f"{name} is no throughput table: {error!r}; it has the form "
            f'{{"{GAVEL_GPU}": {{"(\'type\', gpus)": {{"null": steps/s}}}}}}'
        ) from error


def parse_philly_json(text: str, source: str) -> Trace:
    """Philly's ``cluster_job_log``: each job on the GPUs of its last attempt.

    The length is that of all attempts together. Jobs that never ran, or whose end is not known,
    are left out, as are those without GPUs.
    """
    try:
        entries = json.loads(text)
    except json.JSONDecodeError as error:
        raise TraceError(
            f"{source}, line {error.lineno}, column {error.colno}: not JSON: {error.msg}"
        ) from error
    if not isinstance(entries, list):
        raise TraceError(f"{source}: not a list of jobs")
    found = []
    for i, entry in enumerate(entries):
        try:
            job = _philly_job(entry)
        except KeyError as error:
            raise TraceError(f"{source}, job {i + 1} of the list: {error} is missing") from error
        except (AttributeError, TypeError, ValueError) as error:
            raise TraceError(f"{source}, job {i + 1} of the list: {error}") from error
        if job is not None:
            found.append((str(entry.get("jobid", f"j{i}")), *job))
    if not found:
        raise TraceError(f"{source} lists no job that ran")
    start = min(when for _, when, _, _ in found)
    apps: dict[str, TraceApp] = {}
    for name, when, gpus, duration_s in found:
        unique = name if name not in apps else f"{name}#{len(apps)}"
        apps[unique] = _gang(unique, when - start, "unknown", gpus, duration_s)
    return Trace.of(source, apps)


def _philly_job(entry: dict[str, Any]) -> tuple[float, int, float] | None:
    """When a job was submitted, its GPUs and its length in seconds."""
    duration_s, gpus = 0.0, 0
    for attempt in entry["attempts"]:
        begin, end = _time(attempt.get("start_time")), _time(attempt.get("end_time"))
        count = sum(len(part["gpus"]) for part in attempt.get("detail", ()))
        if begin is None or end is None or not count:
            continue
        duration_s += max(0.0, end - begin)
        gpus = count
    submitted = _time(entry["submitted_time"])
    if submitted is None or gpus == 0 or duration_s <= 0 or not math.isfinite(duration_s):
        return None
    return submitted, gpus, duration_s


def _time(text: str | None) -> float | None:
    """Seconds of a time such as ``2017-10-09 07:02:34``; None when it is not known."""
    if not text or text == "None":
        return None
    return _epoch_s(text.removesuffix(" PST").removesuffix(" PDT"))


def _epoch_s(text: str) -> float:
    """An ISO time in seconds; one without a zone counts as UTC, wherever this runs."""
    when = datetime.fromisoformat(text)
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


_PARSERS: dict[str, Callable[[str, str], Trace]] = {
    "themis": parse_themis_csv,
    "tiresias": parse_tiresias,
    "philly-csv": parse_philly_csv,
    "philly-json": parse_philly_json,
    "pcs": parse_pcs,
}
FORMATS = (*_PARSERS, "gavel")
