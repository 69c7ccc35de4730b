"""The ARBITER: a detached Ray actor with an asyncio gRPC server inside."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
import uuid
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import ray

import themis_ray
from themis_ray.config import ArbiterOptions
from themis_ray.core import events as ev
from themis_ray.core.arbiter import Arbiter
from themis_ray.core.commands import Command
from themis_ray.core.journal import header_of
from themis_ray.errors import ConfigError, ThemisError
from themis_ray.live import placement
from themis_ray.live.cluster_watch import ClusterWatch, leased_unit, read_nodes
from themis_ray.live.driver import LiveDriver
from themis_ray.live.journal import Journal
from themis_ray.live.snapshot import explanation, lease_document, snapshot
from themis_ray.reporting.metrics import ArbiterMetrics, RayInstruments
from themis_ray.rpc.auth import new_secret
from themis_ray.rpc.messages import RegisterRequest, WelcomeInfo
from themis_ray.rpc.server import ArbiterServer
from themis_ray.rpc.session import Session

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Agents of an earlier incarnation get so long to come back before their groups are removed.
RECOVERY_S = 6.0


class ArbiterActor:
    """Owns the core, the gRPC server and the watchers; see :mod:`themis_ray.live.client`.

    Args:
        options: The admin's options.
    """

    def __init__(self, options: ArbiterOptions) -> None:
        logging.basicConfig(
            level=os.environ.get("THEMIS_LOG_LEVEL", "INFO"),
            format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        )
        self.options = options
        # Ray runs each concurrency group of an async actor in an event loop of its own. All of
        # ours happens in this one, so that the core needs no lock.
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="themis-loop", daemon=True).start()
        self._token = new_secret()
        self._started: asyncio.Event | None = None
        self._driver: LiveDriver
        self._server: ArbiterServer
        self._sessions: dict[str, Session] = {}
        self._lost: dict[str, asyncio.TimerHandle] = {}
        self._watchers: list[asyncio.Task[None]] = []
        self._address = ""
        self._started_s = 0.0

    # -- called through Ray -----------------------------------------------------------------

    async def endpoint(self) -> dict[str, str]:
        """Where AGENTs connect, and the token they need; only the Ray cluster can read it."""
        await self._on_loop(self._ensure_started())
        return {"address": self._address, "token": self._token}

    async def wait_for_lease(self, app: str, group: str, shared: bool = False) -> str:
        """Ray's id of an app's placement group, once the arbiter has leased and created it.

        Cancelling the call gives the group back, unless others may be waiting for it too.
        """
        return await self._on_loop(self._wait_for_lease(app, group, shared))

    async def lease_of(self, placement_group_id: str) -> dict[str, Any] | None:
        """The lease behind a placement group, for the trial that runs in it."""
        return await self._on_loop(self._lease_of(placement_group_id))

    async def shutdown(self) -> dict[str, Any]:
        """End all leases, remove all groups, stop serving; the actor can then be killed."""
        return await self._on_loop(self._shutdown())

    async def _on_loop(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))

    async def _wait_for_lease(self, app: str, group: str, shared: bool) -> str:
        await self._ensure_started()
        try:
            return await self._driver.wait_ready(group)
        except asyncio.CancelledError:
            logger.info("%s no longer waits for %s", app, group)
            if not shared:
                self._driver.forget_waiter(group)
            raise

    async def _lease_of(self, placement_group_id: str) -> dict[str, Any] | None:
        await self._ensure_started()
        return lease_document(self._driver, placement_group_id)

    async def _shutdown(self) -> dict[str, Any]:
        await self._ensure_started()
        apps = sorted(self._driver.core.state.apps)
        await self._driver.close()
        for task in self._watchers:
            task.cancel()
        await self._server.stop(0.5)
        left = [g.group for g in await asyncio.to_thread(placement.ours) if g.state != "REMOVED"]
        return {"apps_ended": apps, "groups_left": left}

    # -- start ------------------------------------------------------------------------------

    async def _ensure_started(self) -> None:
        if self._started is None:
            self._started = asyncio.Event()
            await self._start()
            self._started.set()
        await self._started.wait()

    async def _start(self) -> None:
        nodes = await asyncio.to_thread(read_nodes)
        unit = leased_unit(nodes) if self.options.unit == "auto" else self.options.unit
        if unit == "CPU":
            logger.warning("no GPU in the cluster: the leased unit is the CPU")
        left_over = [g for g in await asyncio.to_thread(placement.ours) if g.state != "REMOVED"]
        core = Arbiter(self.options.make_policy(), self.options.core_config())
        self._started_s = LiveDriver.now()
        # Not a first start: hold no round until the AGENTs have said what they still use.
        hold_until_s = self._started_s + RECOVERY_S if left_over else None
        journal = await asyncio.to_thread(self._open_journal, core, unit, hold_until_s)
        metrics = ArbiterMetrics(RayInstruments())
        self._driver = LiveDriver(core, ClusterWatch(unit), self._tell, journal, metrics)
        if hold_until_s is not None:
            core.hold_rounds_until(hold_until_s)
            self._driver.left_over = left_over
            asyncio.get_running_loop().call_later(RECOVERY_S, self._driver.remove_unclaimed)
        # Before the first AGENT comes: it may claim groups on these nodes.
        await self._driver.look_at_nodes()
        host = self.options.host or ray.util.get_node_ip_address()
        self._server = ArbiterServer(self, self._token, host=host, port=0)
        port = await self._server.start()
        self._address = f"{host}:{port}"
        loop = asyncio.get_running_loop()
        self._watchers = [
            loop.create_task(self._driver.watch_groups()),
            loop.create_task(self._driver.watch_nodes()),
            loop.create_task(
                self._driver.show_levels(lambda: snapshot(self._driver, self._started_s))
            ),
        ]
        logger.info("the arbiter listens on %s and leases %ss", self._address, unit)

    def _open_journal(self, core: Arbiter, unit: str, hold_until_s: float | None) -> Journal | None:
        """Begin the journal of this incarnation, where the options say."""
        if self.options.journal == "off":
            return None
        if self.options.journal == "auto":
            context = ray.get_runtime_context()
            session = Path(context.get_temp_dir()) / context.get_session_name()
            path = session / "themis" / "journal.jsonl"
        else:
            path = Path(self.options.journal)
        header = header_of(
            core.policy,
            core.config,
            run=uuid.uuid4().hex[:12],
            now_s=self._started_s,
            wall_s=time.time() - (LiveDriver.now() - self._started_s),
            hold_until_s=hold_until_s,
            unit=unit,
            software=themis_ray.__version__,
        )
        return Journal(
            path,
            header,
            max_bytes=int(self.options.journal_mb * 2**20),
            keep_parts=self.options.journal_parts,
        )

    # -- rpc.handler.Handler ------------------------------------------------------------------

    def now(self) -> float:
        """Seconds on the arbiter's clock."""
        return self._driver.now()

    async def on_register(self, request: RegisterRequest, session: Session) -> WelcomeInfo:
        """An app joins, or comes back after a broken stream or a restart of the arbiter."""
        driver, core = self._driver, self._driver.core
        machines = core.state.cluster.machines
        largest = max((m.gpus for m in machines), default=0)
        if request.report.gang > core.state.cluster.gpus > 0:
            raise ConfigError(
                f"app {request.app!r} needs {request.report.gang} {driver.watch.unit}s for a "
                f"trial, but the cluster has {core.state.cluster.gpus}; lower min_gpus_per_trial"
            )
        timer = self._lost.pop(request.app, None)
        if timer is not None:
            timer.cancel()
        if request.app in core.state.apps and not session.resumed:
            self._leave(request.app, "its driver was started again")
        driver.watch.bundles[request.app] = dict(request.bundle)
        # Joining may start a round at once, which already speaks to the session.
        self._sessions[request.app] = session
        try:
            if request.app in core.state.apps:
                driver.handle(ev.Reported(request.app, request.report))
            else:
                driver.join(request)
        except ThemisError:
            del self._sessions[request.app]
            driver.watch.bundles.pop(request.app, None)
            raise
        driver.tell_leases(request.app)
        config = core.config
        return WelcomeInfo(
            policy=core.policy.name,
            lease_s=config.lease_s,
            notice_s=config.notice_s,
            grace_s=config.grace_s,
            unit=driver.watch.unit,
            cluster_gpus=core.state.cluster.gpus,
            largest_machine_gpus=largest,
        )

    async def on_event(self, app: str, event: ev.Event) -> None:
        """An AGENT says something; ``AppLeft`` is its orderly end."""
        if isinstance(event, ev.AppLeft):
            self._sessions.pop(app, None)
            self._leave(app, event.why)
        else:
            self._driver.handle(event)

    async def on_disconnect(self, app: str, session: Session, why: str) -> None:
        """A stream broke: the app has a moment to come back."""
        if self._sessions.get(app) is not session:
            return
        del self._sessions[app]
        if app in self._driver.core.state.apps:
            logger.warning("lost the stream of %s: %s", app, why)
            self._lost[app] = asyncio.get_running_loop().call_later(
                self.options.lost_after_s, self._leave, app, f"its driver was lost ({why})"
            )

    async def status(self) -> dict[str, Any]:
        """The document behind ``themis status``."""
        return snapshot(self._driver, self._started_s)

    async def explain(self, app: str) -> dict[str, Any]:
        """The document behind ``themis why``."""
        return explanation(self._driver, app)

    async def stop(self, why: str) -> None:
        """End all apps; the caller then shuts the actor down through Ray."""
        for app in list(self._driver.core.state.apps):
            self._leave(app, why or "the arbiter was stopped")

    def _leave(self, app: str, why: str) -> None:
        self._lost.pop(app, None)
        self._driver.watch.bundles.pop(app, None)
        if app in self._driver.core.state.apps:
            self._driver.handle(ev.AppLeft(app, why))

    def _tell(self, app: str, command: Command) -> None:
        session = self._sessions.get(app)
        if session is not None:
            session.send(command)
