"""What the arbiter wants done: the outputs of :meth:`themis_ray.core.arbiter.Arbiter.handle`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from themis_ray.core.cluster import Allocation
from themis_ray.core.explain import Reason
from themis_ray.core.slowdown import MeasuredSlowdown


@dataclass(frozen=True, slots=True)
class LeaseView:
    """One lease as its holder is told of it.

    Attributes:
        id: The lease's name.
        held: GPUs that the app may use now.
        pending: GPUs won, but not yet left by their last holder.
        expires_s: When it ends, on the arbiter's clock.
        final: Notice has been given: it will not be renewed. Its groups must be gone by
            ``expires_s`` plus the grace.
    """

    id: str
    held: Allocation
    pending: Allocation
    expires_s: float
    final: bool


@dataclass(frozen=True, slots=True)
class RequestReport:
    """Ask an AGENT how its app stands (step 1 of a round).

    Attributes:
        app: Whom to ask.
        round_id: The round.
        kept: GPUs that the app keeps if the round gives it nothing: ``r`` is wanted for those.
        n_avg: Time-weighted mean number of apps present during the app's life, itself included.
        cluster_gpus: R_C.
    """

    app: str
    round_id: int
    kept: Allocation
    n_avg: float
    cluster_gpus: int


@dataclass(frozen=True, slots=True)
class SendOffer:
    """Show an AGENT the GPUs to be had (step 2); not binding.

    Attributes:
        app: Whom to offer them.
        round_id: The round.
        offer: The GPUs on offer, to everybody in this round alike.
        kept: GPUs the app keeps anyway.
        expiring: The part of the offer that the app holds now: winning it costs no restart.
        racks: The rack of each machine in ``offer`` and ``kept``.
        n_avg: As in :class:`RequestReport`.
        cluster_gpus: R_C.
        lease_s: How long a lease won now would last.
        measured: S(G) of the app's models as other apps have measured it.
    """

    app: str
    round_id: int
    offer: Allocation
    kept: Allocation
    expiring: Allocation
    racks: Mapping[str, str]
    n_avg: float
    cluster_gpus: int
    lease_s: float
    measured: tuple[MeasuredSlowdown, ...] = ()


@dataclass(frozen=True, slots=True)
class LeasesChanged:
    """Tell an AGENT all the leases it has now, and why."""

    app: str
    leases: tuple[LeaseView, ...]
    reason: Reason


@dataclass(frozen=True, slots=True)
class CreateGroup:
    """Create the placement group of one trial, pinned to machines."""

    app: str
    group: str
    allocation: Allocation


@dataclass(frozen=True, slots=True)
class RemoveGroup:
    """Remove a placement group, whatever runs in it; answer with ``GroupGone``."""

    app: str
    group: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class GroupRefused:
    """Tell an AGENT that a group it asked for cannot be had."""

    app: str
    group: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Decided:
    """A round has ended; for logs, metrics and the timeline."""

    round_id: int
    reasons: Mapping[str, Reason]


Command = (
    RequestReport | SendOffer | LeasesChanged | CreateGroup | RemoveGroup | GroupRefused | Decided
)
