"""Sessions between a real server and real clients."""

import asyncio
import dataclasses
import math
import threading

import grpc
import pytest

from themis_ray.core import commands, events, explain
from themis_ray.core.bids import BidRow, BidTable
from themis_ray.core.cluster import Allocation
from themis_ray.errors import (
    ArbiterUnavailableError,
    AuthenticationError,
    BidError,
    ConfigError,
    DuplicateAppError,
    InvalidInputError,
    ProtocolError,
    ThemisError,
)
from themis_ray.rpc import convert
from themis_ray.rpc._generated import themis_pb2 as pb
from themis_ray.rpc._generated import themis_pb2_grpc as pb_grpc
from themis_ray.rpc.channel import metadata, open_channel
from themis_ray.rpc.messages import Endpoint, Failure, RegisterRequest

PATIENCE_S = 20.0
TOKEN = "the-cluster's-token"
GPUS = Allocation({"m": 2})
REPORT = events.AppReport(3.0, 30.0, 10.0, 2)


def lease(expires_s=1030.0):
    view = commands.LeaseView("L", GPUS, Allocation(), expires_s, False)
    return commands.LeasesChanged("A", (view,), explain.GotLeftover(GPUS, 30.0))


def offer(app):
    return commands.SendOffer(app, 1, GPUS, Allocation(), Allocation(), {"m": "r0"}, 2.0, 16, 60.0)


def test_a_session_from_beginning_to_end(served, agent):
    served.handler.on_registered = lambda session: session.send(lease())
    one = agent(served.endpoint, bundle={"CPU": 2.0})
    assert one.client.connect(PATIENCE_S) == served.handler.welcome
    request, session = served.handler.wait_for("register")
    assert (request.bundle, session.app, session.resumed) == ({"CPU": 2.0}, "A", False)
    assert dataclasses.replace(request, session_secret="") == one.request
    assert one.next_state()[0] == "connected"
    (view,) = one.next_command().leases
    assert 79.0 < view.expires_s <= 80.0  # 30 s from now, which is 50 for this client

    bid = events.BidReceived(1, BidTable("A", math.inf, (BidRow(0.5, GPUS),)))
    for event in (
        events.Reported("A", REPORT, 1),
        bid,
        events.GroupRequested("A", "g", GPUS),
        events.GroupReleased("A", "g"),
        events.GpusReturned("A", GPUS),
    ):
        assert one.client.send(event)
        assert served.handler.wait_for("event") == ("A", event)

    one.client.close("enough")
    assert served.handler.wait_for("event") == ("A", events.AppLeft("A", "enough"))
    assert one.next_state() == ("closed", "the app is done")
    assert not one.client.send(bid)
    assert served.server.sessions == {}
    assert served.handler.log.empty()  # no on_disconnect after an orderly end


def test_commands_keep_their_order(served, agent):
    one = agent(served.endpoint)
    one.client.connect(PATIENCE_S)
    _, session = served.handler.wait_for("register")
    for n in range(100):
        command = commands.RequestReport("A", n, GPUS, 1.0, 16)
        served.do(session.send, command)
        if n % 10 == 9:
            assert [one.next_command().round_id for _ in range(10)] == list(range(n - 9, n + 1))


def test_a_second_driver_of_the_same_name_is_refused(served, agent):
    first = agent(served.endpoint)
    first.client.connect(PATIENCE_S)
    with pytest.raises(DuplicateAppError, match=r"process 7 on host.*another name"):
        agent(served.endpoint).client.connect(PATIENCE_S)
    with pytest.raises(DuplicateAppError):
        raw_session(served.endpoint, secret="a-guess")
    assert first.client.send(events.GpusReturned("A", GPUS))  # and the first one goes on
    assert served.handler.wait_for("event")[0] == "A"


def test_the_secret_takes_an_app_over(served, agent):
    first = agent(served.endpoint)
    first.client.connect(PATIENCE_S)
    _, old = served.handler.wait_for("register")
    welcome = raw_session(served.endpoint, secret=old.secret, wait=False)
    _, new = served.handler.wait_for("register")
    assert new.resumed
    assert new.secret == old.secret == welcome.session_secret
    assert old.closed
    assert first.next_state()[0] == "connected"
    state, message = first.next_state()
    assert (state, "taken over" in message) == ("closed", True)
    assert isinstance(first.client.error, DuplicateAppError)
    # Only the newer session's end counts.
    assert served.handler.wait_for("disconnect")[1] is new


