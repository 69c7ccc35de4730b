"""The values that the two ends of a session hand to and get from this package."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from themis_ray import errors
from themis_ray.core.cluster import Allocation
from themis_ray.core.events import AppReport
from themis_ray.core.explain import Reason
from themis_ray.errors import InvalidInputError, ProtocolError, ThemisError

PROTOCOL_VERSION = 1
"""Raised whenever an old AGENT and a new ARBITER would misunderstand each other."""

LONGEST_NAME = 256


class ConnectionState(StrEnum):
    """How an AGENT stands with the ARBITER.

    A client goes from ``CONNECTED`` to ``LOST`` and back any number of times, and ends
    ``CLOSED``: by itself, or because the arbiter will not have it.
    """

    CONNECTED = "connected"
    LOST = "lost"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an arbiter answers.

    Attributes:
        address: ``host:port``.
        token: The cluster's token; not shown by ``repr``.
    """

    address: str
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class DriverInfo:
    """The process that an AGENT lives in.

    Attributes:
        host: Its node's name or address.
        pid: Its process id there.
        job_id: Ray's job id, hexadecimal; empty when unknown.
    """

    host: str = ""
    pid: int = 0
    job_id: str = ""


@dataclass(frozen=True, slots=True)
class HeldGroup:
    """A placement group that an app still uses when it reconnects.

    Attributes:
        group: The id it was requested under.
        placement_group_id: Ray's id, hexadecimal; empty while it is not created.
        allocation: Its GPUs.
    """

    group: str
    placement_group_id: str
    allocation: Allocation


@dataclass(frozen=True, slots=True)
class RegisterRequest:
    """An app introduces itself, for the first time or again.

    Attributes:
        app: Its name, unique among the live apps.
        report: How it stands.
        weight: Scales its share; positive.
        session_secret: What its earlier session was given; empty on the first connection. The
            client fills it in.
        driver: The process it lives in.
        bundle: Resources other than the GPU that go with one GPU, as in ``{"CPU": 2}``.
        groups: The placement groups that it still uses.
        protocol_version: The protocol that it speaks.

    Raises:
        InvalidInputError: A name, the weight or the bundle cannot be used.
    """

    app: str
    report: AppReport
    weight: float = 1.0
    session_secret: str = field(default="", repr=False)
    driver: DriverInfo = DriverInfo()
    bundle: Mapping[str, float] = field(default_factory=dict)
    groups: tuple[HeldGroup, ...] = ()
    protocol_version: int = PROTOCOL_VERSION

    def __post_init__(self) -> None:
        if not 0 < len(self.app) <= LONGEST_NAME or not self.app.isprintable():
            raise InvalidInputError(
                f"app = {self.app[:LONGEST_NAME]!r}: name the app with 1 to {LONGEST_NAME} "
                "printable characters"
            )
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise InvalidInputError(
                f"app {self.app!r}: weight = {self.weight}; use a positive, finite number"
            )
        for resource, amount in self.bundle.items():
            if not resource or not math.isfinite(amount) or amount < 0:
                raise InvalidInputError(
                    f"app {self.app!r}: {amount} of {resource!r} in the bundle; name the resource "
                    "and use a finite amount of 0 or more"
                )


@dataclass(frozen=True, slots=True)
class WelcomeInfo:
    """The arbiter's answer to a registration.

    Attributes:
        policy: The policy's name.
        lease_s: How long a lease lasts, in seconds.
        notice_s: How long before its end a lease is put to auction.
        grace_s: How long after its end a lease's placement groups may still exist.
        unit: What is leased, ``"GPU"`` or ``"CPU"``.
        cluster_gpus: How many units the cluster has.
        largest_machine_gpus: How many units its largest machine has.
    """

    policy: str
    lease_s: float
    notice_s: float
    grace_s: float
    unit: str = "GPU"
    cluster_gpus: int = 0
    largest_machine_gpus: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """The arbiter refused one message; nothing was changed and the session goes on.

    Attributes:
        code: The name of the error's class.
        message: What was wrong and how to mend it.
    """

    code: str
    message: str

    def as_error(self) -> ThemisError:
        """The error that the arbiter raised."""
        return error_named(self.code, self.message, ProtocolError)


def error_named(name: str, message: str, otherwise: type[ThemisError]) -> ThemisError:
    """The error of this package with that class name.

    Args:
        name: The name of a class in :mod:`themis_ray.errors`.
        message: Its message.
        otherwise: What to make of any other name, which a newer peer may send.
    """
    found = getattr(errors, name, None)
    if not (isinstance(found, type) and issubclass(found, ThemisError)):
        found = otherwise
    if found.__init__ is not Exception.__init__:  # it does not take a message alone
        found = otherwise
    return found(message)


@dataclass(frozen=True, slots=True)
class ReceivedReason(Reason):
    """A reason as it arrives at an AGENT: the arbiter's words, and its figures as JSON.

    Attributes:
        name: The kind of reason.
        text: The sentence for people.
        advice: What would change the decision.
        details: Everything, as :meth:`as_json` gives it.
    """

    name: str
    text: str
    advice: str = ""
    details: Mapping[str, object] = field(default_factory=dict, hash=False)

    @classmethod
    def from_json(cls, text: str) -> ReceivedReason:
        """Read what :meth:`Reason.as_json` wrote.

        Raises:
            ProtocolError: It is not a JSON object with the texts that a reason has.
        """
        try:
            details = json.loads(text)
        except ValueError as error:
            raise ProtocolError(f"reason is not JSON ({error}); send Reason.as_json()") from None
        match details:
            case {"kind": str(kind), "text": str(sentence), "remedy": str(remedy)}:
                return cls(kind, sentence, remedy, details)
        raise ProtocolError(
            "reason needs the texts 'kind', 'text' and 'remedy'; send Reason.as_json()"
        )

    @property
    def kind(self) -> str:
        """The reason's name, as in JSON."""
        return self.name

    @property
    def remedy(self) -> str:
        """What would change the decision; empty when nothing needs to."""
        return self.advice

    def __str__(self) -> str:
        return self.text

    def as_json(self) -> dict[str, object]:
        """What the arbiter sent."""
        return dict(self.details)
