"""The arbiter's gRPC server, on the running asyncio event loop."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable
from typing import Any, TypeVar

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from themis_ray.errors import ArbiterUnavailableError, ConfigError, ThemisError
from themis_ray.rpc._generated import themis_pb2 as pb
from themis_ray.rpc._generated import themis_pb2_grpc as pb_grpc
from themis_ray.rpc.auth import TokenInterceptor
from themis_ray.rpc.channel import KEEPALIVE_S, KEEPALIVE_TIMEOUT_S, server_options
from themis_ray.rpc.failures import abort, internal
from themis_ray.rpc.handler import Handler
from themis_ray.rpc.session import QUEUE_LIMIT, Session
from themis_ray.rpc.stream import Registry, Stream

logger = logging.getLogger(__name__)

T = TypeVar("T")

SERVICE = "themis.v1.Arbiter"
"""The service's name, for the health service too."""


class ArbiterServer:
    """Serves AGENTs and the CLI; hands what they say to the live arbiter.

    Args:
        handler: The live arbiter.
        token: The cluster's token, which every call must carry.
        host: The address to listen on.
        port: The port; 0 for any free one.
        queue_limit: How many messages may wait for one client before it is given up.
        keepalive_s: A client that is silent for so long is pinged.
        keepalive_timeout_s: A client that does not answer a ping for so long is lost.
    """

    def __init__(
        self,
        handler: Handler,
        token: str,
        host: str = "0.0.0.0",
        port: int = 0,
        *,
        queue_limit: int = QUEUE_LIMIT,
        keepalive_s: float = KEEPALIVE_S,
        keepalive_timeout_s: float = KEEPALIVE_TIMEOUT_S,
    ) -> None:
        self._address = f"{host}:{port}"
        self._registry = Registry(queue_limit)
        self._servicer = _Servicer(handler, self._registry)
        self._interceptor = TokenInterceptor(token)
        self._options = server_options(keepalive_s, keepalive_timeout_s)
        self._health = health.aio.HealthServicer()
        self._server: Any = None

    async def start(self) -> int:
        """Listen and serve.

        Returns:
            The port.

        Raises:
            ConfigError: The address cannot be listened on.
        """
        server = grpc.aio.server(interceptors=(self._interceptor,), options=self._options)
        pb_grpc.add_ArbiterServicer_to_server(self._servicer, server)  # type: ignore[no-untyped-call]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        try:
            port = int(server.add_insecure_port(self._address))
        except RuntimeError as error:
            raise ConfigError(
                f"cannot listen on {self._address} ({error}); choose a free port, or 0 for any"
            ) from None
        await server.start()
        self._server = server
        await self._health.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)
        logger.info("the arbiter listens on port %d", port)
        return port

    async def stop(self, grace: float = 1.0) -> None:
        """Close all sessions, and stop; the clients will look for a new arbiter.

        Args:
            grace: Seconds that calls in progress may still take.
        """
        if self._server is None:
            return
        server, self._server = self._server, None
        self._registry.stopping = True
        await self._health.enter_graceful_shutdown()
        for session in list(self._registry.live.values()):
            session.close(ArbiterUnavailableError("the arbiter has stopped"))
        await self._servicer.finish(grace)
        await server.stop(grace)

    @property
    def sessions(self) -> dict[str, Session]:
        """The live session of each connected app."""
        return dict(self._registry.live)


class _Servicer:
    """The calls of ``themis.proto``."""

    def __init__(self, handler: Handler, registry: Registry) -> None:
        self._handler = handler
        self._registry = registry
        self._streams: set[asyncio.Task[ThemisError | None]] = set()
        # Sessions' calls whose clients have not been told yet how they end.
        self._calls: set[asyncio.Future[None]] = set()

    async def finish(self, timeout_s: float) -> None:
        """Wait for the handler to be done with all sessions; after ``timeout_s`` cancel it.

        Then the clients are told; that, too, is waited for, but no longer than ``timeout_s``.
        """
        if self._streams:
            _, late = await asyncio.wait(self._streams, timeout=timeout_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        if self._calls:
            await asyncio.wait(self._calls, timeout=timeout_s)

    async def Session(self, _requests: object, context: Any) -> None:
        """Serve one app's stream."""
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._calls.add(told)
        try:
            await self._serve(context)
        finally:
            self._calls.discard(told)
            told.set_result(None)

    async def _serve(self, context: Any) -> None:
        stream = Stream(self._registry, self._handler, context)
        task = asyncio.create_task(stream.run())
        self._streams.add(task)
        task.add_done_callback(self._streams.discard)
        try:
            error = await asyncio.shield(task)
        except asyncio.CancelledError:
            stream.break_off()
            raise
        if error is not None:
            await abort(context, error)

    async def Status(self, _request: pb.StatusRequest, context: Any) -> pb.JsonReply:
        """Who holds what."""
        return await _json(context, "making the status", self._handler.status())

    async def Explain(self, request: pb.ExplainRequest, context: Any) -> pb.JsonReply:
        """The last decisions about one app."""
        return await _json(context, "explaining", self._handler.explain(request.app))

    async def Stop(self, request: pb.StopRequest, context: Any) -> pb.StopReply:
        """Stop the arbiter."""
        await _answer(context, "stopping", self._handler.stop(request.why or "asked to stop"))
        return pb.StopReply()


async def _json(context: Any, doing: str, answer: Awaitable[dict[str, object]]) -> pb.JsonReply:
    async def dumped() -> str:
        return json.dumps(await answer, default=str)

    return pb.JsonReply(json=await _answer(context, doing, dumped()))


async def _answer(context: Any, doing: str, answer: Awaitable[T]) -> T:
    """The handler's answer; its errors end the call."""
    try:
        return await answer
    except ThemisError as error:
        await abort(context, error)
    except Exception as error:
        logger.exception("%s failed", doing)
        await abort(context, internal(doing, error))
    raise AssertionError("abort raises")
