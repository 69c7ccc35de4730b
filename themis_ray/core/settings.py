"""How long things take in the arbiter."""

from __future__ import annotations

import math
from dataclasses import dataclass

from themis_ray.errors import ConfigError

# Leases end on a grid of this part of a lease unless set otherwise. When each ends by itself, GPUs
# come free one at a time: a gang finds its GPUs late or never, and jobs end up scattered.
GRID_OF_LEASE = 0.25


def default_grid_s(lease_s: float) -> float:
    """The grid on which leases of this length end unless it is set otherwise, in seconds."""
    return lease_s * GRID_OF_LEASE


@dataclass(frozen=True, slots=True)
class ArbiterConfig:
    """How long things take, in seconds.

    Attributes:
        lease_s: A full lease.
        notice_s: How long before a lease ends its GPUs are put up.
        grace_s: How long after its end a lease's groups may still be there.
        report_timeout_s: An AGENT that does not report by then sits the round out.
        bid_timeout_s: An AGENT that does not bid by then loses the round.
        round_delay_s: Wait so long after a change before a round, to take in what comes together.
        min_lease_s: Leases shortened by payments, or by the grid, last at least so long.
        lease_grid_s: Leases end at whole multiples of this on the arbiter's clock, the nearest
            one to their length, so that those of several rounds end together and are decided on
            together; 0 for no grid.
    """

    lease_s: float = 600.0
    notice_s: float = 10.0
    grace_s: float = 10.0
    report_timeout_s: float = 5.0
    bid_timeout_s: float = 5.0
    round_delay_s: float = 0.0
    min_lease_s: float = 60.0
    lease_grid_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("lease_s", "report_timeout_s", "bid_timeout_s"):
            value = getattr(self, name)
            if not value > 0:
                raise ConfigError(f"{name} = {value}; use a positive number of seconds")
        for name in ("notice_s", "grace_s", "round_delay_s", "min_lease_s", "lease_grid_s"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise ConfigError(f"{name} = {value}; use 0 or more seconds")
        if self.notice_s >= self.lease_s:
            raise ConfigError(
                f"notice_s = {self.notice_s} is not shorter than lease_s = {self.lease_s}"
            )

    def end_s(self, base_s: float, fraction: float = 1.0) -> float:
        """When a lease ends that begins at ``base_s`` and has a fraction of the full length."""
        least_s = min(self.min_lease_s, self.lease_s)
        end_s = base_s + max(self.lease_s * fraction, least_s)
        grid_s = self.lease_grid_s
        if not grid_s:
            return end_s
        return max(
            math.floor(end_s / grid_s + 0.5) * grid_s,
            math.ceil((base_s + least_s) / grid_s) * grid_s,
        )
