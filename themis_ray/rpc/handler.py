"""What the server asks of the live arbiter."""

from __future__ import annotations

from typing import Protocol

from themis_ray.core.events import Event
from themis_ray.rpc.messages import RegisterRequest, WelcomeInfo
from themis_ray.rpc.session import Session


class Handler(Protocol):
    """The live arbiter, as the gRPC server sees it.

    All methods run on the server's event loop. Calls for one session come one after the other, in
    the order of its messages, and are never cancelled half-way; those of different sessions
    interleave at awaits. A :class:`~themis_ray.errors.ThemisError` that a method raises reaches
    the caller with its class and message; any other exception is logged here and reaches the
    caller as an internal error.
    """

    def now(self) -> float:
        """The time in seconds on the clock of the core's ``LeaseView.expires_s``."""

    async def on_register(self, request: RegisterRequest, session: Session) -> WelcomeInfo:
        """An app connects.

        ``session.resumed`` says that it showed the secret of the app's earlier session (or, after
        a restart of the arbiter, of one that the server no longer knows). When it is false and
        the app is still known here, then the earlier driver is gone for good: its successor
        starts afresh.

        ``session.send`` works already; what it sends follows the welcome.
        """

    async def on_event(self, app: str, event: Event) -> None:
        """An app's message: a report, bid, group request or release, or GPUs given back.

        ``AppLeft`` is the app's orderly end: nothing more comes from this session after it, and
        ``on_disconnect`` is not called. An error becomes a ``Failure`` message to this app, whose
        session goes on.
        """

    async def on_disconnect(self, app: str, session: Session, why: str) -> None:
        """An app's session ended without ``AppLeft``: its driver died, froze or was cut off.

        The app may come back with its secret. Not called when a new session of the app has taken
        this one's place, nor while the server stops.
        """

    async def status(self) -> dict[str, object]:
        """The state of the cluster, ready for JSON."""

    async def explain(self, app: str) -> dict[str, object]:
        """The last decisions about an app, ready for JSON.

        Raises:
            UnknownAppError: There is no such app.
        """

    async def stop(self, why: str) -> None:
        """Somebody asked the arbiter to stop.

        Must return before the server is stopped, since the caller waits for the answer: start
        the shutdown as a task of its own.
        """
