"""``srsf``: shortest remaining service first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from themis_ray.core.policies.base import RoundView
from themis_ray.core.policies.ranked import Key, Ranked
from themis_ray.core.policies.takers import Taker


@dataclass(frozen=True)
class Srsf(Ranked):
    """The job with the fewest GPU-seconds left goes first; preemptive.

    SRTF in two dimensions: remaining time times GPUs (Tiresias, NSDI '19, section 2.2, Table 1),
    the start of a job that does not run included.
    """

    name: ClassVar[str] = "srsf"
    preempts: ClassVar[bool] = True

    def key(self, taker: Taker, view: RoundView) -> Key:
        """GPU-seconds left."""
        return (taker.job.work_left_gpu_s + taker.start_s * taker.job.max_gpus,)
