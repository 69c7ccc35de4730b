"""Measures S(G) of a model on the placements that a Ray cluster offers.

Each placement is a placement group pinned to its machines, in which an elastic job trains for a
few dozen iterations, as a trial with such a lease would.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

from themis_ray.core.cluster import Machine
from themis_ray.errors import ThemisError
from themis_ray.live import cluster_watch, placement
from themis_ray.profiling.nvml import Nvml
from themis_ray.profiling.placements import Placement, plan
from themis_ray.profiling.profile_file import Measured, ModelProfile, with_slowdowns
from themis_ray.profiling.skew import Skew
from themis_ray.profiling.timers import Timing
from themis_ray.profiling.topology import Topology

# How long a placement group, and then the first process of a job in it, may take to start.
START_TIMEOUT_S = 300.0
# How long all machines together may take to say what NVML knows; one that does not has one slot.
TOPOLOGY_TIMEOUT_S = 60.0
# Steps between two words to whoever watches. Each run of steps begins with a step that waits for
# the other processes, so they must be few among many.
_STEPS_AT_ONCE = 10


@dataclass(frozen=True, slots=True)
class ProfileJob:
    """What to run.

    Attributes:
        config: As of :class:`themis_ray.workloads.trainable.ClassifierConfig`.
        iterations: Iterations to measure on each placement.
        warmup: Iterations before those.
        comm_hook: A DDP communication hook; plain averaging when None.
    """

    config: Mapping[str, Any]
    iterations: int = 30
    warmup: int = 3
    comm_hook: Callable[[Any, Any], Any] | None = None

    @property
    def model(self) -> str:
        """The model's name."""
        return str(self.config["model"])


@dataclass(frozen=True, slots=True)
class ClusterFound:
    """The cluster to measure on.

    Attributes:
        unit: ``"GPU"``, or ``"CPU"`` where there is no GPU.
        machines: What is free on each machine that has anything free; slots by NVML.
        node_ids: Ray's node id of each machine.
    """

    unit: str
    machines: tuple[Machine, ...]
    node_ids: Mapping[str, str]


def look_around() -> ClusterFound:
    """What the Ray cluster that this process is connected to has free now.

    Each process of a job takes a CPU besides its GPU, so a machine offers no more than the fewer
    of both.
    """
    nodes = cluster_watch.read_nodes()
    unit = cluster_watch.leased_unit(nodes)
    topologies = _topologies({n.machine: n.id for n in nodes if unit == "GPU"})
    machines = []
    for node in nodes:
        free = int(min(node.available.get(r, 0.0) for r in {"CPU", unit}))
        if free:
            slots = _slots(topologies.get(node.machine), free)
            machines.append(Machine(node.machine, free, node.rack, slots))
    return ClusterFound(unit, tuple(machines), {n.machine: n.id for n in nodes})


def _slots(topology: Topology | None, free: int) -> int:
    """Slots as NVML has them, if all GPUs that it sees are Ray's and free."""
    return topology.slots if topology is not None and len(topology.gpus) == free else 1


def _topologies(node_ids: Mapping[str, str]) -> dict[str, Topology]:
    def read() -> Topology:
        with Nvml() as nvml:
            return nvml.topology()

    task = ray.remote(num_cpus=0)(read)
    machines = {
        task.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)
        ).remote(): machine
        for machine, node in node_ids.items()
    }
    if not machines:
        return {}
    said, late = ray.wait(
        list(machines), num_returns=len(machines), timeout=TOPOLOGY_TIMEOUT_S, fetch_local=False
    )
    for ref in late:
        ray.cancel(ref, force=True)
    out = {}
    for ref in said:
        with contextlib.suppress(RayError):
            out[machines[ref]] = ray.get(ref)
    return out


