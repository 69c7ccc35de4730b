"""Calls of one answer, health, restarts, and processes that die or freeze."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from themis_ray.core import events
from themis_ray.errors import (
    ArbiterUnavailableError,
    AuthenticationError,
    ConfigError,
    UnknownAppError,
)
from themis_ray.rpc import server as server_module
from themis_ray.rpc.client import fetch_explain, fetch_status, request_stop
from themis_ray.rpc.messages import Endpoint
from themis_ray.rpc.server import SERVICE, ArbiterServer

PATIENCE_S = 20.0
TOKEN = "the-cluster's-token"
HERE = Path(__file__).parent


def test_calls_of_one_answer(served, agent):
    agent(served.endpoint).client.connect(PATIENCE_S)
    assert fetch_status(served.endpoint) == {"apps": ["A"]}
    assert fetch_explain(served.endpoint, "A") == {"app": "A"}
    with pytest.raises(UnknownAppError, match="no app 'B'; `themis status` lists"):
        fetch_explain(served.endpoint, "B")
    request_stop(served.endpoint, "a test")
    assert served.handler.wait_for("stop") == ("a test",)


def test_calls_of_one_answer_need_the_token(served):
    wrong = Endpoint(served.endpoint.address, "wrong")
    for call in (fetch_status, request_stop, lambda endpoint: fetch_explain(endpoint, "A")):
        with pytest.raises(AuthenticationError, match="a wrong token"):
            call(wrong)
    assert "token" not in repr(wrong)


def test_a_call_to_nobody_says_how_to_start_an_arbiter():
    with pytest.raises(ArbiterUnavailableError, match=r"127.0.0.1:1 \(.*themis start"):
        fetch_status(Endpoint("127.0.0.1:1", "t"), timeout_s=5)


def health(served, token, service=SERVICE):
    with grpc.insecure_channel(served.endpoint.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        shown = () if token is None else (("x-themis-token", token),)
        return stub.Check(
            health_pb2.HealthCheckRequest(service=service), metadata=shown, timeout=PATIENCE_S
        ).status


def test_the_health_service_answers_those_with_the_token(served):
    assert health(served, TOKEN) == health(served, TOKEN, "") == 1
    for token in (None, "wrong"):
        with pytest.raises(grpc.RpcError, match="token") as caught:
            health(served, token)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    served.call(served.server._health.enter_graceful_shutdown())
    assert health(served, TOKEN) == 2


def test_a_server_needs_a_token_and_a_free_port(served, serve):
    with pytest.raises(ConfigError, match="token is empty"):
        ArbiterServer(served.handler, "")
    with pytest.raises(ConfigError, match=f"{served.port}.*choose a free port"):
        serve(port=served.port)


def test_a_client_follows_the_arbiter_to_another_port(serve, agent):
    first = serve()
    where = [first.endpoint]
    one = agent(lambda: where[0])
    one.client.connect(PATIENCE_S)
    _, session = first.handler.wait_for("register")
    assert one.next_state()[0] == "connected"
    first.stop()
    assert one.next_state() == ("lost", "the arbiter has stopped")
    assert not one.client.send(events.GroupReleased("A", "g"))
    second = serve()
    where[0] = second.endpoint
    assert one.next_state()[0] == "connected"
    request, again = second.handler.wait_for("register")
    assert request.session_secret == again.secret == session.secret
    assert again.resumed
    assert one.client.error is None
    assert one.client.send(events.GroupReleased("A", "g"))
    assert second.handler.wait_for("event")[0] == "A"


def test_clients_are_told_of_the_stop_before_their_calls_are_cut_off(serve, agent, monkeypatch):
    said = []
    abort = server_module.abort

    async def slow_abort(context, error):
        await asyncio.sleep(0.05)  # the loop has other things to do
        said.append("told")
        await abort(context, error)

    monkeypatch.setattr(server_module, "abort", slow_abort)
    served = serve()
    one = agent(served.endpoint)
    one.client.connect(PATIENCE_S)
    grpc_server = served.server._server
    stop = grpc_server.stop

    async def cut_off(grace):
        said.append("cut off")
        await stop(grace)

    served.server._server = SimpleNamespace(stop=cut_off)
    served.stop()
    assert said == ["told", "cut off"]
    assert [one.next_state(), one.next_state()][1] == ("lost", "the arbiter has stopped")


def test_a_client_without_an_arbiter_can_be_closed(serve, agent):
    served = serve()
    one = agent(served.endpoint)
    one.client.connect(PATIENCE_S)
    served.stop()
    assert [one.next_state()[0], one.next_state()[0]] == ["connected", "lost"]
    one.client.close()
    assert one.next_state()[0] == "closed"


def test_a_new_token_that_the_client_cannot_read_ends_it(serve, agent):
    first = serve()
    where = [first.endpoint]
    one = agent(lambda: where[0])
    one.client.connect(PATIENCE_S)
    where[0] = Endpoint(serve().endpoint.address, "of the first")
    first.stop()
    assert [one.next_state()[0], one.next_state()[0]] == ["connected", "lost"]
    state, message = one.next_state()
    assert (state, "wrong token" in message) == ("closed", True)
    assert isinstance(one.client.error, AuthenticationError)


@pytest.fixture
def process():
    """Starts helper scripts of this folder."""
    running = []

    def start(script, *arguments):
        command = [sys.executable, str(HERE / script), *arguments]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return running[-1]

    yield start
    for one in running:
        one.kill()
        one.communicate()


def test_a_killed_driver_is_noticed_and_does_not_block_its_successor(served, process, agent):
    driver = process("agent_process.py", served.endpoint.address, TOKEN, "A")
    _, session = served.handler.wait_for("register")
    driver.send_signal(signal.SIGKILL)
    assert served.handler.wait_for("disconnect")[:2] == ("A", session)
    agent(served.endpoint).client.connect(PATIENCE_S)


def test_a_frozen_driver_is_noticed_and_may_come_back(served, process):
    driver = process("agent_process.py", served.endpoint.address, TOKEN, "A")
    _, session = served.handler.wait_for("register")
    assert driver.stdout.readline() == "connected\n"
    driver.send_signal(signal.SIGSTOP)
    assert served.handler.wait_for("disconnect")[:2] == ("A", session)
    driver.send_signal(signal.SIGCONT)
    # It learns that it was given up before it does anything else.
    assert [driver.stdout.readline(), driver.stdout.readline()] == ["lost\n", "connected\n"]
    assert served.handler.wait_for("register")[1].resumed


def test_a_frozen_driver_whose_name_was_taken_gives_up(served, process, agent):
    driver = process("agent_process.py", served.endpoint.address, TOKEN, "A")
    served.handler.wait_for("register")
    driver.send_signal(signal.SIGSTOP)
    served.handler.wait_for("disconnect")
    agent(served.endpoint).client.connect(PATIENCE_S)
    driver.send_signal(signal.SIGCONT)
    assert [driver.stdout.readline() for _ in range(3)] == ["connected\n", "lost\n", "closed\n"]


def test_a_frozen_arbiter_is_noticed(process, agent):
    arbiter = process("arbiter_process.py")
    one = agent(Endpoint(f"127.0.0.1:{arbiter.stdout.readline().strip()}", TOKEN))
    one.client.connect(PATIENCE_S)
    arbiter.send_signal(signal.SIGSTOP)
    assert [one.next_state()[0], one.next_state()[0]] == ["connected", "lost"]
    arbiter.send_signal(signal.SIGCONT)
    assert one.next_state()[0] == "connected"
