"""``tiresias-g``: the Gittins index, for when the distribution of service is known."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from themis_ray.core.policies.gittins import GittinsTable
from themis_ray.core.policies.ranked import Key
from themis_ray.core.policies.tiresias import Tiresias
from themis_ray.errors import ConfigError


@dataclass(frozen=True)
class TiresiasG(Tiresias):
    """Discretised 2D-Gittins (section 3.2.2).

    Every queue but the last is sorted by the Gittins index, greatest first; in the last the
    quantum is unbounded and the order is FIFO by start time.

    Args:
        services: The GPU-seconds of earlier jobs: the distribution, each equally likely. With
            none, the policy knows nothing and is ``tiresias-l`` (pseudocode 1).
    """

    services: tuple[float, ...] = ()

    name: ClassVar[str] = "tiresias-g"

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(not s > 0 for s in self.services):
            raise ConfigError("services of 0 or less; list the GPU-seconds of earlier jobs")

    @cached_property
    def _table(self) -> GittinsTable:
        return GittinsTable(self.services)

    def within(self, queue: int, service: float) -> Key:
        """The index, negated."""
        if not self.services or queue > len(self.thresholds):
            return (0.0,)
        return (-self._table.index(service),)
