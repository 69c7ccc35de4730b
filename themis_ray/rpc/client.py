"""An app's end of its session, for a driver process that has no asyncio loop.

Threads: one reads and reconnects, and calls the callbacks; gRPC writes from one of its own, and
runs one per connection. None of them outlives :meth:`AgentClient.close`.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from themis_ray.core.events import AppLeft, BidReceived, Event
from themis_ray.errors import ArbiterUnavailableError, ProtocolError, ThemisError
from themis_ray.rpc import convert
from themis_ray.rpc.connection import Connection
from themis_ray.rpc.convert import AppCommand
from themis_ray.rpc.messages import (
    ConnectionState,
    Endpoint,
    Failure,
    RegisterRequest,
    WelcomeInfo,
)
from themis_ray.rpc.unary import fetch_explain, fetch_status, request_stop

__all__ = ["AgentClient", "fetch_explain", "fetch_status", "request_stop"]

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 5.0
FIRST_BACKOFF_S = 0.1
LONGEST_BACKOFF_S = 5.0


class AgentClient:
    """Keeps an app in touch with the arbiter, wherever that is.

    When the stream breaks, the client asks ``find_endpoint`` again (a restarted arbiter has
    another port), registers with the app's secret and the present state from ``register``, and
    goes on. What was sent meanwhile, or was under way, is *not* sent again: ``register`` tells
    the arbiter how the app stands, and on ``CONNECTED`` the app repeats the requests that it is
    still waiting on.

    Args:
        find_endpoint: Where the arbiter answers now; may raise when it does not know.
        register: How the app introduces itself, now; called for each connection.
        on_command: Called with each command, or ``Failure`` when a message was refused.
        on_state: Called when the connection's state changes, with a message for people.
        clock: The clock that ``LeaseView.expires_s`` is told on, in seconds.

    ``register``, ``on_command`` and ``on_state`` are called from one thread, one at a time; an
    exception in the latter two is logged. ``register`` is called while :meth:`connect` waits: hold
    no lock around ``connect`` that ``register`` takes.
    """

    def __init__(
        self,
        find_endpoint: Callable[[], Endpoint],
        register: Callable[[], RegisterRequest],
        on_command: Callable[[AppCommand | Failure], None],
        on_state: Callable[[ConnectionState, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find_endpoint = find_endpoint
        self._register = register
        self._on_command = on_command
        self._on_state = on_state
        self._clock = clock
        self._lock = threading.Lock()
        self._answered = threading.Event()  # the first welcome, or the first fatal error
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._connection: Connection | None = None
        self._secret = ""
        self._app = ""
        self._welcome: WelcomeInfo | None = None
        self._error: ThemisError | None = None  # why the last attempt failed
        self._state: ConnectionState | None = None

    @property
    def state(self) -> ConnectionState | None:
        """How the client stands with the arbiter; None before the first connection."""
        return self._state

    @property
    def welcome(self) -> WelcomeInfo | None:
        """The arbiter's latest answer to a registration."""
        return self._welcome

    @property
    def error(self) -> ThemisError | None:
        """Why the connection was lost, or closed by the arbiter; None when neither."""
        return self._error

    # ---- for the app's threads -----------------------------------------------------------------

    def connect(self, timeout_s: float = CONNECT_TIMEOUT_S) -> WelcomeInfo:
        """Register with the arbiter, trying until it answers.

        Args:
            timeout_s: How long to try, in seconds.

        Raises:
            ArbiterUnavailableError: None answered in time.
            AuthenticationError: The token is wrong.
            DuplicateAppError: Another driver has the app's name.
            ThemisError: The registration was refused for another reason, as the message says.
        """
        with self._lock:
            if self._thread is not None or self._closing.is_set():
                raise ProtocolError("this client was used before; make a new one to connect again")
            self._thread = threading.Thread(target=self._run, name="themis-agent", daemon=True)
            self._thread.start()
        self._answered.wait(timeout_s)
        if self._welcome is not None:
            return self._welcome
        error = self._error or ArbiterUnavailableError(
            f"no arbiter answered within {timeout_s:g} s; start one with `themis start`"
        )
        self.close(timeout_s=CLOSE_TIMEOUT_S)
        raise error

    def send(self, event: Event) -> bool:
        """Queue an event for the arbiter; never waits.

        Args:
            event: ``Reported``, ``BidReceived``, ``GroupRequested``, ``GroupReleased`` or
                ``GpusReturned``, of this app.

        Returns:
            Whether there is a connection for it; without one the event is dropped.

        Raises:
            ProtocolError: The event is another app's, or not for an AGENT to send.
        """
        if isinstance(event, AppLeft):
            raise ProtocolError("AppLeft ends the session; call close(why) instead")
        message = convert.agent_message(event)
        app = event.table.app if isinstance(event, BidReceived) else getattr(event, "app", "")
        with self._lock:
            if self._app and app != self._app:
                raise ProtocolError(f"app {self._app!r} cannot speak for app {app!r}")
            return self._connection is not None and self._connection.send(message)

    def close(self, why: str = "finished", timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Tell the arbiter that the app is done, if there is one, and end all threads.

        May be called again, and from a callback (which then does not wait for its own thread).

        Args:
            why: For the arbiter's records.
            timeout_s: How long the arbiter may take to acknowledge it, in seconds.
        """
        with self._lock:
            self._closing.set()
            thread, connection = self._thread, self._connection
            if connection is not None:
                connection.finish(convert.agent_message(AppLeft(self._app, why)))
        if thread is None or thread is threading.current_thread():
            return
        thread.join(timeout_s)
        if thread.is_alive():
            with self._lock:
                connection = self._connection
            if connection is not None:
                connection.cancel()
            thread.join(timeout_s)
        if thread.is_alive():
            logger.warning("the agent's thread still runs: a callback of the app does not return")

    # ---- the client's own thread ---------------------------------------------------------------

    def _run(self) -> None:
        failures = 0
        message = "the app is done"
        while not self._closing.is_set():
            error = self._attempt()
            if self._closing.is_set():
                break
            self._error = error
            if not _passing(error):
                message = str(error)
                break
            failures = 0 if self._state is ConnectionState.CONNECTED else failures + 1
            if self._state is not None:
                self._enter(ConnectionState.LOST, str(error))
            self._closing.wait(_backoff_s(failures))
        self._answered.set()
        if self._state is not None:
            self._enter(ConnectionState.CLOSED, message)

    def _attempt(self) -> ThemisError:
        """Serve one connection to its end; returns why it ended."""
        connection: Connection | None = None
        try:
            connection = Connection(self._find_endpoint())
            with self._lock:
                if self._closing.is_set():
                    return ArbiterUnavailableError("the client was closed")
                # Before the app's state is read: what it sends after that must follow.
                self._connection = connection
            request = replace(self._register(), session_secret=self._secret)
            self._app = request.app
            welcome, self._secret = connection.open(request)
            if not self._closing.is_set():
                self._welcome = welcome
                self._error = None
                self._answered.set()
                self._enter(ConnectionState.CONNECTED, f"connected to {connection.address}")
            return self._listen(connection)
        except ThemisError as error:
            return error
        except Exception as error:
            logger.debug("connecting to the arbiter failed", exc_info=True)
            return ArbiterUnavailableError(
                f"the arbiter cannot be reached ({type(error).__name__}: {error})"
            )
        finally:
            with self._lock:
                self._connection = None
            if connection is not None:
                connection.close()

    def _listen(self, connection: Connection) -> ThemisError:
        while True:
            message = connection.read()
            if message is None:
                return ArbiterUnavailableError(f"the arbiter at {connection.address} hung up")
            try:
                command = convert.command_from(message, self._app, self._clock())
            except ProtocolError as error:
                logger.warning("ignored a message of the arbiter: %s", error)
                continue
            try:
                self._on_command(command)
            except Exception:
                logger.exception("the app failed to handle %s", type(command).__name__)

    def _enter(self, state: ConnectionState, message: str) -> None:
        if state is self._state:
            return
        self._state = state
        try:
            self._on_state(state, message)
        except Exception:
            logger.exception("the app failed to handle the state %r", state.value)


def _passing(error: ThemisError) -> bool:
    """Whether trying again can help: nobody answered, or the arbiter itself failed."""
    return isinstance(error, ArbiterUnavailableError) or type(error) is ThemisError


def _backoff_s(failures: int) -> float:
    """Seconds until the next attempt; random, so that a restart is not met by all at once."""
    longest = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(failures, 10))
    return random.uniform(0.5, 1.0) * longest