def raw_session(endpoint, secret="", app="A", wait=True):
    """Register without a client, and break off at once."""
    request = RegisterRequest(app, REPORT, session_secret=secret)
    with open_channel(endpoint) as channel:
        hold = threading.Event()

        def requests():
            yield convert.register_message(request)
            hold.wait(PATIENCE_S)

        call = pb_grpc.ArbiterStub(channel).Session(requests(), metadata=metadata(endpoint))
        try:
            return next(call).welcome
        except grpc.RpcError as error:
            from themis_ray.rpc.failures import error_from

            raise error_from(error, endpoint.address) from None
        finally:
            hold.set()
            call.cancel()


def test_a_driver_lost_while_it_registers_is_reported_lost(served):
    served.handler.slow = served.do(asyncio.Event)
    request = convert.register_message(RegisterRequest("A", REPORT))
    with open_channel(served.endpoint) as channel:
        call = pb_grpc.ArbiterStub(channel).Session(
            iter([request]), metadata=metadata(served.endpoint)
        )
        served.handler.wait_for("register")
        call.cancel()
    served.do(served.handler.slow.set)
    assert served.handler.wait_for("disconnect")[0] == "A"
    assert served.server.sessions == {}


def test_a_call_of_the_handler_is_not_cut_short(served, agent):
    one = agent(served.endpoint)
    one.client.connect(PATIENCE_S)
    served.handler.slow = served.do(asyncio.Event)
    one.client.send(events.GroupReleased("A", "g"))
    served.handler.wait_for("event")
    one.client._connection.cancel()  # the stream breaks; the client comes back at once
    served.do(served.handler.slow.set)
    assert served.handler.wait_for("handled")[1] == events.GroupReleased("A", "g")
    assert served.handler.wait_for("register")[1].resumed


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "send Register first"),
        ([pb.AgentMessage(group_release=pb.GroupRelease(group="g"))], "must be Register"),
    ],
)
def test_a_stream_must_begin_with_a_registration(served, messages, words):
    with open_channel(served.endpoint) as channel:
        stub = pb_grpc.ArbiterStub(channel)
        with pytest.raises(grpc.RpcError, match=words) as caught:
            next(stub.Session(iter(messages), metadata=metadata(served.endpoint)))
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert served.handler.log.empty()


def test_a_stream_that_says_nothing_is_ended(served, monkeypatch):
    monkeypatch.setattr("themis_ray.rpc.stream.REGISTER_TIMEOUT_S", 0.1)
    hold = threading.Event()

    def nothing():
        hold.wait(PATIENCE_S)
        yield from ()

    with open_channel(served.endpoint) as channel:
        call = pb_grpc.ArbiterStub(channel).Session(nothing(), metadata=metadata(served.endpoint))
        with pytest.raises(grpc.RpcError, match=r"no Register came within 0.1 s"):
            next(call)
        hold.set()


def test_a_lost_driver_may_be_replaced_and_then_stays_out(served, agent):
    ghost = raw_session(served.endpoint)
    _, lost, _ = served.handler.wait_for("disconnect")
    second = agent(served.endpoint)
    second.client.connect(PATIENCE_S)
    _, session = served.handler.wait_for("register")
    assert not session.resumed
    assert session.secret != lost.secret == ghost.session_secret
    second.client.close()
    served.handler.wait_for("event")
    third = agent(served.endpoint)
    third.client.connect(PATIENCE_S)
    with pytest.raises(DuplicateAppError):
        raw_session(served.endpoint, secret=ghost.session_secret)


def test_a_refused_message_leaves_the_session_alive(served, agent):
    one, other = agent(served.endpoint), agent(served.endpoint, "B")
    one.client.connect(PATIENCE_S)
    other.client.connect(PATIENCE_S)
    served.handler.errors["A"] = BidError("nobody offered you those; bid within the offer")
    one.client.send(events.Reported("A", REPORT))
    assert one.next_command() == Failure(
        "BidError", "nobody offered you those; bid within the offer"
    )
    served.handler.errors["A"] = ZeroDivisionError("a bug")
    one.client.send(events.Reported("A", REPORT))
    assert "ZeroDivisionError: a bug" in one.next_command().message
    # What the core's own types would refuse to build can still arrive.
    with one.client._lock:
        one.client._connection.send(pb.AgentMessage(bid=pb.Bid(r_nothing=math.nan)))
    failure = one.next_command()
    assert isinstance(failure.as_error(), BidError)
    for client, app in ((one, "A"), (other, "B")):
        client.client.send(events.GroupReleased(app, "g"))
    ours = set()
    while len(ours) < 2:
        app, event = served.handler.wait_for("event")
        if isinstance(event, events.GroupReleased):
            ours.add(app)


