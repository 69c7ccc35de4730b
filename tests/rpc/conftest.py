"""A real server on 127.0.0.1 with a recording handler behind it."""

import asyncio
import queue
import threading
import time

import pytest

from themis_ray.core.events import AppReport
from themis_ray.errors import UnknownAppError
from themis_ray.rpc.client import AgentClient
from themis_ray.rpc.messages import DriverInfo, Endpoint, RegisterRequest, WelcomeInfo
from themis_ray.rpc.server import ArbiterServer

TOKEN = "the-cluster's-token"
PATIENCE_S = 20.0


class FakeHandler:
    """Records what the server hands it; ``errors`` maps an app to what its next event raises."""

    def __init__(self):
        self.welcome = WelcomeInfo("themis", 600.0, 30.0, 10.0, "GPU", 16, 4)
        self.log = queue.Queue()
        self.sessions = {}
        self.refuse = None
        self.errors = {}
        self.on_registered = None
        self.slow = None  # awaited by on_register and on_event

    def now(self):
        return 1000.0

    async def on_register(self, request, session):
        self.log.put(("register", request, session))
        if self.slow is not None:
            await self.slow.wait()
        if self.refuse is not None:
            raise self.refuse
        self.sessions[request.app] = session
        if self.on_registered is not None:
            self.on_registered(session)
        return self.welcome

    async def on_event(self, app, event):
        self.log.put(("event", app, event))
        if self.slow is not None:
            await self.slow.wait()
            self.log.put(("handled", app, event))
        if app in self.errors:
            raise self.errors.pop(app)

    async def on_disconnect(self, app, session, why):
        self.log.put(("disconnect", app, session, why))

    async def status(self):
        return {"apps": sorted(self.sessions)}

    async def explain(self, app):
        if app not in self.sessions:
            raise UnknownAppError(f"no app {app!r}; `themis status` lists them")
        return {"app": app}

    async def stop(self, why):
        self.log.put(("stop", why))

    def wait_for(self, kind, timeout_s=PATIENCE_S):
        """The next record of a kind; others before it are passed over."""
        until = time.monotonic() + timeout_s
        while True:
            record = self.log.get(timeout=max(0.01, until - time.monotonic()))
            if record[0] == kind:
                return record[1:]


class Served:
    """A server, driven from the test's thread."""

    def __init__(self, loop, **options):
        self.loop = loop
        self.handler = FakeHandler()
        self.server = self.call(self._make(options))
        self.port = self.call(self.server.start())

    async def _make(self, options):
        return ArbiterServer(self.handler, TOKEN, "127.0.0.1", **options)

    @property
    def endpoint(self):
        return Endpoint(f"127.0.0.1:{self.port}", TOKEN)

    def call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(PATIENCE_S)

    def do(self, function, *args):
        """Call a function on the server's loop."""

        async def run():
            return function(*args)

        return self.call(run())

    def stop(self, grace=0.5):
        self.call(self.server.stop(grace))


class Agent:
    """A client that records what it is told."""

    def __init__(self, find_endpoint, app="A", **fields):
        self.commands = queue.Queue()
        self.states = queue.Queue()
        self.request = RegisterRequest(
            app, AppReport(2.0, 10.0, 5.0, 4), driver=DriverInfo("host", 7, "01"), **fields
        )
        self.client = AgentClient(
            find_endpoint,
            lambda: self.request,
            self.commands.put,
            lambda state, message: self.states.put((state.value, message)),
            clock=lambda: 50.0,
        )

    def next_state(self):
        return self.states.get(timeout=PATIENCE_S)

    def next_command(self):
        return self.commands.get(timeout=PATIENCE_S)


@pytest.fixture(scope="session")
def loop():
    """One loop for all servers, in its thread: asyncio gRPC supports one per process."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="loop", daemon=True)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def serve(loop):
    """Starts servers; they are stopped at the end."""
    running = []

    def start(**options):
        running.append(Served(loop, **options))
        return running[-1]

    yield start
    for served in running:
        served.stop()


@pytest.fixture
def served(serve):
    return serve()


@pytest.fixture
def agent():
    """Makes clients; they are closed at the end, and leave no thread."""
    made = []
    before = set(threading.enumerate())

    def make(find_endpoint, app="A", **fields):
        if isinstance(find_endpoint, Endpoint):
            endpoint = find_endpoint
            find_endpoint = lambda: endpoint  # noqa: E731
        made.append(Agent(find_endpoint, app, **fields))
        return made[-1]

    yield make
    for one in made:
        one.client.close()
    # gRPC's poller of the asyncio server stays for the life of the process.
    left = [t for t in threading.enumerate() if t not in before and "_poll_wrapper" not in t.name]
    # Those of a channel that a test itself has closed end on their own, a moment later.
    for thread in left:
        thread.join(PATIENCE_S)
    assert not [thread for thread in left if thread.is_alive()]