class _Trial:
    """Rank 0 of a job, as Tune starts it for a trial."""

    def __init__(self, job: ProfileJob) -> None:
        from themis_ray.workloads.trainable import ClassifierJob

        self._job = ClassifierJob(job.config, job.comm_hook)

    def ready(self) -> None:
        """Answer, once the process is there."""

    def warm_up(self, steps: int, window: int) -> None:
        if steps:
            self._job.trainer.run(steps)
        self._job.trainer.restart_timing(window)

    def run(self, steps: int) -> None:
        self._job.trainer.run(steps)

    def result(self) -> tuple[Timing, Skew, str]:
        trainer = self._job.trainer
        return trainer.timing, trainer.skew, trainer.device.type

    def close(self) -> None:
        self._job.close()


@dataclass(slots=True)
class _Gathered:
    measured: list[Measured] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    skew: Skew | None = None
    device: str = ""


def profile_model(
    job: ProfileJob,
    counts: Sequence[int],
    cluster: ClusterFound | None = None,
    on_steps: Callable[[Placement, int], None] = lambda placement, steps: None,
) -> ModelProfile:
    """Measure a model on each placement that the cluster offers.

    Args:
        job: What to run.
        counts: Numbers of GPUs.
        cluster: As of :func:`look_around`.
        on_steps: Told of each placement's progress, in iterations; of 0 at its start.

    Returns:
        The profile; what could not be measured is named in it.
    """
    cluster = cluster or look_around()
    chosen = plan(cluster.machines, counts)
    gathered = _Gathered(missing=list(chosen.missing))
    for where in chosen.placements:
        on_steps(where, 0)
        try:
            _measure(job, where, cluster, on_steps, gathered)
        except (RayError, ThemisError, TimeoutError) as error:
            gathered.missing.append(f"{where.signature}: it failed: {_last_line(error)}")
    return ModelProfile(
        skew=None if gathered.skew is None else gathered.skew.share,
        settings={**job.config, "unit": cluster.unit, "device": gathered.device},
        measured=with_slowdowns(gathered.measured),
        not_measured=gathered.missing,
    )


def _last_line(error: Exception) -> str:
    """What went wrong, without the tracebacks that Ray puts before it."""
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__


def _measure(
    job: ProfileJob,
    where: Placement,
    cluster: ClusterFound,
    on_steps: Callable[[Placement, int], None],
    gathered: _Gathered,
) -> None:
    with _trial(job, where, cluster) as trial:
        # The trainer itself watches over hanging steps, so there is no limit here.
        ray.get(trial.warm_up.remote(job.warmup, job.iterations))
        left = job.iterations
        while left:
            steps = min(left, _STEPS_AT_ONCE)
            ray.get(trial.run.remote(steps))
            on_steps(where, steps)
            left -= steps
        timing, skew, gathered.device = ray.get(trial.result.remote())
        ray.get(trial.close.remote())
    gathered.measured.append(
        Measured(where.signature, timing.median_s, timing.spread_s, timing.count)
    )
    if gathered.skew is None or skew.exchanged:
        gathered.skew = skew


@contextlib.contextmanager
def _trial(job: ProfileJob, where: Placement, cluster: ClusterFound) -> Iterator[Any]:
    """Rank 0's actor in a placement group that is gone afterwards."""
    nodes = [cluster.node_ids[m] for m, count in where.allocation.items() for _ in range(count)]
    # Not by the name or with the lifetime of a lease: it ends with this process.
    group = ray.util.placement_group(
        [{"CPU": 1.0, cluster.unit: 1.0} for _ in nodes],
        bundle_label_selector=[{placement.NODE_LABEL: node} for node in nodes],
    )
    try:
        if not group.wait(START_TIMEOUT_S):
            raise TimeoutError(f"Ray did not reserve its GPUs within {START_TIMEOUT_S:g} s")
        strategy = PlacementGroupSchedulingStrategy(
            placement_group=group,
            placement_group_bundle_index=0,
            placement_group_capture_child_tasks=True,
        )
        options = {"num_cpus": 1, "num_gpus": int(cluster.unit == "GPU")}
        trial = ray.remote(_Trial).options(scheduling_strategy=strategy, **options).remote(job)
        if not ray.wait([trial.ready.remote()], timeout=START_TIMEOUT_S)[0]:
            raise TimeoutError(f"its first process did not start within {START_TIMEOUT_S:g} s")
        yield trial
    finally:
        ray.util.remove_placement_group(group)