def test_a_refused_registration_reaches_the_user(served, agent):
    served.handler.refuse = ConfigError("max_gpus_per_trial = 99; the cluster has 16")
    with pytest.raises(ConfigError, match="cluster has 16"):
        agent(served.endpoint).client.connect(PATIENCE_S)
    served.handler.refuse = None
    agent(served.endpoint).client.connect(PATIENCE_S)  # the name is free


def test_a_fault_of_the_arbiter_is_tried_again(served, agent):
    served.handler.refuse = KeyError("oops")
    one = agent(served.endpoint)
    with pytest.raises(ThemisError, match=r"KeyError.*see its log"):
        one.client.connect(1.0)
    served.handler.wait_for("register")
    served.handler.wait_for("register")


def test_a_wrong_token_is_refused(served, agent):
    for token in ("wrong", TOKEN + "x"):
        with pytest.raises(AuthenticationError, match=r"wrong token.*read the token"):
            agent(Endpoint(served.endpoint.address, token)).client.connect(PATIENCE_S)
    assert served.handler.log.empty()


def test_without_an_arbiter_connect_says_how_to_start_one(agent):
    with pytest.raises(ArbiterUnavailableError, match=r"127.0.0.1:1 .*themis start"):
        agent(Endpoint("127.0.0.1:1", "t")).client.connect(1.0)

    def nowhere():
        raise ArbiterUnavailableError("no arbiter runs in this Ray cluster")

    with pytest.raises(ArbiterUnavailableError, match="this Ray cluster"):
        agent(nowhere).client.connect(0.5)


def test_a_client_is_for_one_connection_and_one_app(served, agent):
    with pytest.raises(InvalidInputError, match="weight"):
        agent(served.endpoint, weight=-1.0)
    one = agent(served.endpoint)
    assert not one.client.send(events.Reported("A", REPORT))  # not connected
    one.client.connect(PATIENCE_S)
    with pytest.raises(ProtocolError, match="used before"):
        one.client.connect(PATIENCE_S)
    with pytest.raises(ProtocolError, match="'A' cannot speak for app 'B'"):
        one.client.send(events.GroupReleased("B", "g"))
    with pytest.raises(ProtocolError, match=r"close\(why\)"):
        one.client.send(events.AppLeft("A"))
    with pytest.raises(ProtocolError, match="Tick"):
        one.client.send(events.Tick())


def test_a_command_for_another_is_not_sent(served, agent):
    agent(served.endpoint).client.connect(PATIENCE_S)
    _, session = served.handler.wait_for("register")
    with pytest.raises(ProtocolError, match="for app 'B'"):
        served.do(session.send, offer("B"))
    with pytest.raises(ProtocolError, match="Decided"):
        served.do(session.send, commands.Decided(1, {}))


def test_callbacks_that_fail_do_not_end_the_client(served, agent):
    one = agent(served.endpoint)
    seen = []

    def bad(command):
        seen.append(command)
        if len(seen) == 1:
            raise ValueError("a bug in the app")
        one.client.close()  # from the client's own thread

    one.client._on_command = bad
    one.client.connect(PATIENCE_S)
    _, session = served.handler.wait_for("register")
    served.do(session.send, offer("A"))
    served.do(session.send, lease())
    assert served.handler.wait_for("event")[1] == events.AppLeft("A")
    one.client._thread.join(PATIENCE_S)
    assert len(seen) == 2


def test_a_client_that_does_not_read_is_given_up_and_others_are_served(serve, agent):
    served = serve(queue_limit=8)
    slow, quick = agent(served.endpoint, "slow"), agent(served.endpoint, "quick")
    go_on, blocked = threading.Event(), threading.Event()
    slow.client._on_command = lambda _: (blocked.set(), go_on.wait(PATIENCE_S))
    slow.client.connect(PATIENCE_S)
    quick.client.connect(PATIENCE_S)
    sessions = served.handler.sessions
    # Large messages, to fill what gRPC itself holds back.
    big = dataclasses.replace(offer("slow"), racks={f"machine{n}": "r" * 100 for n in range(9000)})
    try:
        for n in range(200):
            served.do(sessions["slow"].send, big)
            served.do(sessions["quick"].send, commands.RequestReport("quick", n, GPUS, 1.0, 16))
            assert quick.next_command().round_id == n
            if sessions["slow"].closed:
                break
        app, session, why = served.handler.wait_for("disconnect")
        assert (app, session) == ("slow", sessions["slow"])
        assert "did not read its messages: 8 were waiting" in why
        assert blocked.is_set()
    finally:
        go_on.set()
    assert "slow" not in served.server.sessions or sessions["slow"] is not session
