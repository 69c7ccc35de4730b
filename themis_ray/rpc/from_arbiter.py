"""What the ARBITER sends, to and from the wire."""

from __future__ import annotations

import json

from themis_ray.core.commands import (
    Command,
    GroupRefused,
    LeasesChanged,
    LeaseView,
    RequestReport,
    SendOffer,
)
from themis_ray.core.explain import Reason
from themis_ray.errors import ProtocolError
from themis_ray.rpc._generated import themis_pb2 as pb
from themis_ray.rpc.fields import from_allocation, name, number, to_allocation
from themis_ray.rpc.messages import Failure, ReceivedReason, WelcomeInfo
from themis_ray.rpc.slowdowns import from_measured, to_measured

AppCommand = RequestReport | SendOffer | LeasesChanged | GroupRefused
"""The commands that are addressed to an AGENT."""


def _to_reason(reason: Reason) -> pb.Reason:
    # A figure that JSON cannot hold must not keep the app from hearing of its leases.
    return pb.Reason(json=json.dumps(reason.as_json(), default=str))


def _to_leases(command: LeasesChanged, now: float) -> pb.Leases:
    leases = [
        pb.Lease(
            id=lease.id,
            held=to_allocation(lease.held),
            pending=to_allocation(lease.pending),
            expires_in_s=lease.expires_s - now,
            final=lease.final,
        )
        for lease in command.leases
    ]
    return pb.Leases(leases=leases, reason=_to_reason(command.reason))


def _from_leases(message: pb.Leases, app: str, now: float) -> LeasesChanged:
    leases = tuple(
        LeaseView(
            id=name(lease.id, "leases.id"),
            held=from_allocation(lease.held),
            pending=from_allocation(lease.pending),
            expires_s=now + number(lease.expires_in_s, "leases.expires_in_s", ProtocolError),
            final=lease.final,
        )
        for lease in message.leases
    )
    return LeasesChanged(app, leases, ReceivedReason.from_json(message.reason.json))


def _to_offer(command: SendOffer) -> pb.Offer:
    return pb.Offer(
        round_id=command.round_id,
        offer=to_allocation(command.offer),
        kept=to_allocation(command.kept),
        expiring=to_allocation(command.expiring),
        racks=dict(command.racks),
        n_avg=command.n_avg,
        cluster_gpus=command.cluster_gpus,
        lease_s=command.lease_s,
        measured=to_measured(command.measured),
    )


def _from_offer(message: pb.Offer, app: str) -> SendOffer:
    return SendOffer(
        app=app,
        round_id=message.round_id,
        offer=from_allocation(message.offer),
        kept=from_allocation(message.kept),
        expiring=from_allocation(message.expiring),
        racks=dict(message.racks),
        n_avg=number(message.n_avg, "offer.n_avg", ProtocolError, least=0, finite=True),
        cluster_gpus=message.cluster_gpus,
        lease_s=number(message.lease_s, "offer.lease_s", ProtocolError, least=0),
        measured=from_measured(message.measured, "offer.measured", ProtocolError),
    )


def arbiter_message(command: Command | Failure, now: float) -> pb.ArbiterMessage:
    """A command for the wire.

    Args:
        command: What the AGENT is to be told.
        now: The time on the clock of ``LeaseView.expires_s``, at the moment of sending.

    Raises:
        ProtocolError: The command is not addressed to an AGENT.
    """
    match command:
        case RequestReport():
            request = pb.ReportRequest(
                round_id=command.round_id,
                kept=to_allocation(command.kept),
                n_avg=command.n_avg,
                cluster_gpus=command.cluster_gpus,
            )
            return pb.ArbiterMessage(report_request=request)
        case SendOffer():
            return pb.ArbiterMessage(offer=_to_offer(command))
        case LeasesChanged():
            return pb.ArbiterMessage(leases=_to_leases(command, now))
        case GroupRefused(group=group, reason=reason):
            refused = pb.GroupRefused(group=group, reason=_to_reason(reason))
            return pb.ArbiterMessage(group_refused=refused)
        case Failure(code=code, message=message):
            return pb.ArbiterMessage(failure=pb.Failure(code=code, message=message))
    raise ProtocolError(
        f"{type(command).__name__} is not addressed to an AGENT; send one of "
        + ", ".join(kind.__name__ for kind in AppCommand.__args__)
    )


def command_from(message: pb.ArbiterMessage, app: str, now: float) -> AppCommand | Failure:
    """What the arbiter tells ``app``.

    Args:
        message: What arrived.
        app: Whose session it arrived on.
        now: The time of arrival on the AGENT's clock.

    Raises:
        ProtocolError: The message cannot be used.
    """
    match message.WhichOneof("message"):
        case "report_request":
            it = message.report_request
            n_avg = number(it.n_avg, "report_request.n_avg", ProtocolError, least=0, finite=True)
            return RequestReport(app, it.round_id, from_allocation(it.kept), n_avg, it.cluster_gpus)
        case "offer":
            return _from_offer(message.offer, app)
        case "leases":
            return _from_leases(message.leases, app, now)
        case "group_refused":
            reason = ReceivedReason.from_json(message.group_refused.reason.json)
            return GroupRefused(app, name(message.group_refused.group, "group_refused"), reason)
        case "failure":
            return Failure(message.failure.code, message.failure.message)
        case "welcome":
            raise ProtocolError("the arbiter welcomed a session twice; install the same version")
    raise ProtocolError(
        "the arbiter sent a message of a kind that this driver does not know; install the same "
        "version of themis_ray in the driver and in the arbiter"
    )


def welcome_message(info: WelcomeInfo, secret: str) -> pb.ArbiterMessage:
    """The answer to a registration, with the session's secret."""
    welcome = pb.Welcome(
        session_secret=secret,
        policy=info.policy,
        lease_s=info.lease_s,
        notice_s=info.notice_s,
        grace_s=info.grace_s,
        unit=info.unit,
        cluster_gpus=info.cluster_gpus,
        largest_machine_gpus=info.largest_machine_gpus,
    )
    return pb.ArbiterMessage(welcome=welcome)


def welcome_from(message: pb.ArbiterMessage) -> tuple[WelcomeInfo, str]:
    """The arbiter's welcome, and the session's secret.

    Raises:
        ProtocolError: It is another message, or a value of it cannot be used.
    """
    if message.WhichOneof("message") != "welcome":
        raise ProtocolError("the arbiter's first message must be Welcome; install the same version")
    it = message.welcome

    def seconds(field: str) -> float:
        return number(getattr(it, field), f"welcome.{field}", ProtocolError, least=0)

    info = WelcomeInfo(
        policy=it.policy,
        lease_s=seconds("lease_s"),
        notice_s=seconds("notice_s"),
        grace_s=seconds("grace_s"),
        unit=it.unit,
        cluster_gpus=it.cluster_gpus,
        largest_machine_gpus=it.largest_machine_gpus,
    )
    return info, name(it.session_secret, "welcome.session_secret")
