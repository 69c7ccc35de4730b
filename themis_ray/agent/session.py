"""One app's session in its driver process: the AGENT, its connection, and the trials' waiting."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import ray

from themis_ray.agent.agent import Agent
from themis_ray.agent.groups import LeasedPlacementGroup, SharedPlacementGroup
from themis_ray.agent.trials import TrialPhase, heads
from themis_ray.core import events as ev
from themis_ray.core.commands import GroupRefused, LeasesChanged, RequestReport, SendOffer
from themis_ray.errors import ConfigError, DuplicateAppError, ThemisError
from themis_ray.live import client as live
from themis_ray.rpc.client import AgentClient, fetch_explain
from themis_ray.rpc.messages import (
    ConnectionState,
    DriverInfo,
    Failure,
    HeldGroup,
    RegisterRequest,
    WelcomeInfo,
)

logger = logging.getLogger(__name__)

_sessions: dict[str, Session] = {}


def session_of(app: str) -> Session:
    """The live session of an app of this process.

    Raises:
        ConfigError: The app has none here.
    """
    session = _sessions.get(app)
    if session is None:
        raise ConfigError(f"app {app!r} has no session in this process; run it under its scheduler")
    return session


class Session:
    """Connects an app with the arbiter.

    The search's threads and the connection's thread both come here; one lock guards the AGENT.

    Args:
        agent: The app's AGENT.
        bundle: The resources of one leased unit, the unit itself left out when it is a GPU.
    """

    def __init__(self, agent: Agent, bundle: dict[str, float]) -> None:
        self.agent = agent
        self.app = agent.settings.app
        self.bundle = bundle
        self.welcome: WelcomeInfo | None = None
        self.failure: str = ""
        self._lock = threading.RLock()
        self._waiting: dict[str, LeasedPlacementGroup] = {}
        self._shared: dict[str, list[SharedPlacementGroup]] = {}
        self._requested: set[str] = set()
        self._client = AgentClient(live.endpoint, self._register, self._on_command, self._on_state)
        self._closed = False

    # -- life -----------------------------------------------------------------------------

    def open(self) -> WelcomeInfo:
        """Register with the arbiter.

        Raises:
            DuplicateAppError: Another app has this name, here or elsewhere on the cluster.
            ThemisError: The arbiter cannot be reached or refused the app.
        """
        if self.app in _sessions:
            raise DuplicateAppError(
                f"an app {self.app!r} already runs in this process; give this one another name "
                "with ThemisScheduler(app=...)"
            )
        self.welcome = self._client.connect()
        self.agent.cluster_gpus = max(1, self.welcome.cluster_gpus)
        self.agent.lease_s = self.welcome.lease_s
        _sessions[self.app] = self
        return self.welcome

    def close(self, why: str = "finished") -> None:
        """The app is over: give everything back. May be called again."""
        if self._closed:
            return
        self._closed = True
        if _sessions.get(self.app) is self:
            del _sessions[self.app]
        self._client.close(why)
        self._waiting.clear()

    @property
    def closed(self) -> bool:
        """Whether the app has left."""
        return self._closed

    @contextmanager
    def using(self) -> Iterator[Agent]:
        """The AGENT, for the duration of a ``with`` block."""
        with self._lock:
            yield self.agent

    # -- trials ---------------------------------------------------------------------------

    def await_lease(self, trial_id: str, own: str) -> LeasedPlacementGroup:
        """A trial waits; returns the group that it will get.

        Args:
            trial_id: Which trial.
            own: The name of its group, unless it shares another's.
        """
        actor = live.find_actor()
        if actor is None:
            raise ConfigError("the arbiter is gone; start it again with `themis start`")
        shares = self.agent.settings.sharers > 1
        name = own
        with self._lock:
            if trial_id in self.agent.trials:
                if shares:
                    name = self.agent.join_group(trial_id, own, time.monotonic())
                else:
                    self.agent.trial_waits(trial_id, own)
        granted = actor.wait_for_lease.options(concurrency_group="waiting").remote(
            self.app, name, shares
        )
        made = SharedPlacementGroup if shares else LeasedPlacementGroup
        group = made(own, granted)
        with self._lock:
            self._waiting[name] = group
            if isinstance(group, SharedPlacementGroup):
                self._shared.setdefault(name, []).append(group)
        return group

    def settle_shared(self, known: Collection[object], acquired: Collection[object]) -> None:
        """Follow what Tune does with groups that several trials share.

        Args:
            known: The placement groups that Tune has.
            acquired: Those of them in which it has placed an actor.
        """
        over = []
        with self._lock:
            in_use = {trial.group for trial in self.agent.trials.values()}
            for name, parts in list(self._shared.items()):
                for part in parts:
                    part.placed = part.placed or part in acquired
                parts[:] = [part for part in parts if part in known]
                if not parts and name not in in_use:
                    del self._shared[name]
                    if name in self._requested:
                        self._requested.remove(name)
                        over.append(name)
        for name in over:
            self._send(ev.GroupReleased(self.app, name))

    def pump(self) -> None:
        """Bring trials and leases into line; called often by the scheduler."""
        if self._closed:
            return
        with self._lock:
            events = self.agent.plan(time.monotonic())
            in_use = {t.group for t in self.agent.trials.values() if t.group}
            for name in [n for n in self._waiting if n not in in_use]:
                del self._waiting[name]
            self._requested.update(
                e.group for e in events if isinstance(e, ev.GroupRequested) and self._shared
            )
        for event in events:
            self._send(event)

    def why_waiting(self) -> str:
        """The arbiter's last word on this app, in a sentence; empty when it cannot be had."""
        try:
            document: Any = fetch_explain(live.endpoint(), self.app)
        except ThemisError as error:
            return str(error)
        reason = document.get("reason", {})
        text, remedy = reason.get("text", ""), reason.get("remedy", "")
        return f"{text}; {remedy}" if remedy else str(text)

    # -- the connection's thread ------------------------------------------------------------

    def _register(self) -> RegisterRequest:
        with self._lock:
            now = time.monotonic()
            held = tuple(
                HeldGroup(t.group, self._waiting[t.group].granted_id, t.allocation)
                for t in heads(list(self.agent.trials.values()))
                if t.holds and t.group in self._waiting
            )
            return RegisterRequest(
                app=self.app,
                report=self.agent.state_of_app(now),
                weight=self.agent.settings.weight,
                driver=DriverInfo(
                    ray.util.get_node_ip_address(),
                    os.getpid(),
                    ray.get_runtime_context().get_job_id(),
                ),
                bundle=self.bundle,
                groups=held,
            )

    def _on_command(self, command: object) -> None:
        now = time.monotonic()
        answer: ev.Event | None = None
        with self._lock:
            match command:
                case RequestReport():
                    answer = self.agent.report(command, now)
                case SendOffer():
                    answer = self.agent.bid(command, now)
                case LeasesChanged():
                    self.agent.leases_changed(command)
                    logger.info("%s: %s", self.app, command.reason)
                case GroupRefused():
                    self.agent.refused(command)
                    logger.warning("%s: %s", self.app, command.reason)
                case Failure():
                    logger.warning(
                        "%s: the arbiter refused a message: %s", self.app, command.message
                    )
        if answer is not None:
            self._send(answer)
        else:
            self.pump()

    def _on_state(self, state: ConnectionState, message: str) -> None:
        if state is ConnectionState.LOST:
            logger.warning("%s lost the arbiter (%s); connecting again", self.app, message)
        elif state is ConnectionState.CLOSED and not self._closed:
            self.failure = message
            logger.error("%s was turned away by the arbiter: %s", self.app, message)
        elif state is ConnectionState.CONNECTED and self.welcome is not None:
            logger.info("%s is connected again", self.app)
            with self._lock:
                trials = heads(list(self.agent.trials.values()))
                placed = [t for t in trials if t.phase is TrialPhase.PLACED]
            for trial in placed:
                # What was asked for while the stream was down may not have arrived.
                self._send(ev.GroupRequested(self.app, trial.group, trial.allocation))

    def _send(self, event: ev.Event) -> None:
        self._client.send(event)
