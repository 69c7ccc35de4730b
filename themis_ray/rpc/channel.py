"""How connections are kept, at both ends, and made by the clients."""

from __future__ import annotations

from typing import Any

import grpc

from themis_ray.rpc.auth import TOKEN_KEY
from themis_ray.rpc.messages import Endpoint

KEEPALIVE_S = 2.0
"""A connection that is silent for so long is pinged."""

KEEPALIVE_TIMEOUT_S = 3.0
"""A ping that is not answered for so long ends the connection: the peer is dead, or frozen.

gRPC answers pings from a thread of its own that needs no Python, so a peer that only computes,
or holds the interpreter for long, does answer."""

CONNECT_TIMEOUT_S = 5.0
"""The longest that one attempt to connect may take."""

LARGEST_MESSAGE = 64 << 20
"""Bytes; an offer or bid table of a cluster of ten thousand machines stays far below."""

Option = tuple[str, int]


def _keepalive(every_s: float, timeout_s: float) -> list[Option]:
    return [
        ("grpc.keepalive_time_ms", round(every_s * 1000)),
        ("grpc.keepalive_timeout_ms", round(timeout_s * 1000)),
        # It is this one, a minute by default, that ends the connection when a frozen peer leaves
        # the ping unanswered (seen on gRPC 1.85).
        ("grpc.http2.ping_timeout_ms", round(timeout_s * 1000)),
        ("grpc.keepalive_permit_without_calls", 1),
        # By default gRPC sends two pings and then none until data flows.
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.max_receive_message_length", LARGEST_MESSAGE),
        ("grpc.max_send_message_length", LARGEST_MESSAGE),
    ]


def server_options(
    keepalive_s: float = KEEPALIVE_S, keepalive_timeout_s: float = KEEPALIVE_TIMEOUT_S
) -> list[Option]:
    """Options of the arbiter's server: find dead clients, and let the clients do the same."""
    return [
        *_keepalive(keepalive_s, keepalive_timeout_s),
        # By default a client that pings more than once in five minutes is sent away
        # ("too many pings").
        ("grpc.http2.min_ping_interval_without_data_ms", 200),
        ("grpc.http2.max_ping_strikes", 0),
        # Two arbiters on one port would each get some of the calls.
        ("grpc.so_reuseport", 0),
    ]


def client_options(
    keepalive_s: float = KEEPALIVE_S, keepalive_timeout_s: float = KEEPALIVE_TIMEOUT_S
) -> list[Option]:
    """Options of a client's channel."""
    return [
        *_keepalive(keepalive_s, keepalive_timeout_s),
        ("grpc.min_reconnect_backoff_ms", round(CONNECT_TIMEOUT_S * 1000)),
        # A proxy that leads out of the cluster cannot lead to the arbiter in it.
        ("grpc.enable_http_proxy", 0),
        # Retrying is the client's own business: the arbiter may be elsewhere by then.
        ("grpc.enable_retries", 0),
        ("grpc.use_local_subchannel_pool", 1),
    ]


def open_channel(endpoint: Endpoint) -> Any:
    """A channel to the arbiter; it connects with the first call."""
    return grpc.insecure_channel(endpoint.address, options=client_options())


def metadata(endpoint: Endpoint) -> tuple[tuple[str, str], ...]:
    """What every call must carry."""
    return ((TOKEN_KEY, endpoint.token),)
