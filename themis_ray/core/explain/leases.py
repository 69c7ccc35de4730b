"""Reasons between rounds: leases that begin, pass on and end, and the groups on their GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from themis_ray.core.cluster import NOTHING, Allocation
from themis_ray.core.explain.reason import Reason, number


@dataclass(frozen=True, slots=True)
class Waiting(Reason):
    """No round has been held for the app yet."""

    free: int
    next_expiry_s: float | None = None

    def __str__(self) -> str:
        if self.free:
            return f"waits for the next round; {self.free} GPUs are free"
        return "waits for GPUs to come free"

    @property
    def remedy(self) -> str:
        if self.next_expiry_s is None:
            return "GPUs come free when a lease ends, or when nodes are added"
        return f"the next lease ends in {max(0.0, self.next_expiry_s):.0f} s"


@dataclass(frozen=True, slots=True)
class Handover(Reason):
    """GPUs won earlier have been left by their last holder."""

    gpus: Allocation

    def __str__(self) -> str:
        return f"received {self.gpus}, which its last holder has left"


@dataclass(frozen=True, slots=True)
class LeaseEnded(Reason):
    """A lease is over."""

    lease: str
    gpus: Allocation = NOTHING

    def __str__(self) -> str:
        return f"lease {self.lease} has ended ({self.gpus})"

    @property
    def remedy(self) -> str:
        return "its trials go on from their checkpoints when the app wins GPUs again"


@dataclass(frozen=True, slots=True)
class Recalled(Reason):
    """GPUs were put up before the lease on them ended, and others won them."""

    gpus: Allocation
    urgent: str
    r_urgent: float
    r: float

    def __str__(self) -> str:
        return (
            f"lost {self.gpus} before the lease ended: {self.urgent} would have ended at "
            f"r = {number(self.r_urgent)} by waiting for it, this app ends at {number(self.r)} "
            "without them for a while"
        )

    @property
    def remedy(self) -> str:
        return (
            "its trials go on from their checkpoints when the app wins GPUs again; the policy's "
            "option recall_factor says from which r on leases are recalled"
        )


@dataclass(frozen=True, slots=True)
class GaveBack(Reason):
    """The app gave GPUs or a group back by itself."""

    gpus: Allocation

    def __str__(self) -> str:
        return f"gave back {self.gpus}"


@dataclass(frozen=True, slots=True)
class CapacityLost(Reason):
    """Machines left the cluster, or another Ray job took their GPUs."""

    gpus: Allocation

    def __str__(self) -> str:
        return f"lost {self.gpus}: the machines left the cluster or are used by other Ray jobs"

    @property
    def remedy(self) -> str:
        return "its trials go on from their checkpoints when the app wins GPUs elsewhere"


@dataclass(frozen=True, slots=True)
class NotHeld(Reason):
    """A group was asked for on GPUs that the app does not hold."""

    gpus: Allocation
    held: Allocation

    def __str__(self) -> str:
        return f"asked for a group on {self.gpus}, but holds {self.held}"

    @property
    def remedy(self) -> str:
        return "ask only for GPUs of the app's own leases"


@dataclass(frozen=True, slots=True)
class GroupNotCreated(Reason):
    """The cluster could not create a placement group."""

    why: str

    def __str__(self) -> str:
        return f"its placement group could not be created: {self.why}"

    @property
    def remedy(self) -> str:
        return "check that the node has the CPUs, memory and resources that a trial asks for"


@dataclass(frozen=True, slots=True)
class AppGone(Reason):
    """The app left."""

    why: str

    def __str__(self) -> str:
        return f"left the cluster: {self.why}"


@dataclass(frozen=True, slots=True)
class NotPreemptible(Reason):
    """Trials that save no checkpoint keep their GPUs."""

    gpus: Allocation

    def __str__(self) -> str:
        return f"keeps {self.gpus} without a round: its trials there save no checkpoint"

    @property
    def remedy(self) -> str:
        return (
            "save checkpoints in the trainable, or set preempt_without_checkpoint=True, to share "
            "fairly"
        )


@dataclass(frozen=True, slots=True)
class Adopted(Reason):
    """The arbiter was restarted and took over what the app still uses."""

    gpus: Allocation

    def __str__(self) -> str:
        return f"keeps {self.gpus}, taken over by the restarted arbiter"
