"""What a simulation leaves behind."""

from __future__ import annotations

from dataclasses import dataclass, field

from themis_ray.core.cluster import Allocation


@dataclass(frozen=True, slots=True)
class AppRecord:
    """One app that has finished.

    Attributes:
        id: Its name.
        arrival_s: When it arrived.
        finish_s: When its last job ended.
        queued_s: Seconds in which none of its jobs had GPUs.
        gpu_s: GPU-seconds that its jobs were given, moves included.
        score_gpu_s: Those GPU-seconds, each divided by S of its placement.
        preemptions: How often a job had to leave its GPUs before its end.
        restarts: How often a job left its GPUs to go on with more.
    """

    id: str
    arrival_s: float
    finish_s: float
    queued_s: float
    gpu_s: float
    score_gpu_s: float
    preemptions: int
    restarts: int

    @property
    def jct_s(self) -> float:
        """Job completion time: from its arrival to its end."""
        return self.finish_s - self.arrival_s


@dataclass(frozen=True, slots=True)
class Stay:
    """A job on its GPUs, from ``begin_s`` to ``end_s``; ``s`` is S of the placement."""

    app: str
    job: str
    gpus: Allocation
    begin_s: float
    end_s: float
    s: float

    @property
    def size(self) -> int:
        """How many GPUs."""
        return self.gpus.size


@dataclass(slots=True)
class RunResult:
    """A simulation that has run to its end.

    Attributes:
        policy: The policy's name.
        gpus: R_C.
        apps: In the order in which they finished.
        rounds: Rounds held.
        events: Events that the arbiter took in.
        stays: Who was where and when, if that was to be recorded.
    """

    policy: str
    gpus: int
    apps: list[AppRecord] = field(default_factory=list)
    rounds: int = 0
    events: int = 0
    stays: list[Stay] = field(default_factory=list)
