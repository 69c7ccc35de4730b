"""Figures of a run: what ``themis simulate`` prints for each policy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from themis_ray.sim.jobs import Trace
from themis_ray.sim.judges import JUDGES, Judge, ideal_times_s
from themis_ray.sim.records import AppRecord, RunResult

# An app that finishes just in time, but for rounding, counts as in time.
TOLERANCE = 1e-9


def fairness(result: RunResult, trace: Trace, judge: Judge, seed: int = 0) -> dict[str, float]:
    """r of each app, by one of the judges, in the order of arrival."""
    ideals = ideal_times_s(judge, trace, result.apps, result.gpus, seed)
    taken = {record.id: record.jct_s for record in result.apps}
    return {app.id: taken[app.id] / ideals[app.id] for app in trace.apps}


def jain(values: Sequence[float]) -> float:
    """Jain's index: 1 when all are equal, 1/n when one has everything."""
    squares = math.fsum(v * v for v in values)
    return math.fsum(values) ** 2 / (len(values) * squares) if squares else 1.0


def percentile(values: Sequence[float], percent: float) -> float:
    """A percentile, linear between the two nearest values."""
    return float(np.percentile(values, percent))


def summary(
    result: RunResult, trace: Trace, judge: Judge = "fluid", seed: int = 0
) -> dict[str, Any]:
    """All figures of a run.

    Seconds and GPU-hours; ``queue`` is time in which no job of an app had GPUs;
    ``mean_placement_score`` is the mean of 1 / S(G) over all GPU time given; ``utilisation`` is
    GPU time given over that of the whole cluster from the first arrival to the last finish.
    """
    by_judge = {name: fairness(result, trace, name, seed) for name in JUDGES}
    records = {record.id: record for record in result.apps}
    in_order = [records[app.id] for app in trace.apps]
    return figures_of(in_order, by_judge, judge, gpus=result.gpus, rounds=result.rounds)


def figures_of(
    records: Sequence[AppRecord],
    by_judge: Mapping[Judge, Mapping[str, float]],
    judge: Judge,
    *,
    gpus: int,
    rounds: int,
) -> dict[str, Any]:
    """The figures of some apps, simulated or live.

    Args:
        records: What happened to them.
        by_judge: r of each of them, by each judge.
        judge: The judge whose r's the figures are of.
        gpus: R_C.
        rounds: Rounds held.
    """
    r = by_judge[judge]
    figures: dict[str, Any] = {"judge": judge}
    figures |= _of_r([r[record.id] for record in records])
    figures |= _of_times(records, gpus)
    figures["rounds"] = rounds
    figures["max_r_by_judge"] = {
        name: max(values[record.id] for record in records) for name, values in by_judge.items()
    }
    figures["apps"] = [
        {
            "id": record.id,
            "r": r[record.id],
            "jct_s": record.jct_s,
            "gpu_hours": record.gpu_s / 3600,
        }
        for record in records
    ]
    rounded: dict[str, Any] = _rounded(figures)
    return rounded


def _of_r(r: Sequence[float]) -> dict[str, float]:
    return {
        "max_r": max(r),
        "min_r": min(r),
        "median_r": percentile(r, 50),
        "p95_r": percentile(r, 95),
        "p99_r": percentile(r, 99),
        "mean_r": math.fsum(r) / len(r),
        "jain_r": jain(r),
        "fraction_r_le_1": sum(value <= 1 + TOLERANCE for value in r) / len(r),
    }


def _of_times(records: Sequence[AppRecord], gpus: int) -> dict[str, float]:
    jct = [record.jct_s for record in records]
    queue = [record.queued_s for record in records]
    gpu_s = math.fsum(record.gpu_s for record in records)
    score = math.fsum(record.score_gpu_s for record in records)
    begin_s = min(record.arrival_s for record in records)
    makespan_s = max(record.finish_s for record in records) - begin_s
    return {
        "gpu_hours": gpu_s / 3600,
        "avg_jct_s": math.fsum(jct) / len(jct),
        "median_jct_s": percentile(jct, 50),
        "p95_jct_s": percentile(jct, 95),
        "p99_jct_s": percentile(jct, 99),
        "makespan_s": makespan_s,
        "avg_queue_s": math.fsum(queue) / len(queue),
        "median_queue_s": percentile(queue, 50),
        "p95_queue_s": percentile(queue, 95),
        "preemptions": sum(record.preemptions for record in records),
        "mean_placement_score": score / gpu_s if gpu_s else 1.0,
        "utilisation": gpu_s / (gpus * makespan_s) if makespan_s else 0.0,
    }


def _rounded(value: Any) -> Any:
    """Numbers to a millionth: virtual time has instants a rounding error apart."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return value
