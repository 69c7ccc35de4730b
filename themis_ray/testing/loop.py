"""A driver of the arbiter in memory: groups come and go when told, and time is a number."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from themis_ray.core import events as ev
from themis_ray.core.arbiter import Arbiter
from themis_ray.core.cluster import Machine
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
from themis_ray.errors import ThemisError
from themis_ray.testing.clock import FakeClock
from themis_ray.testing.invariants import check_arbiter

# So many events in which no time passes are taken for a loop without end.
AT_ONE_TIME = 20_000

Told = RequestReport | SendOffer | LeasesChanged | GroupRefused
AnyCommand = TypeVar("AnyCommand", bound=Command)


class InMemoryAgent(Protocol):
    """An app, as the loop sees it; :class:`~themis_ray.testing.agents.SimpleAgent` is one.

    Attributes:
        app: Its name.
        joins_s: When it registers.
        answers_after_s: How long it takes to report and to bid.
    """

    app: str
    joins_s: float
    answers_after_s: float

    def join(self, now: float) -> ev.AppJoined:
        """Register."""

    def hear(self, command: Told, now: float) -> Sequence[ev.Event]:
        """The arbiter says something; what to answer."""

    def group_ready(self, group: str, now: float) -> Sequence[ev.Event]:
        """A placement group has been created."""

    def group_removed(self, group: str, now: float) -> Sequence[ev.Event]:
        """A placement group is gone."""

    def wakeup_s(self) -> float | None:
        """When it wants to be woken; None for never."""

    def wake(self, now: float) -> Sequence[ev.Event]:
        """Its time has come."""


@dataclass(slots=True)
class History:
    """What happened in a run.

    Attributes:
        events: All events, with their times.
        commands: All commands, with their times.
        refused: The events that the arbiter refused, with its errors.
    """

    events: list[tuple[float, ev.Event]] = field(default_factory=list)
    commands: list[tuple[float, Command]] = field(default_factory=list)
    refused: list[tuple[float, ev.Event, ThemisError]] = field(default_factory=list)

    def of(self, kind: type[AnyCommand], app: str = "") -> list[tuple[float, AnyCommand]]:
        """The commands of a kind, of all apps or of one."""
        return [
            (time_s, command)
            for time_s, command in self.commands
            if isinstance(command, kind) and app in ("", getattr(command, "app", ""))
        ]


class Loop:
    """Runs an arbiter with apps in memory.

    Args:
        arbiter: The arbiter.
        agents: The apps; each registers at its ``joins_s``.
        machines: The cluster at the start; leave it out when the arbiter knows it already.
        script: Further events, with their times.
        clock: The time; a new clock at 0 when None.
        create_s: How long it takes to create a placement group.
        remove_s: How long it takes to remove one.
        observe: Called with the time after every event.
        check: Called with the arbiter after every event; raises when something is wrong.
    """

    def __init__(
        self,
        arbiter: Arbiter,
        agents: Iterable[InMemoryAgent] = (),
        *,
        machines: Sequence[Machine] | None = None,
        script: Iterable[tuple[float, ev.Event]] = (),
        clock: FakeClock | None = None,
        create_s: float = 0.0,
        remove_s: float = 0.0,
        observe: Callable[[float], None] | None = None,
        check: Callable[[Arbiter], None] = check_arbiter,
    ) -> None:
        self.arbiter = arbiter
        self.agents = {agent.app: agent for agent in agents}
        self.clock = clock or FakeClock()
        self.history = History()
        self._create_s, self._remove_s = create_s, remove_s
        self._observe, self._check = observe, check
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._doomed: set[str] = set()
        self._created_s: dict[str, float] = {}
        now = self.clock()
        if machines is not None:
            self.at(now, ev.ClusterChanged(tuple(machines)))
        for agent in self.agents.values():
            self._later(max(now, agent.joins_s), lambda a=agent: self._join(a))  # type: ignore[misc]
        for time_s, event in script:
            self.at(time_s, event)

    def at(self, time_s: float, event: ev.Event) -> None:
        """Have an event happen at a time."""
        self._later(time_s, lambda: self._handle(event))

    def run(self, until_s: float) -> History:
        """Let time pass until ``until_s``; may be called again with a later time.

        Raises:
            AssertionError: The check failed, or events go on without time passing.
        """
        steps = 0
        while True:
            due_s = self._next_s()
            if due_s is None or due_s > until_s:
                self.clock.advance_to(max(until_s, self.clock()))
                return self.history
            steps = steps + 1 if due_s <= self.clock() else 0
            assert steps < AT_ONE_TIME, f"events go on without end at {self.clock()}"
            self.clock.advance_to(max(due_s, self.clock()))
            self._step()

    # -- one step ---------------------------------------------------------------------------

    def _later(self, time_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (time_s, next(self._order), action))

    def _next_s(self) -> float | None:
        times = [self._queue[0][0]] if self._queue else []
        wakeups = [self.arbiter.wakeup_s(), *(a.wakeup_s() for a in self.agents.values())]
        return min([*times, *(w for w in wakeups if w is not None)], default=None)

    def _step(self) -> None:
        now = self.clock()
        if self._queue and self._queue[0][0] <= now:
            heapq.heappop(self._queue)[2]()
            return
        for agent in self.agents.values():
            due_s = agent.wakeup_s()
            if due_s is not None and due_s <= now:
                self._send(agent.wake(now))
                return
        self._handle(ev.Tick())

    def _join(self, agent: InMemoryAgent) -> None:
        self._handle(agent.join(self.clock()))

    def _send(self, events: Iterable[ev.Event], after_s: float = 0.0) -> None:
        for event in events:
            self.at(self.clock() + after_s, event)

    def _handle(self, event: ev.Event) -> None:
        now = self.clock()
        self.history.events.append((now, event))
        try:
            commands = self.arbiter.handle(event, now)
        except ThemisError as error:
            self.history.refused.append((now, event, error))
            commands = []
        self._check(self.arbiter)
        if self._observe is not None:
            self._observe(now)
        for command in commands:
            self.history.commands.append((now, command))
            self._carry_out(command)

    # -- commands ---------------------------------------------------------------------------

    def _carry_out(self, command: Command) -> None:
        now = self.clock()
        match command:
            case Decided():
                return
            case CreateGroup():
                self._created_s[command.group] = now + self._create_s
                self._later(now + self._create_s, lambda: self._created(command))
            case RemoveGroup():
                self._doomed.add(command.group)
                gone_s = max(now + self._remove_s, self._created_s.get(command.group, now))
                self._later(gone_s, lambda: self._removed(command))
            case _:
                agent = self.agents.get(command.app)
                if agent is not None:
                    asked = isinstance(command, RequestReport | SendOffer)
                    delay_s = agent.answers_after_s if asked else 0.0
                    self._send(agent.hear(command, now), delay_s)

    def _created(self, command: CreateGroup) -> None:
        if command.group in self._doomed:
            return
        self._handle(ev.GroupReady(command.group))
        agent = self.agents.get(command.app)
        if agent is not None:
            self._send(agent.group_ready(command.group, self.clock()))

    def _removed(self, command: RemoveGroup) -> None:
        self._handle(ev.GroupGone(command.group))
        agent = self.agents.get(command.app)
        if agent is not None:
            self._send(agent.group_removed(command.group, self.clock()))


def run(
    arbiter: Arbiter,
    agents: Iterable[InMemoryAgent],
    until_s: float,
    *,
    machines: Sequence[Machine] | None = None,
    script: Iterable[tuple[float, ev.Event]] = (),
    create_s: float = 0.0,
    remove_s: float = 0.0,
    observe: Callable[[float], None] | None = None,
) -> History:
    """Run an arbiter with apps in memory until a time; see :class:`Loop` for the arguments."""
    loop = Loop(
        arbiter,
        agents,
        machines=machines,
        script=script,
        create_s=create_s,
        remove_s=remove_s,
        observe=observe,
    )
    return loop.run(until_s)
