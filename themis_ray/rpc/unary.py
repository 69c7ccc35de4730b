"""The calls of one answer, for the CLI and for scripts."""

from __future__ import annotations

import json
from typing import Any

import grpc

from themis_ray.errors import ProtocolError
from themis_ray.rpc._generated import themis_pb2 as pb
from themis_ray.rpc._generated import themis_pb2_grpc as pb_grpc
from themis_ray.rpc.channel import metadata, open_channel
from themis_ray.rpc.failures import error_from
from themis_ray.rpc.messages import Endpoint

ANSWER_TIMEOUT_S = 10.0
"""How long a call may take by default; a round on a large cluster holds the arbiter for less."""


def fetch_status(endpoint: Endpoint, timeout_s: float = ANSWER_TIMEOUT_S) -> dict[str, Any]:
    """Who holds which GPUs, until when, and why.

    Args:
        endpoint: The arbiter.
        timeout_s: How long to wait for the answer, in seconds.

    Raises:
        ArbiterUnavailableError: Nobody answers in time.
        AuthenticationError: The token is wrong.
    """
    return _object(_call(endpoint, "Status", pb.StatusRequest(), timeout_s).json)


def fetch_explain(
    endpoint: Endpoint, app: str, timeout_s: float = ANSWER_TIMEOUT_S
) -> dict[str, Any]:
    """The last decisions about an app.

    Args:
        endpoint: The arbiter.
        app: The app's name.
        timeout_s: How long to wait for the answer, in seconds.

    Raises:
        UnknownAppError: The arbiter knows no such app.
        ArbiterUnavailableError: Nobody answers in time.
        AuthenticationError: The token is wrong.
    """
    return _object(_call(endpoint, "Explain", pb.ExplainRequest(app=app), timeout_s).json)


def request_stop(
    endpoint: Endpoint, why: str = "asked to stop", timeout_s: float = ANSWER_TIMEOUT_S
) -> None:
    """Ask the arbiter to stop; returns when it has begun to.

    Args:
        endpoint: The arbiter.
        why: For its log and for the apps.
        timeout_s: How long to wait for the answer, in seconds.

    Raises:
        ArbiterUnavailableError: Nobody answers in time.
        AuthenticationError: The token is wrong.
    """
    _call(endpoint, "Stop", pb.StopRequest(why=why), timeout_s)


def _call(endpoint: Endpoint, method: str, request: Any, timeout_s: float) -> Any:
    channel = open_channel(endpoint)
    try:
        stub = pb_grpc.ArbiterStub(channel)  # type: ignore[no-untyped-call]
        return getattr(stub, method)(request, timeout=timeout_s, metadata=metadata(endpoint))
    except grpc.RpcError as error:
        raise error_from(error, endpoint.address) from None
    finally:
        channel.close()


def _object(text: str) -> dict[str, Any]:
    answer = json.loads(text)
    if not isinstance(answer, dict):
        raise ProtocolError("the arbiter's answer is not a JSON object; install the same version")
    return answer
