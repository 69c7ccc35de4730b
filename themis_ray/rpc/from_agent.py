"""What an AGENT sends, to and from the wire."""

from __future__ import annotations

import math
from typing import Any

from themis_ray.core.bids import BidRow, BidTable
from themis_ray.core.events import (
    AppLeft,
    AppReport,
    BidReceived,
    Event,
    GpusReturned,
    GroupReleased,
    GroupRequested,
    JobReport,
    Reported,
)
from themis_ray.core.fairness import PhaseWork
from themis_ray.errors import BidError, ProtocolError
from themis_ray.rpc._generated import themis_pb2 as pb
from themis_ray.rpc.fields import from_allocation, name, number, some, to_allocation
from themis_ray.rpc.messages import PROTOCOL_VERSION, DriverInfo, HeldGroup, RegisterRequest
from themis_ray.rpc.slowdowns import LEVELS, LEVELS_BACK, from_measured, to_measured

AgentEvent = Reported | BidReceived | GroupRequested | GroupReleased | GpusReturned | AppLeft
"""The events that an AGENT may send in a running session."""


def agent_message(event: Event) -> pb.AgentMessage:
    """An AGENT's event for the wire; the app's name is left behind.

    Raises:
        ProtocolError: It is not an event that an AGENT sends in a running session.
    """
    match event:
        case Reported(report=report, round_id=round_id):
            return pb.AgentMessage(report=pb.Report(report=_to_report(report), round_id=round_id))
        case BidReceived():
            return pb.AgentMessage(bid=_to_bid(event))
        case GroupRequested(group=group, allocation=allocation):
            request = pb.GroupRequest(group=group, allocation=to_allocation(allocation))
            return pb.AgentMessage(group_request=request)
        case GroupReleased(group=group):
            return pb.AgentMessage(group_release=pb.GroupRelease(group=group))
        case GpusReturned(allocation=allocation):
            gpus = pb.GpusReturn(allocation=to_allocation(allocation))
            return pb.AgentMessage(gpus_return=gpus)
        case AppLeft(why=why):
            return pb.AgentMessage(done=pb.Done(why=why))
    raise ProtocolError(
        f"{type(event).__name__} is not an AGENT's to send; send one of "
        + ", ".join(kind.__name__ for kind in AgentEvent.__args__)
    )


def event_from(message: pb.AgentMessage, app: str) -> AgentEvent:
    """The event that a message of ``app``'s session is.

    Args:
        message: What arrived.
        app: Whose session it arrived on, the only thing that tells whom it speaks for.

    Raises:
        BidError: A report or bid cannot be used.
        ProtocolError: Any other message that cannot be used, or is not legal after the first.
    """
    match message.WhichOneof("message"):
        case "report":
            asked = message.report.round_id if message.report.HasField("round_id") else None
            return Reported(app, _from_report(message.report.report), asked)
        case "bid":
            return _from_bid(message.bid, app)
        case "group_request":
            request = message.group_request
            group = name(request.group, "group_request.group")
            return GroupRequested(app, group, some(request.allocation, "group_request.allocation"))
        case "group_release":
            return GroupReleased(app, name(message.group_release.group, "group_release.group"))
        case "gpus_return":
            return GpusReturned(app, some(message.gpus_return.allocation, "gpus_return.allocation"))
        case "done":
            return AppLeft(app, message.done.why or "finished")
        case "register":
            raise ProtocolError("the session is registered already; open another to register anew")
    raise ProtocolError(
        "a message of a kind that this arbiter does not know; install the same version of "
        "themis_ray in the driver and in the arbiter"
    )


def register_message(request: RegisterRequest) -> pb.AgentMessage:
    """The first message of a session."""
    driver = request.driver
    register = pb.Register(
        protocol_version=request.protocol_version,
        app=request.app,
        weight=request.weight,
        report=_to_report(request.report),
        session_secret=request.session_secret,
        driver=pb.Driver(host=driver.host, pid=driver.pid, job_id=driver.job_id),
        bundle=dict(request.bundle),
        groups=[
            pb.HeldGroup(
                group=held.group,
                placement_group_id=held.placement_group_id,
                allocation=to_allocation(held.allocation),
            )
            for held in request.groups
        ],
    )
    return pb.AgentMessage(register=register)


def register_from(message: pb.AgentMessage) -> RegisterRequest:
    """The registration that the first message of a session must be.

    Raises:
        ProtocolError: It is something else, of another version of the protocol, or names a group
            without id or GPUs.
        InvalidInputError: A value of it cannot be used.
    """
    if message.WhichOneof("message") != "register":
        raise ProtocolError("the first message of a session must be Register; send that first")
    it = message.register
    if it.protocol_version != PROTOCOL_VERSION:
        raise ProtocolError(
            f"the driver speaks version {it.protocol_version} of the protocol and the arbiter "
            f"version {PROTOCOL_VERSION}; install the same version of themis_ray in both"
        )
    return RegisterRequest(
        app=it.app,
        report=_from_report(it.report),
        weight=it.weight,
        session_secret=it.session_secret,
        driver=DriverInfo(it.driver.host, it.driver.pid, it.driver.job_id),
        bundle=dict(it.bundle),
        groups=tuple(
            HeldGroup(
                name(held.group, "register.groups.group"),
                held.placement_group_id,
                some(held.allocation, f"register.groups[{held.group!r}].allocation"),
            )
            for held in it.groups
        ),
        protocol_version=it.protocol_version,
    )


