"""Reasons of a round: what the policy gave an app, or why it gave nothing."""

from __future__ import annotations

from dataclasses import dataclass

from themis_ray.core.cluster import Allocation
from themis_ray.core.explain.reason import Reason, number


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
        return "the longer it waits, the more its bids count in the next rounds"


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
