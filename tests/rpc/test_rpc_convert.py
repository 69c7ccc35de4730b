import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import themis_ray.rpc
from themis_ray.core import commands, events, explain
from themis_ray.core.bids import BidRow, BidTable
from themis_ray.core.cluster import Allocation, Level
from themis_ray.core.fairness import PhaseWork
from themis_ray.errors import BidError, InvalidInputError, ProtocolError
from themis_ray.rpc import convert
from themis_ray.rpc._generated import themis_pb2 as pb
from themis_ray.rpc.messages import (
    DriverInfo,
    Failure,
    HeldGroup,
    ReceivedReason,
    RegisterRequest,
    WelcomeInfo,
)

names = st.text(min_size=1, max_size=8)
counts = st.integers(1, 64)
allocations = st.dictionaries(names, counts, max_size=4).map(Allocation)
some_gpus = st.dictionaries(names, counts, min_size=1, max_size=4).map(Allocation)
amounts = st.floats(0, 1e12)
positive = st.floats(1e-9, 1e12)
r_values = st.one_of(positive, st.just(math.inf))
rounds = st.integers(0, 2**40)


@st.composite
def jobs(draw):
    low = draw(counts)
    return events.JobReport(
        draw(names),
        draw(st.one_of(amounts, st.just(math.inf))),
        draw(amounts),
        low,
        draw(st.integers(low, 64)),
        draw(amounts),
        draw(amounts),
        draw(st.text(max_size=5)),
        draw(st.floats(-1e6, 1e6)),
        draw(allocations),
        draw(st.none() | amounts),
        draw(amounts),
        draw(st.none() | amounts),
        draw(st.lists(st.floats(1, 10), max_size=4).map(tuple)),
        draw(amounts),
        draw(st.booleans()),
    )


@st.composite
def rows(draw):
    parts = tuple(sorted(draw(st.lists(counts, max_size=3)), reverse=True))
    pinned = draw(allocations if parts else some_gpus)
    levels = [Level.RACK, Level.CLUSTER] if len(pinned) > 1 else list(Level)
    return BidRow(draw(r_values), pinned, parts, draw(st.sampled_from(levels)))


reports = st.builds(
    events.AppReport,
    r=r_values,
    t_shared_s=r_values,
    t_ideal_s=r_values,
    wants=st.integers(0, 99),
    gang=counts,
    jobs=st.lists(jobs(), max_size=3).map(tuple),
    pinned=allocations,
    elapsed_s=st.none() | amounts,
    phases=st.lists(st.builds(PhaseWork, amounts, amounts), max_size=3).map(tuple),
)
tables = st.builds(BidTable, st.just("A"), r_values, st.lists(rows(), max_size=3).map(tuple))
app = st.just("A")
agent_events = st.one_of(
    st.builds(events.Reported, app, reports, st.one_of(st.none(), rounds)),
    st.builds(events.BidReceived, rounds, tables),
    st.builds(events.GroupRequested, app, names, some_gpus),
    st.builds(events.GroupReleased, app, names),
    st.builds(events.GpusReturned, app, some_gpus),
    st.builds(events.AppLeft, app, names),
)
reasons = st.one_of(
    st.builds(explain.GotLeftover, allocations, amounts),
    st.builds(explain.Outbid, r_values, st.lists(names, max_size=2).map(tuple)),
    st.builds(explain.Won, allocations, r_values, r_values, st.floats(0, 1), amounts),
)


def over_the_wire(message):
    return type(message).FromString(message.SerializeToString())


@given(agent_events)
def test_an_event_arrives_as_it_was_sent(event):
    assert convert.event_from(over_the_wire(convert.agent_message(event)), "A") == event


@given(agent_events)
def test_no_message_of_a_session_can_name_an_app(event):
    arrived = convert.event_from(over_the_wire(convert.agent_message(event)), "B")
    speaker = arrived.table.app if isinstance(arrived, events.BidReceived) else arrived.app
    assert speaker == "B"
    for kind, field in pb.AgentMessage.DESCRIPTOR.fields_by_name.items():
        assert kind == "register" or "app" not in field.message_type.fields_by_name


@given(
    st.builds(
        RegisterRequest,
        app=st.text("abcé-_ 1", min_size=1, max_size=9),
        report=reports,
        weight=positive,
        session_secret=st.text(max_size=9),
        driver=st.builds(DriverInfo, names, st.integers(0, 2**22), names),
        bundle=st.dictionaries(names, amounts, max_size=3),
        groups=st.lists(st.builds(HeldGroup, names, names, some_gpus), max_size=2).map(tuple),
    )
)
def test_a_registration_arrives_as_it_was_sent(request):
    assert convert.register_from(over_the_wire(convert.register_message(request))) == request


