"""What the arbiter knows of one app."""

from __future__ import annotations

from dataclasses import dataclass, field

from themis_ray.core.cluster import Allocation, total
from themis_ray.core.events import AppReport
from themis_ray.core.explain import Reason
from themis_ray.core.leases import Group, Lease


@dataclass(slots=True)
class App:
    """One registered app.

    Attributes:
        id: Its name.
        weight: Its share relative to the others.
        joined_s: When it joined.
        joined_integral_s: The integral of the number of apps over time, as of then.
        report: Its last report.
        reason: Why it has what it has.
        leases: Its leases, by id.
        groups: Its placement groups, by id.
        attained_gpu_s: GPU-seconds leased to it up to ``touched_s``.
        touched_s: When that was last brought up to date.
        serial: Counts up with the apps that join.
        overstays: GPUs that its groups occupy beyond its leases, each with the time at which they
            are taken by force.
    """

    id: str
    weight: float
    joined_s: float
    joined_integral_s: float
    report: AppReport
    reason: Reason
    leases: dict[str, Lease] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    attained_gpu_s: float = 0.0
    touched_s: float = 0.0
    serial: int = 0
    overstays: list[tuple[float, Allocation]] = field(default_factory=list)

    @property
    def force_s(self) -> float | None:
        """When groups that have outlived their lease are next removed by force."""
        return min((due_s for due_s, _ in self.overstays), default=None)

    @property
    def pending(self) -> Allocation:
        """GPUs won and not yet received."""
        return total(lease.pending for lease in self.leases.values())
