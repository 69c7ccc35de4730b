"""The live driver of the core: time, timers, sessions and placement groups.

Everything here runs in one asyncio loop, so the core needs no lock. What blocks (calls into Ray)
runs in threads and comes back as an event.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from themis_ray.core import events as ev
from themis_ray.core.arbiter import Arbiter
from themis_ray.core.commands import (
    Command,
    CreateGroup,
    Decided,
    GroupRefused,
    LeasesChanged,
    RemoveGroup,
    RequestReport,
    SendOffer,
)
from themis_ray.core.leases import GroupState
from themis_ray.live import placement
from themis_ray.live.cluster_watch import ClusterWatch, read_nodes
from themis_ray.live.journal import Journal
from themis_ray.reporting.metrics import ArbiterMetrics
from themis_ray.rpc.messages import RegisterRequest

logger = logging.getLogger(__name__)

CREATE_TIMEOUT_S = 15.0
POLL_S = 0.1
NODES_EVERY_S = 1.0
LEVELS_EVERY_S = 5.0


class LiveDriver:
    """Feeds the core with what happens in a Ray cluster and does what it says.

    Args:
        core: The arbiter's state machine.
        watch: Turns Ray's nodes into machines.
        tell: Sends a command to the AGENT of an app.
        journal: Where all events are noted, if anywhere.
        metrics: Counts what is decided, if anything does.
    """

    def __init__(
        self,
        core: Arbiter,
        watch: ClusterWatch,
        tell: Callable[[str, Command], None],
        journal: Journal | None = None,
        metrics: ArbiterMetrics | None = None,
    ) -> None:
        self.core = core
        self.watch = watch
        self.journal = journal
        self._metrics = metrics
        # Ray's node id of each machine.
        self.node_ids: dict[str, str] = {}
        self._tell = tell
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        # Ray's id of each group that the core knows to exist.
        self.placement_groups: dict[str, str] = {}
        self._ready: dict[str, asyncio.Future[str]] = {}
        self._bundles: dict[str, dict[str, float]] = {}
        # Groups of an earlier arbiter, until their AGENTs have claimed them.
        self.left_over: list[placement.GroupInfo] = []
        # Nodes on which a group of ours has come or gone since the last look.
        self._moved: set[str] = set()
        # Those on which one was being made or removed, or had come or gone, at the last look.
        self._settling: set[str] = set()
        self._closed = False

    # -- events ---------------------------------------------------------------------------

    @staticmethod
    def now() -> float:
        """Seconds on the arbiter's clock."""
        return time.monotonic()

    def handle(self, event: ev.Event) -> None:
        """Hand an event to the core and carry out what it answers.

        Raises:
            ThemisError: The event was refused; nothing changed.
        """
        for command in self._decide(event):
            self._carry_out(command)
        self._set_timer()

    def _decide(self, event: ev.Event) -> list[Command]:
        """What the core says to an event; both are noted in the journal."""
        now = self.now()
        try:
            commands = self.core.handle(event, now)
        except Exception as error:
            if self.journal is not None:
                self.journal.record(now, event, (), error)
            raise
        if self.journal is not None:
            self.journal.record(now, event, commands)
        self._measure(lambda metrics: metrics.decided(commands, now))
        return commands

    def _measure(self, tell: Callable[[ArbiterMetrics], None]) -> None:
        """Tell the metrics something; an arbiter must not stop for them."""
        if self._metrics is not None:
            try:
                tell(self._metrics)
            except Exception:
                logger.exception("metrics cannot be published; the arbiter goes on without them")
                self._metrics = None

    async def show_levels(self, status: Callable[[], Mapping[str, Any]]) -> None:
        """Publish how the cluster stands, every few seconds.

        Args:
            status: Makes the status document.
        """
        while not self._closed and self._metrics is not None:
            self._measure(lambda metrics: metrics.levels(status()))
            await asyncio.sleep(LEVELS_EVERY_S)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.core.wakeup_s()
        if due is not None and not self._closed:
            delay = max(0.005, due - self.now())
            self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        self.handle(ev.Tick())

    def _carry_out(self, command: Command) -> None:
        match command:
            case RequestReport() | SendOffer() | LeasesChanged() | GroupRefused():
                # Whoever waits for a refused group waits on: its AGENT asks for it again.
                self._tell(command.app, command)
            case CreateGroup():
                self._spawn(self._create(command))
            case RemoveGroup():
                logger.info(
                    "removing group %s of %s: %s", command.group, command.app, command.reason
                )
                self._spawn(self._remove(command.group))
            case Decided():
                for app, reason in command.reasons.items():
                    logger.info("round %d: %s %s", command.round_id, app, reason)

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("a task of the arbiter failed", exc_info=task.exception())

    # -- apps -----------------------------------------------------------------------------

    def join(self, request: RegisterRequest) -> None:
        """An app registers, perhaps with groups that an earlier arbiter made for it.

        Raises:
            ThemisError: The core refused it.
        """
        groups = tuple(
            ev.HeldGroup(g.group, g.allocation)
            for g in request.groups
            if g.placement_group_id and g.group not in self.core.state.groups
        )
        for held in request.groups:
            if held.placement_group_id:
                self.placement_groups[held.group] = held.placement_group_id
                self._bundles[held.group] = self.bundle_of(request.app)
        self.handle(ev.AppJoined(request.app, request.report, request.weight, groups))
        for group in groups:
            if group.id not in self.core.state.groups:  # not adopted: its GPUs are not free
                self._spawn(self._drop(group.id))

    def tell_leases(self, name: str) -> None:
        """Tell an AGENT that has just connected what it holds; it may have missed changes."""
        app = self.core.state.apps[name]
        views = tuple(lease.view() for lease in app.leases.values())
        self._tell(name, LeasesChanged(name, views, app.reason))

    def remove_unclaimed(self) -> None:
        """Remove groups of an earlier arbiter that no AGENT has claimed."""
        left_over, self.left_over = self.left_over, []
        for info in left_over:
            if info.id not in self.placement_groups.values():
                logger.warning("removing %s, which no app has claimed", info.group)
                self._spawn(asyncio.to_thread(placement.remove, info.id))

    # -- placement groups -----------------------------------------------------------------

    def bundle_of(self, app: str) -> dict[str, float]:
        """The resources of one leased unit of an app."""
        return {**self.watch.bundles.get(app, {}), **self._unit_amount(app)}

    def _unit_amount(self, app: str) -> dict[str, float]:
        if self.watch.unit == "GPU":
            return {"GPU": 1.0}
        return {"CPU": self.watch.bundles.get(app, {}).get("CPU", 1.0) or 1.0}

    async def wait_ready(self, group: str) -> str:
        """Ray's id of a group, as soon as it exists.

        Raises:
            RuntimeError: It will not come to exist.
        """
        existing = self.placement_groups.get(group)
        if existing and self._state(group) is GroupState.LIVE:
            return existing
        future = self._ready.setdefault(group, asyncio.get_running_loop().create_future())
        return await asyncio.shield(future)

    def _state(self, group: str) -> GroupState | None:
        known = self.core.state.groups.get(group)
        return known.state if known else None

    def forget_waiter(self, group: str) -> None:
        """Nobody waits for a group any more; give it back if it exists."""
        self._ready.pop(group, None)
        known = self.core.state.groups.get(group)
        if known is not None and known.app in self.core.state.apps:
            self.handle(ev.GroupReleased(known.app, group))

    async def _create(self, command: CreateGroup) -> None:
        bundle = self.bundle_of(command.app)
        self._bundles[command.group] = bundle
        try:
            made = await asyncio.to_thread(
                placement.create,
                command.group,
                command.allocation,
                bundle,
                self.node_ids,
            )
            self.placement_groups[command.group] = made.id.hex()
            ready = await asyncio.to_thread(made.wait, CREATE_TIMEOUT_S)
        except Exception as error:
            logger.exception("placement group of %s", command.app)
            ready, reason = False, f"{type(error).__name__}: {error}"
        else:
            reason = f"Ray did not create it within {CREATE_TIMEOUT_S:g} s ({bundle} per unit)"
        if self._state(command.group) is GroupState.ENDING:
            return  # its removal is under way and will report it gone
        if ready:
            self._moved.update(command.allocation)
            self.handle(ev.GroupReady(command.group))
            future = self._ready.pop(command.group, None)
            if future is not None and not future.done():
                future.set_result(self.placement_groups[command.group])
        else:
            await self._drop(command.group)
            self.handle(ev.GroupFailed(command.group, reason))

    async def _remove(self, group: str) -> None:
        await self._drop(group)
        if self._state(group) is not None:
            self.handle(ev.GroupGone(group))

    async def _drop(self, group: str) -> None:
        """Remove a group and wait until its workers are dead."""
        group_id = self.placement_groups.get(group)
        if group_id is None:
            return
        while True:
            await asyncio.to_thread(placement.remove, group_id)
            left = await asyncio.to_thread(placement.occupied, [group_id])
            if not left:
                break
            await asyncio.sleep(POLL_S)
        self._forget(group)

    def _forget(self, group: str) -> None:
        known = self.core.state.groups.get(group)
        if known is not None:
            self._moved.update(known.allocation)
        self.placement_groups.pop(group, None)
        self._bundles.pop(group, None)

    async def watch_groups(self) -> None:
        """Notice groups that Tune has removed, since their trials are over."""
        while not self._closed:
            await asyncio.sleep(POLL_S)
            live = {
                self.placement_groups[g.id]: g.id
                for g in self.core.state.groups.values()
                if g.state is GroupState.LIVE and g.id in self.placement_groups
            }
            if not live:
                continue
            table = await asyncio.to_thread(placement.ours)
            there = {info.id for info in table if info.state != "REMOVED"}
            removed = [group_id for group_id in live if group_id not in there]
            busy = await asyncio.to_thread(placement.occupied, removed)
            for group_id in removed:
                group = live[group_id]
                if group_id not in busy and self._state(group) is GroupState.LIVE:
                    self._forget(group)
                    self.handle(ev.GroupGone(group))

    # -- nodes ----------------------------------------------------------------------------

    def held_resources(self) -> dict[str, dict[str, float]]:
        """Resources that our groups hold, per machine."""
        out: dict[str, dict[str, float]] = {}
        machines = {node_id: machine for machine, node_id in self.node_ids.items()}
        claimed = set(self.placement_groups.values())
        for info in self.left_over:
            for node_id, resources in info.bundles if info.id not in claimed else ():
                held = out.setdefault(machines.get(node_id, node_id), {})
                for resource, amount in resources.items():
                    held[resource] = held.get(resource, 0.0) + amount
        for group in self.core.state.groups.values():
            bundle = self._bundles.get(group.id)
            if bundle is None or not group.occupies:
                continue
            for node, count in group.allocation.items():
                held = out.setdefault(node, {})
                for resource, amount in bundle.items():
                    held[resource] = held.get(resource, 0.0) + amount * count
        return out

    async def look_at_nodes(self) -> None:
        """Read Ray's nodes once, and tell the core when they have changed."""
        nodes = await asyncio.to_thread(read_nodes)
        self.node_ids = {node.machine: node.id for node in nodes}
        groups = self.core.state.groups.values()
        moving = {n for g in groups if g.state is not GroupState.LIVE for n in g.allocation}
        moving |= self._moved
        self._moved = set()
        leased: dict[str, int] = {}
        for app in self.core.state.apps:
            for node, count in self.core.state.ledger.entitled(app).items():
                leased[node] = leased.get(node, 0) + count
        machines = self.watch.machines(
            nodes, self.held_resources(), moving | self._settling, leased
        )
        # Ray's figures lag: look past a change of ours once more before trusting them.
        self._settling = moving
        if tuple(sorted(machines, key=lambda m: m.id)) != self.core.state.cluster.machines:
            self.handle(ev.ClusterChanged(machines))

    async def watch_nodes(self) -> None:
        """Follow nodes that join or leave, and GPUs that other jobs take or give back."""
        while not self._closed:
            try:
                await self.look_at_nodes()
            except Exception:
                logger.exception("cannot read the nodes of the cluster")
            await asyncio.sleep(NODES_EVERY_S)

    # -- end ------------------------------------------------------------------------------

    async def close(self) -> None:
        """End all apps, remove all groups, stop the timers."""
        for app in list(self.core.state.apps):
            self.handle(ev.AppLeft(app, "the arbiter was stopped"))
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=10)
        if self.journal is not None:
            await asyncio.to_thread(self.journal.close)
