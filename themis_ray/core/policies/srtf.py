"""``srtf``: shortest remaining time first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from themis_ray.core.policies.base import RoundView
from themis_ray.core.policies.ranked import Key, Ranked
from themis_ray.core.policies.takers import Taker


@dataclass(frozen=True)
class Srtf(Ranked):
    """The job that would end soonest on the GPUs it asks for goes first; preemptive.

    The baseline that knows all durations (Tiresias, NSDI '19, Tables 1 and 3). Remaining times
    are the apps' own, without slowdown, on ``max_gpus`` GPUs; a job that does not run has to
    start first, which counts.
    """

    name: ClassVar[str] = "srtf"
    preempts: ClassVar[bool] = True

    def key(self, taker: Taker, view: RoundView) -> Key:
        """Seconds left on all the GPUs that it can use."""
        return (taker.job.work_left_gpu_s / taker.job.max_gpus + taker.start_s,)