@given(
    st.one_of(
        st.builds(commands.RequestReport, app, rounds, allocations, amounts, st.integers(0, 999)),
        st.builds(
            commands.SendOffer,
            app,
            rounds,
            allocations,
            allocations,
            allocations,
            st.dictionaries(names, names, max_size=3),
            amounts,
            st.integers(0, 999),
            amounts,
        ),
        st.builds(Failure, names, names),
    )
)
def test_a_command_arrives_as_it_was_sent(command):
    assert convert.command_from(over_the_wire(convert.arbiter_message(command, 5.0)), "A", 9.0) == (
        command
    )


@given(reasons, some_gpus)
def test_a_reason_arrives_in_words_and_figures(reason, gpus):
    refused = commands.GroupRefused("A", "g", reason)
    arrived = convert.command_from(over_the_wire(convert.arbiter_message(refused, 5.0)), "A", 9.0)
    assert (str(arrived.reason), arrived.reason.kind, arrived.reason.remedy) == (
        str(reason),
        reason.kind,
        reason.remedy,
    )
    assert arrived.reason.as_json() == json.loads(json.dumps(reason.as_json()))


def test_a_deadline_is_moved_to_the_receivers_clock():
    lease = commands.LeaseView("L", Allocation({"m": 2}), Allocation({"n": 1}), 1030.0, True)
    told = commands.LeasesChanged("A", (lease,), explain.Handover(Allocation({"m": 2})))
    arrived = convert.command_from(convert.arbiter_message(told, 1000.0), "A", 7.0)
    (view,) = arrived.leases
    assert (view.id, view.held, view.pending, view.final) == (
        lease.id,
        lease.held,
        lease.pending,
        True,
    )
    assert view.expires_s == 37.0


def test_a_welcome_brings_the_secret():
    info = WelcomeInfo("themis", 600.0, 30.0, 5.0, "CPU", 16, 4)
    assert convert.welcome_from(over_the_wire(convert.welcome_message(info, "s"))) == (info, "s")


NAN, INF = math.nan, math.inf
GOOD_JOB = {"id": "t", "min_gpus": 1, "max_gpus": 2}


def report(**fields):
    return pb.AgentMessage(report=pb.Report(report=pb.AppReport(**{"gang": 1, **fields})))


def bid(*rows, r_nothing=2.0):
    return pb.AgentMessage(bid=pb.Bid(round_id=1, r_nothing=r_nothing, rows=rows))


def row(**fields):
    return pb.BidRow(**{"r": 1.0, "parts": [1], "level": pb.LEVEL_RACK, **fields})


@pytest.mark.parametrize(
    ("message", "error", "words"),
    [
        (report(r=NAN), BidError, "report.r = nan"),
        (report(r=-1), BidError, "report.r = -1"),
        (report(t_shared_s=NAN), BidError, "report.t_shared_s"),
        (report(t_ideal_s=NAN), BidError, "report.t_ideal_s"),
        (report(gang=0), BidError, "gangs of 0"),
        (report(jobs=[pb.JobReport(id="t")]), BidError, "'t'.* min_gpus"),
        (report(jobs=[pb.JobReport(min_gpus=1, max_gpus=1)]), BidError, "jobs.id is empty"),
        (report(jobs=[pb.JobReport(**GOOD_JOB, serial_iter_s=NAN)]), BidError, "serial_iter_s"),
        (report(jobs=[pb.JobReport(**GOOD_JOB, iterations_left=-1)]), BidError, "iterations_left"),
        (report(jobs=[pb.JobReport(**GOOD_JOB, loss_decrease=NAN)]), BidError, "loss_decrease"),
        (report(phases=[pb.PhaseWork(gpu_s=1, gpus=-1)]), BidError, r"phases\[0\].gpus = -1"),
        (report(phases=[pb.PhaseWork(), pb.PhaseWork(gpu_s=INF)]), BidError, r"\[1\].gpu_s = inf"),
        (bid(r_nothing=NAN), BidError, "r = nan"),
        (bid(r_nothing=0), BidError, "must be positive"),
        (bid(row(), row(r=NAN)), BidError, r"rows\[1\].*r = nan"),
        (bid(row(r=-2)), BidError, r"rows\[0\].*positive"),
        (bid(row(parts=[1, 2])), BidError, "largest first"),
        (bid(row(parts=[])), BidError, "r_nothing"),
        (bid(row(level=pb.LEVEL_UNSPECIFIED)), BidError, "level = 0"),
        (pb.AgentMessage(group_request=pb.GroupRequest(group="g")), ProtocolError, "allocation"),
        (pb.AgentMessage(group_release=pb.GroupRelease()), ProtocolError, "group is empty"),
        (pb.AgentMessage(gpus_return=pb.GpusReturn()), ProtocolError, "1 GPU or more"),
        (pb.AgentMessage(register=pb.Register()), ProtocolError, "registered already"),
        (pb.AgentMessage(), ProtocolError, "same version"),
    ],
)
def test_a_bad_message_is_refused_by_field(message, error, words):
    with pytest.raises(error, match=words):
        convert.event_from(over_the_wire(message), "A")