def _to_report(report: AppReport) -> pb.AppReport:
    return pb.AppReport(
        r=report.r,
        t_shared_s=report.t_shared_s,
        t_ideal_s=report.t_ideal_s,
        wants=report.wants,
        gang=report.gang,
        jobs=[
            pb.JobReport(
                id=job.id,
                iterations_left=job.iterations_left,
                serial_iter_s=job.serial_iter_s,
                min_gpus=job.min_gpus,
                max_gpus=job.max_gpus,
                iterations_done=job.iterations_done,
                attained_gpu_s=job.attained_gpu_s,
                model=job.model,
                loss_decrease=job.loss_decrease,
                held=to_allocation(job.held),
                started_ago_s=job.started_ago_s,
                waited_s=job.waited_s,
                skew=job.skew,
                slowdown=job.slowdown,
                restart_s=job.restart_s,
                spans=job.spans,
            )
            for job in report.jobs
        ],
        pinned=to_allocation(report.pinned),
        elapsed_s=report.elapsed_s,
        measured=to_measured(report.measured),
        notes=report.notes,
        phases=[pb.PhaseWork(gpu_s=phase.gpu_s, gpus=phase.gpus) for phase in report.phases],
    )


def _from_report(message: pb.AppReport) -> AppReport:
    return AppReport(
        r=number(message.r, "report.r", BidError, least=0),
        t_shared_s=number(message.t_shared_s, "report.t_shared_s", BidError),
        t_ideal_s=number(message.t_ideal_s, "report.t_ideal_s", BidError),
        wants=message.wants,
        gang=message.gang,
        jobs=tuple(_from_job(job) for job in message.jobs),
        pinned=from_allocation(message.pinned),
        elapsed_s=_optional(message, "elapsed_s", "report"),
        measured=from_measured(message.measured, "report.measured", BidError),
        notes=tuple(message.notes),
        phases=tuple(
            PhaseWork(
                number(phase.gpu_s, f"report.phases[{i}].gpu_s", BidError, least=0, finite=True),
                number(phase.gpus, f"report.phases[{i}].gpus", BidError, least=0, finite=True),
            )
            for i, phase in enumerate(message.phases)
        ),
    )


def _optional(message: Any, field: str, where: str) -> float | None:
    """A number of 0 or more that may be absent."""
    if not message.HasField(field):
        return None
    return number(getattr(message, field), f"{where}.{field}", BidError, least=0, finite=True)


def _from_job(message: pb.JobReport) -> JobReport:
    where = f"report.jobs[{message.id!r}]"
    if not 1 <= message.min_gpus <= message.max_gpus:
        raise BidError(
            f"{where} takes {message.min_gpus} to {message.max_gpus} GPUs; send min_gpus of 1 or "
            "more and max_gpus no less"
        )

    def of(field: str, *, least: float = 0.0, finite: bool = True) -> float:
        value = getattr(message, field)
        return number(value, f"{where}.{field}", BidError, least=least, finite=finite)

    return JobReport(
        id=name(message.id, "report.jobs.id", BidError),
        iterations_left=of("iterations_left", finite=False),
        serial_iter_s=of("serial_iter_s"),
        min_gpus=message.min_gpus,
        max_gpus=message.max_gpus,
        iterations_done=of("iterations_done"),
        attained_gpu_s=of("attained_gpu_s"),
        model=message.model,
        loss_decrease=of("loss_decrease", least=-math.inf),
        held=from_allocation(message.held),
        started_ago_s=_optional(message, "started_ago_s", where),
        waited_s=of("waited_s"),
        skew=_optional(message, "skew", where),
        slowdown=tuple(number(s, f"{where}.slowdown", BidError, least=1) for s in message.slowdown),
        restart_s=of("restart_s"),
        spans=message.spans,
    )


def _to_bid(event: BidReceived) -> pb.Bid:
    rows = [
        pb.BidRow(
            r=row.r, pinned=to_allocation(row.pinned), parts=row.parts, level=LEVELS[row.level]
        )
        for row in event.table.rows
    ]
    return pb.Bid(round_id=event.round_id, r_nothing=event.table.r_nothing, rows=rows)


def _from_bid(message: pb.Bid, app: str) -> BidReceived:
    rows = []
    for index, row in enumerate(message.rows):
        level = LEVELS_BACK.get(row.level)
        if level is None:
            raise BidError(f"bid.rows[{index}].level = {row.level}; send one of the four levels")
        try:
            rows.append(BidRow(row.r, from_allocation(row.pinned), tuple(row.parts), level))
        except BidError as error:
            raise BidError(f"bid.rows[{index}]: {error}") from None
    return BidReceived(message.round_id, BidTable(app, message.r_nothing, tuple(rows)))
