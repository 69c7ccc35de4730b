"""All policies on the traces of others, on clusters small enough for their jobs to be in each
other's way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, partial
from itertools import pairwise
from pathlib import Path

from themis_ray.core.policies import POLICIES
from themis_ray.reproduce.figure import Figure
from themis_ray.reproduce.mechanism import CLAIMS, mechanism_values
from themis_ray.reproduce.runs import Run, cluster_of, fours
from themis_ray.reproduce.sizes import Sizes
from themis_ray.sim.jobs import TraceApp
from themis_ray.sim.traces import load_trace

CONTENTIONS = (1, 2, 4)


def traces_figures(file: Path) -> tuple[Figure, ...]:
    """A figure for each contention.

    Args:
        file: The trace.
    """
    return tuple(_figure(file, contention) for contention in CONTENTIONS)


def _figure(file: Path, contention: int) -> Figure:
    return Figure(
        name=f"traces-{file.name.split('.')[0]}-{contention}x",
        title=f"All policies on {file.name}, {contention}x contention",
        setup=partial(_setup, file, contention),
        runs=partial(_runs, file, contention),
        values=mechanism_values,
        claims=CLAIMS,
    )


def _setup(file: Path, contention: int, sizes: Sizes) -> str:
    gpus = cluster_of(_cluster(file, contention, sizes, skip=0)).cluster.gpus
    return (
        f"{sizes.trace_apps} apps of the trace, the next ones for each seed if it has as many, on "
        "machines of 4 GPUs: as many as the apps would hold if none ever waited, on average over "
        f"the work, divided by the contention ({gpus} GPUs for the first seed). 10-minute leases, "
        "45 s to move a job."
    )


def _runs(file: Path, contention: int, sizes: Sizes, seed: int) -> Mapping[str, Run]:
    windows = max(1, len(_apps(file)) // sizes.trace_apps)
    skip = seed % windows * sizes.trace_apps
    cluster = _cluster(file, contention, sizes, skip)
    return {
        name: Run(cluster, str(file), name, seed=seed, first=sizes.trace_apps, skip=skip)
        for name in POLICIES
    }


@cache
def _apps(file: Path) -> tuple[TraceApp, ...]:
    return load_trace(file).apps


def _cluster(file: Path, contention: int, sizes: Sizes, skip: int) -> str:
    """A cluster for a contention, and for the largest job."""
    apps = _apps(file)[skip : skip + sizes.trace_apps]
    largest = max(job.min_gpus for app in apps for job in app.jobs)
    return fours(max(largest, demand(apps) / contention))


def demand(apps: Iterable[TraceApp]) -> float:
    """GPUs that apps would hold together if none waited, as a GPU-second of their work sees it.

    Each job holds its most GPUs from the arrival of its app. The plain mean over time would be
    small in a trace with a long tail.
    """
    changes = sorted(
        change
        for app in apps
        for job in app.jobs
        for change in (
            (app.arrival_s, job.max_gpus),
            (app.arrival_s + job.work_gpu_s / job.max_gpus, -job.max_gpus),
        )
    )
    held, work, seen = 0, 0.0, 0.0
    for (start_s, change), (end_s, _) in pairwise(changes):
        held += change
        work += held * (end_s - start_s)
        seen += held**2 * (end_s - start_s)
    return seen / work
