"""Why the arbiter decided as it did: typed reasons with their numbers.

``str(reason)`` is a sentence for people; ``remedy`` says what would change the decision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from themis_ray.core.cluster import NOTHING, Allocation


def number(value: float) -> str:
    """A figure for people: three digits, and a word for infinity."""
    return "infinite" if math.isinf(value) else f"{value:.3g}"


@dataclass(frozen=True, slots=True)
class Reason:
    """Base of all reasons."""

    @property
    def kind(self) -> str:
        """The reason's name, as in JSON."""
        return type(self).__name__

    @property
    def remedy(self) -> str:
        """What would change the decision; empty when nothing needs to."""
        return ""

    def as_json(self) -> dict[str, object]:
        """A JSON-ready form: ``kind``, ``text``, ``remedy`` and the reason's own fields."""
        out: dict[str, object] = {"kind": self.kind, "text": str(self), "remedy": self.remedy}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Allocation):
                value = dict(value)
            elif isinstance(value, float) and not math.isfinite(value):
                value = None
            out[field.name] = value
        return out


@dataclass(frozen=True, slots=True)
class Won(Reason):
    """The app won GPUs in an auction."""

    gpus: Allocation
    r_before: float
    r_after: float
    payment_factor: float
    lease_s: float

    def __str__(self) -> str:
        paid = ""
        if self.payment_factor < 0.9995:
            paid = f"; its hidden payment left it {self.payment_factor:.1%} of its fair allocation"
        return (
            f"won {self.gpus} for {self.lease_s:.0f} s: r goes from {number(self.r_before)} to "
            f"{number(self.r_after)}{paid}"
        )


@dataclass(frozen=True, slots=True)
class GotLeftover(Reason):
    """The app was given GPUs that the auction left over."""

    gpus: Allocation
    lease_s: float

    def __str__(self) -> str:
        return f"was given {self.gpus} for {self.lease_s:.0f} s, left over by the auction"


@dataclass(frozen=True, slots=True)
class Assigned(Reason):
    """A policy without an auction gave the app GPUs."""

    gpus: Allocation
    policy: str
    rank: int
    key: float
    lease_s: float

    def __str__(self) -> str:
        return (
            f"{self.policy} ranked it {self.rank} (key {number(self.key)}) and gave it "
            f"{self.gpus} for {self.lease_s:.0f} s"
        )


@dataclass(frozen=True, slots=True)
class Outranked(Reason):
    """A policy without an auction served others first, and nothing was left."""

    policy: str
    rank: int
    key: float

    def __str__(self) -> str:
        return (
            f"{self.policy} ranked it {self.rank} (key {number(self.key)}), and the GPUs went to "
            "those before it"
        )

    @property
    def remedy(self) -> str:
        return "it is served when those before it end or fall behind it"


@dataclass(frozen=True, slots=True)
class GangTooLarge(Reason):
    """GPUs were left when its turn came, but too few (or apart) for one of its jobs."""

    policy: str
    rank: int
    gang: int
    left: int

    def __str__(self) -> str:
        return (
            f"{self.policy} ranked it {self.rank}; its next job needs {self.gang} GPUs together, "
            f"and the {self.left} that were left were too few or too far apart"
        )

    @property
    def remedy(self) -> str:
        return f"lower min_gpus_per_trial below {self.gang} if its jobs can run on fewer GPUs"


@dataclass(frozen=True, slots=True)
class QueueBlocked(Reason):
    """First in, first out, and the first in the queue does not fit yet."""

    policy: str
    first: str
    gang: int

    def __str__(self) -> str:
        return (
            f"{self.policy} serves in order of arrival, and app {self.first!r}, the first in the "
            f"queue, waits for {self.gang} GPUs"
        )

    @property
    def remedy(self) -> str:
        return "use a policy that does not block, such as best-effort or themis"


@dataclass(frozen=True, slots=True)
class NoGain(Reason):
    """GPUs were left, and they would not have made the app faster."""

    policy: str

    def __str__(self) -> str:
        return f"{self.policy} gave it nothing: no GPU that was left would have sped it up"


@dataclass(frozen=True, slots=True)
class NotOffered(Reason):
    """The filter left the app out: others are worse off."""

    r: float
    threshold: float
    bidders: int
    apps: int

    def __str__(self) -> str:
        return (
            f"was not offered GPUs: its r is {number(self.r)}, and the {self.bidders} worst-off of "
            f"{self.apps} apps (r of {number(self.threshold)} or more) were asked to bid"
        )

    @property
    def remedy(self) -> str:
        return "it bids again when its r is among the worst; waiting raises r"


@dataclass(frozen=True, slots=True)
class Outbid(Reason):
    """The app bid, and others' gain was greater."""

    r: float
    winners: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"bid with r = {number(self.r)} and won nothing; "
            f"{', '.join(self.winners) or 'no app'} won"
        )

    @property
    def remedy(self) -> str:
        return "its r grows while it waits, and with r its weight in the next rounds"


@dataclass(frozen=True, slots=True)
class NoAnswer(Reason):
    """The AGENT did not answer in time."""

    what: str
    timeout_s: float

    def __str__(self) -> str:
        return f"sent no {self.what} within {self.timeout_s:g} s and lost the round"

    @property
    def remedy(self) -> str:
        return "look at the app's driver: it may hang, or be cut off from the arbiter"


@dataclass(frozen=True, slots=True)
class Satisfied(Reason):
    """The app has all that it can use."""

    wants: int

    def __str__(self) -> str:
        return f"has all of the {self.wants} GPUs that it can use now"


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


@dataclass(frozen=True, slots=True)
class TrialKeepsSize(Reason):
    """More GPUs were there for a running trial, and a restart would not have paid."""

    trial: str
    gpus: Allocation
    more: int
    restart_s: float
    window_s: float

    def __str__(self) -> str:
        return (
            f"trial {self.trial} keeps {self.gpus}: {self.more} more GPUs for "
            f"{self.window_s:.0f} s would not make up for a checkpoint and restart of "
            f"{self.restart_s:.0f} s"
        )

    @property
    def remedy(self) -> str:
        return "longer leases, or a trial that starts faster"


@dataclass(frozen=True, slots=True)
class TrialGrows(Reason):
    """A running trial pauses at its next report, to go on with more GPUs."""

    trial: str
    gpus: Allocation
    more: int
    restart_s: float
    saves_s: float

    def __str__(self) -> str:
        return (
            f"trial {self.trial} leaves {self.gpus} for {self.more} more GPUs: that saves "
            f"{self.saves_s:.0f} s, its restart of {self.restart_s:.0f} s already counted"
        )


@dataclass(frozen=True, slots=True)
class TrialTogether(Reason):
    """A trial runs on fewer GPUs, since it would be slower if it were spread over machines."""

    trial: str
    gpus: Allocation
    spread: Allocation
    slowdown: float

    def __str__(self) -> str:
        return (
            f"trial {self.trial} runs on {self.gpus}: on {self.spread} each iteration would take "
            f"{self.slowdown:.2f} times its share, which is slower"
        )


@dataclass(frozen=True, slots=True)
class TrialSpread(Reason):
    """A trial lies on several machines, since no one machine had room."""

    trial: str
    gpus: Allocation
    slowdown: float

    def __str__(self) -> str:
        return (
            f"trial {self.trial} is spread over {self.gpus}, at a slowdown of {self.slowdown:.2f}; "
            "those that suffer more from it chose first"
        )