def test_a_first_message_must_be_a_registration_of_our_version():
    with pytest.raises(ProtocolError, match="send that first"):
        convert.register_from(bid())
    good = RegisterRequest("A", events.AppReport(1, 1, 1, 1), protocol_version=99)
    with pytest.raises(ProtocolError, match=r"version 99.*install the same"):
        convert.register_from(convert.register_message(good))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"app": ""}, "name the app"),
        ({"app": "a\nb"}, "printable"),
        ({"app": "x" * 300}, "256"),
        ({"weight": NAN}, "weight"),
        ({"weight": 0.0}, "positive"),
        ({"bundle": {"CPU": NAN}}, "'CPU'"),
        ({"bundle": {"CPU": -1.0}}, "0 or more"),
    ],
)
def test_a_registration_is_checked_where_it_is_made(fields, words):
    with pytest.raises(InvalidInputError, match=words):
        RegisterRequest(**{"app": "A", "report": events.AppReport(1, 1, 1, 1), **fields})


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (pb.ArbiterMessage(report_request=pb.ReportRequest(n_avg=NAN)), "n_avg"),
        (pb.ArbiterMessage(offer=pb.Offer(lease_s=-1)), "lease_s"),
        (pb.ArbiterMessage(leases=pb.Leases(leases=[pb.Lease(id="L", expires_in_s=NAN)])), "expir"),
        (pb.ArbiterMessage(leases=pb.Leases()), "not JSON"),
        (pb.ArbiterMessage(leases=pb.Leases(reason=pb.Reason(json="[]"))), "'kind'"),
        (pb.ArbiterMessage(welcome=pb.Welcome()), "twice"),
        (pb.ArbiterMessage(), "same version"),
    ],
)
def test_a_bad_message_of_the_arbiter_is_refused_too(message, words):
    with pytest.raises(ProtocolError, match=words):
        convert.command_from(message, "A", 0.0)


def test_a_welcome_is_checked():
    with pytest.raises(ProtocolError, match="must be Welcome"):
        convert.welcome_from(pb.ArbiterMessage())
    with pytest.raises(ProtocolError, match="lease_s = nan"):
        convert.welcome_from(pb.ArbiterMessage(welcome=pb.Welcome(session_secret="s", lease_s=NAN)))


def test_what_is_not_the_speakers_to_send_is_refused():
    with pytest.raises(ProtocolError, match="Tick is not an AGENT's"):
        convert.agent_message(events.Tick())
    with pytest.raises(ProtocolError, match="Decided is not addressed"):
        convert.arbiter_message(commands.Decided(1, {}), 0.0)


def test_a_failure_stands_for_its_error():
    assert isinstance(Failure("BidError", "no").as_error(), BidError)
    for name in ("os", "MissingExtraError", "Nonsense"):
        error = Failure(name, "no").as_error()
        assert type(error) is ProtocolError
        assert str(error) == "no"


def test_a_reason_without_words_is_refused():
    with pytest.raises(ProtocolError, match="'text'"):
        ReceivedReason.from_json('{"kind": "Won", "remedy": ""}')


def test_the_generated_code_is_of_this_proto(tmp_path):
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from grpc_tools import protoc

    folder = Path(themis_ray.rpc.__file__).parent
    mapped = "themis_ray/rpc/_generated"
    out = tmp_path / "set"
    arguments = ["protoc", f"-I{mapped}={folder}", f"--descriptor_set_out={out}"]
    assert protoc.main([*arguments, f"{mapped}/themis.proto"]) == 0
    (now,) = FileDescriptorSet.FromString(out.read_bytes()).file
    messages = list(now.message_type)
    for message in messages:  # protoc adds the fields' JSON names to a set, but not to the code
        messages.extend(message.nested_type)
        for field in message.field:
            field.ClearField("json_name")
    assert pb.DESCRIPTOR.serialized_pb == now.SerializeToString(), (
        "themis.proto has changed; run python -m themis_ray.rpc.generate"
    )


def test_importing_the_package_is_light():
    code = "import sys, themis_ray.rpc, themis_ray.rpc.messages; print('grpc' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
