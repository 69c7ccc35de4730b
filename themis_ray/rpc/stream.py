"""The course of one session's stream, from registration to its end."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import grpc

from themis_ray.core.events import AppLeft
from themis_ray.errors import (
    ArbiterUnavailableError,
    DuplicateAppError,
    ProtocolError,
    ThemisError,
)
from themis_ray.rpc import convert
from themis_ray.rpc._generated import themis_pb2 as pb
from themis_ray.rpc.auth import new_secret, same
from themis_ray.rpc.failures import internal
from themis_ray.rpc.handler import Handler
from themis_ray.rpc.messages import Failure, RegisterRequest, WelcomeInfo
from themis_ray.rpc.session import QUEUE_LIMIT, Session

logger = logging.getLogger(__name__)

REGISTER_TIMEOUT_S = 10.0
"""How long a client may take from opening a stream to registering."""


class Registry:
    """The live sessions, and the secrets of the apps that may come back.

    Args:
        queue_limit: How many messages may wait for one client.
    """

    def __init__(self, queue_limit: int = QUEUE_LIMIT) -> None:
        self.live: dict[str, Session] = {}
        self.stopping = False
        self._secrets: dict[str, str] = {}
        self._queue_limit = queue_limit

    def admit(self, request: RegisterRequest) -> tuple[Session, Session | None]:
        """Make a session for an app, and close the one whose place it takes, if any.

        Returns:
            The new session, and the one that it displaced.

        Raises:
            DuplicateAppError: Another driver has the name.
            ArbiterUnavailableError: The server is about to stop.
        """
        if self.stopping:
            raise ArbiterUnavailableError("the arbiter is stopping; start one with `themis start`")
        app, shown = request.app, request.session_secret
        live = self.live.get(app)
        known = live.secret if live is not None else self._secrets.get(app)
        resumed = bool(shown) and (known is None or same(shown, known))
        if live is not None and not resumed:
            driver = live.request.driver
            raise DuplicateAppError(
                f"an app named {app!r} is running already (process {driver.pid} on "
                f"{driver.host or 'an unnamed host'}); give this one another name, or try again "
                "in some seconds if that process has just ended"
            )
        if shown and not resumed:
            raise DuplicateAppError(
                f"the name {app!r} has been taken by another driver since this one lost its "
                "connection; start this app again under another name"
            )
        secret = shown if resumed else new_secret()
        session = Session(request, secret, resumed=resumed, queue_limit=self._queue_limit)
        self.live[app] = session
        if live is not None:
            live.close(DuplicateAppError(f"a newer session of app {app!r} has taken over"))
        return session, live

    def confirm(self, session: Session) -> None:
        """The app is registered: from now on only this session's secret speaks for it."""
        self._secrets[session.app] = session.secret

    def drop(self, session: Session, *, forget: bool = False) -> bool:
        """Take a session off the live ones; false when a newer one has its place.

        Args:
            session: Which.
            forget: The app will not come back: its secret is worth nothing from now on.
        """
        if self.live.get(session.app) is not session:
            return False
        del self.live[session.app]
        if forget:
            self._secrets.pop(session.app, None)
        return True


class Stream:
    """Serves one stream.

    It runs in a task of the server's own, so that a broken connection, which cancels the task of
    the gRPC call, does not cancel a call of the handler half-way.

    Args:
        registry: The live sessions.
        handler: The live arbiter.
        context: The servicer context of the call.
    """

    def __init__(self, registry: Registry, handler: Handler, context: Any) -> None:
        self._registry = registry
        self._handler = handler
        self._context = context
        self._session: Session | None = None
        self._broken = False

    def break_off(self) -> None:
        """The connection is gone."""
        self._broken = True
        if self._session is not None:
            self._session.close("the connection to its driver broke")

    async def run(self) -> ThemisError | None:
        """Serve the stream to its end.

        Returns:
            Why it failed; None when the app is done.
        """
        try:
            message = await asyncio.wait_for(self._context.read(), REGISTER_TIMEOUT_S)
        except TimeoutError:
            return ProtocolError(f"no Register came within {REGISTER_TIMEOUT_S:g} s")
        except Exception as error:  # gRPC raises various things once a call is dead
            return ArbiterUnavailableError(f"the stream broke before Register ({error})")
        if message is grpc.aio.EOF:
            return ProtocolError("the stream ended before it began; send Register first")
        try:
            session, welcome = await self._register(convert.register_from(message))
        except ThemisError as error:
            return error
        except Exception as error:
            logger.exception("registering an app failed")
            return internal("registering the app", error)
        return await self._serve(session, convert.welcome_message(welcome, session.secret))

    async def _register(self, request: RegisterRequest) -> tuple[Session, WelcomeInfo]:
        session, displaced = self._registry.admit(request)
        self._session = session
        try:
            if displaced is not None:
                await displaced.finished.wait()
            welcome = await self._handler.on_register(request, session)
        except BaseException as error:
            session.finished.set()
            if self._registry.drop(session) and displaced is not None:
                await self._disconnected(displaced, f"it could not register again: {error}")
            raise
        self._registry.confirm(session)
        if self._broken:
            self.break_off()
        return session, welcome

    async def _serve(self, session: Session, welcome: pb.ArbiterMessage) -> ThemisError | None:
        writer = asyncio.create_task(self._write(session, welcome))
        try:
            done = await self._read(session)
        finally:
            writer.cancel()
            await asyncio.wait({writer})
            session.finished.set()
        if done:
            self._registry.drop(session, forget=True)
            session.close("the app is done")
            return None
        session.close("the driver closed its session without a word")
        reason = session.ended.result()
        if self._registry.drop(session) and not self._registry.stopping:
            await self._disconnected(session, str(reason))
        return reason

    async def _read(self, session: Session) -> bool:
        """Hand on the app's messages until it is done (true) or its stream ends (false)."""
        while True:
            read = asyncio.ensure_future(self._context.read())
            await asyncio.wait({read, session.ended}, return_when=asyncio.FIRST_COMPLETED)
            if not read.done():
                read.cancel()
            if session.closed:
                return False
            try:
                message = read.result()
            except Exception as error:
                session.close(f"the connection to its driver broke ({error})")
                return False
            if message is grpc.aio.EOF:
                return False
            if await self._dispatch(session, message):
                return True

    async def _dispatch(self, session: Session, message: Any) -> bool:
        """Handle one message; true when it was the last, in good order."""
        event = None
        try:
            event = convert.event_from(message, session.app)
            await self._handler.on_event(session.app, event)
        except ThemisError as error:
            session.send(Failure(type(error).__name__, str(error)))
        except Exception as error:
            logger.exception("handling a message of app %r failed", session.app)
            session.send(Failure("ThemisError", str(internal("handling a message", error))))
        return isinstance(event, AppLeft)

    async def _write(self, session: Session, welcome: pb.ArbiterMessage) -> None:
        try:
            await self._context.write(welcome)
            while True:
                command = await session.next_command()
                await self._context.write(convert.arbiter_message(command, self._handler.now()))
        except Exception as error:
            logger.info("writing to app %r failed: %s", session.app, error)
            session.close(f"the connection to its driver broke ({error})")

    async def _disconnected(self, session: Session, why: str) -> None:
        try:
            await self._handler.on_disconnect(session.app, session, why)
        except Exception:
            logger.exception("handling the loss of app %r failed", session.app)
