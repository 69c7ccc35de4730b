"""``drf``: the app with the least dominant share comes next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from themis_ray.core.policies.base import RoundView
from themis_ray.core.policies.filling import Filling
from themis_ray.core.policies.ranked import Key
from themis_ray.core.policies.takers import Taker


@dataclass(frozen=True)
class Drf(Filling):
    """Progressive filling by dominant share (Ghodsi et al., NSDI '11, algorithm 1).

    GPUs are the only thing that is leased, so an app's dominant share is its share of the GPUs,
    divided by its weight, and DRF is instantaneous max-min fair share: the bar for the others.
    """

    name: ClassVar[str] = "drf"
    by_app: ClassVar[bool] = True

    def step_key(
        self, taker: Taker, gpus: int, step: int, of_app: int, view: RoundView
    ) -> Key | None:
        """The app's share before the step; of equal ones, the app that was served least so far."""
        share = of_app / max(1, view.cluster.gpus) / taker.app.weight
        return (share, taker.app.attained_gpu_s / taker.app.weight)
