"""``sf``: smallest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from themis_ray.core.policies.base import RoundView
from themis_ray.core.policies.ranked import Key, Ranked
from themis_ray.core.policies.takers import Taker


@dataclass(frozen=True)
class SmallestFirst(Ranked):
    """The job that asks for the fewest GPUs goes first; preemptive.

    The purely spatial baseline of Tiresias (NSDI '19, section 2.2, Table 1). As in its authors'
    simulator, a smaller job that arrives later displaces a larger one that runs.
    """

    name: ClassVar[str] = "sf"
    preempts: ClassVar[bool] = True

    def key(self, taker: Taker, view: RoundView) -> Key:
        """GPUs asked for."""
        return (float(taker.job.max_gpus),)
