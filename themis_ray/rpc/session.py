"""One app's session, as the arbiter holds it."""

from __future__ import annotations

import asyncio

from themis_ray.core.commands import Command
from themis_ray.errors import ArbiterUnavailableError, ProtocolError, ThemisError
from themis_ray.rpc.convert import AppCommand
from themis_ray.rpc.messages import Failure, RegisterRequest

QUEUE_LIMIT = 256
"""Messages that may wait for one client; a round sends it three."""


class Session:
    """One app's connection. For the server's event loop only: not thread-safe.

    Args:
        request: The registration that opened it.
        secret: The app's session secret.
        resumed: Whether the app had a session before and showed its secret.
        queue_limit: How many messages may wait for the client before it is given up.
    """

    def __init__(
        self,
        request: RegisterRequest,
        secret: str,
        *,
        resumed: bool = False,
        queue_limit: int = QUEUE_LIMIT,
    ) -> None:
        self.request = request
        self.app = request.app
        self.secret = secret
        self.resumed = resumed
        self._queue: asyncio.Queue[Command | Failure] = asyncio.Queue(queue_limit)
        self._ended: asyncio.Future[ThemisError] = asyncio.get_running_loop().create_future()
        self.finished = asyncio.Event()
        """Set when the last call to the handler for this session has returned."""

    def __repr__(self) -> str:
        return f"Session({self.app!r}{', closed' if self.closed else ''})"

    @property
    def closed(self) -> bool:
        """Whether the session is over; what is sent now goes nowhere."""
        return self._ended.done()

    @property
    def ended(self) -> asyncio.Future[ThemisError]:
        """Resolves to the reason when the session is over."""
        return self._ended

    def send(self, command: Command | Failure) -> None:
        """Queue a command for the client; never waits.

        Durations are computed when the command leaves, not now. A client that does not read its
        messages is given up: its session is closed when too many wait.

        Args:
            command: ``RequestReport``, ``SendOffer``, ``LeasesChanged``, ``GroupRefused`` or a
                ``Failure``.

        Raises:
            ProtocolError: The command is not addressed to an AGENT, or is for another app.
        """
        if not isinstance(command, AppCommand | Failure):
            raise ProtocolError(f"{type(command).__name__} is not addressed to an AGENT")
        if not isinstance(command, Failure) and command.app != self.app:
            raise ProtocolError(f"a command for app {command.app!r} on the session of {self.app!r}")
        if self.closed:
            return
        try:
            self._queue.put_nowait(command)
        except asyncio.QueueFull:
            self.close(
                f"the driver of app {self.app!r} did not read its messages: "
                f"{self._queue.maxsize} were waiting"
            )

    async def next_command(self) -> Command | Failure:
        """What to send next; waits for it."""
        return await self._queue.get()

    def close(self, reason: str | ThemisError) -> None:
        """End the session; the first reason counts.

        Args:
            reason: For the client. After a text it connects again by itself; an error (other than
                ``ArbiterUnavailableError``) ends the client.
        """
        if not self._ended.done():
            self._ended.set_result(
                ArbiterUnavailableError(reason) if isinstance(reason, str) else reason
            )
