"""One connection of an AGENT to the arbiter, over synchronous gRPC."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

import grpc

from themis_ray.rpc import convert
from themis_ray.rpc._generated import themis_pb2 as pb
from themis_ray.rpc._generated import themis_pb2_grpc as pb_grpc
from themis_ray.rpc.channel import metadata, open_channel
from themis_ray.rpc.failures import error_from, unavailable
from themis_ray.rpc.messages import Endpoint, RegisterRequest, WelcomeInfo

WELCOME_TIMEOUT_S = 15.0
"""How long the arbiter may take to answer a registration."""

END_TIMEOUT_S = 5.0
"""How long gRPC's threads may take to end with their connection."""


class Connection:
    """A channel and the stream on it.

    Args:
        endpoint: The arbiter.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.address = endpoint.address
        self._endpoint = endpoint
        self._outgoing: queue.SimpleQueue[pb.AgentMessage | None] = queue.SimpleQueue()
        self._open = True
        self._welcomed = threading.Event()
        self._threads: list[threading.Thread] = []  # gRPC's, as they show themselves
        self._ended = threading.Event()
        self._channel = open_channel(endpoint)
        self._call: Any = None
        self._cancelled = False

    def open(self, request: RegisterRequest) -> tuple[WelcomeInfo, str]:
        """Register.

        Returns:
            The arbiter's welcome and the app's secret.

        Raises:
            ThemisError: What the arbiter answered, or ``ArbiterUnavailableError``.
        """
        stub = pb_grpc.ArbiterStub(self._channel)  # type: ignore[no-untyped-call]
        requests = self._requests(convert.register_message(request))
        self._call = stub.Session(requests, metadata=metadata(self._endpoint))
        self._call.add_done_callback(self._on_end)
        if self._cancelled:
            self._call.cancel()
        message = self.read()
        if message is None:
            raise unavailable(self.address, "the stream ended before the welcome")
        self._welcomed.set()
        return convert.welcome_from(message)

    def read(self) -> pb.ArbiterMessage | None:
        """The arbiter's next message; None when it has ended the stream in good order.

        Raises:
            ThemisError: Why the stream failed.
        """
        try:
            message: pb.ArbiterMessage = next(self._call)
        except StopIteration:
            return None
        except grpc.RpcError as error:
            raise error_from(error, self.address) from None
        return message

    def send(self, message: pb.AgentMessage) -> bool:
        """Queue a message; false when the connection is being closed."""
        if self._open:
            self._outgoing.put(message)
        return self._open

    def finish(self, message: pb.AgentMessage) -> None:
        """Send a last message; the arbiter ends the stream when it has handled it."""
        if self.send(message):
            self._open = False
            self._outgoing.put(None)

    def cancel(self) -> None:
        """Make a waiting :meth:`open` or :meth:`read` raise. For any thread."""
        self._cancelled = True
        if self._call is not None:
            self._call.cancel()

    def close(self) -> None:
        """Free everything, and wait for gRPC's threads."""
        self._open = False
        self._welcomed.set()
        self._outgoing.put(None)
        if self._call is not None:
            self._call.cancel()
            self._ended.wait(END_TIMEOUT_S)
        self._channel.close()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(END_TIMEOUT_S)

    def _on_end(self, _call: Any) -> None:
        """The call has ended; gRPC says so from the thread that it runs per connection."""
        self._threads.append(threading.current_thread())
        self._ended.set()

    def _requests(self, first: pb.AgentMessage) -> Iterator[pb.AgentMessage]:
        """What gRPC's writing thread takes the messages from."""
        self._threads.append(threading.current_thread())
        threading.current_thread().name = "themis-agent-writer"
        yield first
        if not self._welcomed.wait(WELCOME_TIMEOUT_S):
            self.cancel()
        while (message := self._outgoing.get()) is not None:
            yield message
