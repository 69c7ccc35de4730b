"""What the solver answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from themis_ray.core.bids import BidRow
from themis_ray.core.cluster import Allocation

# Differences in log welfare below this count as none: it is what HiGHS vouches for.
EXACT = 1e-6


@dataclass(frozen=True, slots=True)
class Win:
    """What one app gets.

    Attributes:
        row: The bid row that it wins; None when it wins nothing.
        gpus: Its bundle, by machine.
        value: V = 1 / r with the bundle.
    """

    row: BidRow | None
    gpus: Allocation
    value: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """An allocation and how good it is.

    Attributes:
        wins: What each app gets.
        log_welfare: ``sum of w * log V`` over the apps with V > 0.
        served: How many apps have V > 0.
        bound: No allocation that serves as many apps has a greater ``log_welfare``.
        served_bound: No allocation serves more apps.
    """

    wins: Mapping[str, Win]
    log_welfare: float
    served: int
    bound: float
    served_bound: int

    @property
    def exact(self) -> bool:
        """Whether the allocation is proved optimal (to 1e-6 in ``log_welfare``)."""
        return self.served == self.served_bound and self.bound - self.log_welfare <= EXACT
