"""``tiresias-l``: least attained service, with no prior knowledge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from themis_ray.core.policies.ranked import Key
from themis_ray.core.policies.tiresias import Tiresias


@dataclass(frozen=True)
class TiresiasL(Tiresias):
    """Discretised 2D-LAS: FIFO by start time within a queue (section 3.2.2)."""

    name: ClassVar[str] = "tiresias-l"

    def within(self, queue: int, service: float) -> Key:
        """Nothing comes before the start time."""
        return ()
