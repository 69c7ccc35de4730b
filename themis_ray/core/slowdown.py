"""S(G): how much slower an iteration gets when the GPUs are apart (THEMIS, section 4.3).

A prior by placement level (1 within a machine, 1.1 across machines, 1.3 across racks, footnote 3
of the paper) stands until a placement has been measured; then the measured value replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from themis_ray.core.cluster import Allocation, Cluster, Level
from themis_ray.errors import InvalidInputError

PRIORS: Mapping[Level, float] = {
    Level.SLOT: 1.0,
    Level.MACHINE: 1.0,
    Level.RACK: 1.1,
    Level.CLUSTER: 1.3,
}


@dataclass(frozen=True, slots=True)
class Signature:
    """What S depends on: the parts of an allocation and how far apart they are."""

    parts: tuple[int, ...]
    level: Level

    @classmethod
    def of(cls, allocation: Allocation, cluster: Cluster) -> Signature:
        """The signature of an allocation in a cluster."""
        return cls(allocation.parts, cluster.level(allocation))


@dataclass(slots=True)
class SlowdownTable:
    """S(G) of one model.

    Attributes:
        priors: S by level, for placements that were never measured.
        measured: S by placement.
    """

    priors: Mapping[Level, float] = field(default_factory=lambda: dict(PRIORS))
    measured: dict[Signature, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for level, s in self.priors.items():
            if not s >= 1:
                raise InvalidInputError(f"slowdown {s} at level {level.name}; S(G) is 1 or more")

    def s(self, signature: Signature) -> float:
        """S for a placement; 1 for one GPU or none."""
        if sum(signature.parts) <= 1:
            return 1.0
        known = self.measured.get(signature)
        return self.priors.get(signature.level, 1.0) if known is None else known

    def record(self, signature: Signature, s: float) -> None:
        """Take a measured value; values below 1 (super-linear speed-up, noise) count as 1.

        Raises:
            InvalidInputError: ``s`` is not a positive number.
        """
        if not 0 < s < float("inf"):
            raise InvalidInputError(f"measured slowdown {s}; use a positive number")
        self.measured[signature] = max(1.0, s)
