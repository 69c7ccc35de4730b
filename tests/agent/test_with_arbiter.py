"""The AGENT against a real arbiter, with trials that exist on paper only."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from themis_ray.agent.agent import Agent, AgentSettings
from themis_ray.agent.trials import TrialPhase
from themis_ray.core import events as ev
from themis_ray.core.arbiter import Arbiter
from themis_ray.core.cluster import Machine
from themis_ray.core.commands import (
    GroupRefused,
    LeasesChanged,
    RemoveGroup,
    RequestReport,
    SendOffer,
)
from themis_ray.core.explain import LeaseEnded
from themis_ray.core.policies import ThemisPaper
from themis_ray.core.settings import ArbiterConfig
from themis_ray.testing import JobSpec, Loop, SimpleAgent
from themis_ray.testing.loop import Told

PUMP_S = 0.5


class Trials:
    """A search whose trials run on paper: an iteration takes ``iter_s`` over the GPUs.

    Plays the scheduler's part for an :class:`Agent` in the in-memory loop.
    """

    answers_after_s = 0.0

    def __init__(
        self, agent: Agent, names: Sequence[str], total: int, iter_s: float, joins_s: float = 0.0
    ) -> None:
        self.agent, self.app, self.joins_s = agent, agent.settings.app, joins_s
        self.iter_s = iter_s
        self.done: dict[str, int] = dict.fromkeys(names, 0)
        self.total = total
        self.next_s: dict[str, float] = {}
        self.stopping: set[str] = set()
        self.starts = dict.fromkeys(names, 0)
        self.sizes: dict[str, list[int]] = {name: [] for name in names}
        self.left_s: float | None = None
        self._pump_s = joins_s
        for name in names:
            agent.add_trial(name, total)
            self._wait(name)

    def _wait(self, name: str) -> None:
        self.starts[name] += 1
        self.agent.trial_waits(name, f"{self.app}-{name}-{self.starts[name]}")

    def join(self, now: float) -> ev.AppJoined:
        self.agent.started_s = now
        return ev.AppJoined(self.app, self.agent.state_of_app(now))

    def hear(self, command: Told, now: float) -> Sequence[ev.Event]:
        if self.left_s is not None:
            return ()
        match command:
            case RequestReport():
                return [self.agent.report(command, now)]
            case SendOffer():
                return [self.agent.bid(command, now)]
            case LeasesChanged():
                self.agent.leases_changed(command)
            case GroupRefused():
                self.agent.refused(command)
        return self.agent.plan(now)

    def _name(self, group: str) -> str:
        return group.split("-")[1]

    def group_ready(self, group: str, now: float) -> Sequence[ev.Event]:
        trial = self.agent.trials[self._name(group)]
        if trial.group == group:
            trial.phase = TrialPhase.RUNNING
            self.sizes[trial.id].append(trial.allocation.size)
            self.next_s[trial.id] = now + self.iter_s / trial.allocation.size
        return ()

    def group_removed(self, group: str, now: float) -> Sequence[ev.Event]:
        return () if self.left_s is not None else self.agent.plan(now)

    def wakeup_s(self) -> float | None:
        if self.left_s is not None:
            return None
        return min([self._pump_s, *self.next_s.values()])

    def wake(self, now: float) -> Sequence[ev.Event]:
        out: list[ev.Event] = []
        for name in [n for n, due_s in self.next_s.items() if due_s <= now]:
            out += self._iterate(name, now)
        for name in self.agent.overdue(now):
            out.append(self._give_up(name, now, done=False))
        if all(count >= self.total for count in self.done.values()):
            self.left_s = now
            return [*out, ev.AppLeft(self.app)]
        if self._pump_s <= now:
            self._pump_s = now + PUMP_S
        return [*out, *self.agent.plan(now)]

    def _iterate(self, name: str, now: float) -> list[ev.Event]:
        trial = self.agent.trials[name]
        self.done[name] += 1
        seconds = self.iter_s / trial.allocation.size
        self.next_s[name] = now + seconds
        pause = self.agent.trial_ran(name, now, self.done[name], seconds)
        if self.done[name] >= self.total:
            return [self._give_up(name, now, done=True)]
        return [self._give_up(name, now, done=False)] if pause else []

    def _give_up(self, name: str, now: float, *, done: bool) -> ev.Event:
        group = self.agent.trials[name].group
        self.next_s.pop(name, None)
        self.agent.trial_left(name, now, done=done)
        if not done:
            self._wait(name)
        return ev.GroupReleased(self.app, group)


CONFIG = ArbiterConfig(lease_s=60, notice_s=6, grace_s=5, min_lease_s=6)


def search(
    app: str, count: int, total: int, iter_s: float = 1.0, joins_s: float = 0.0, **limits: int
) -> Trials:
    settings = AgentSettings(app, **{f"trial_{k}": v for k, v in limits.items()})  # type: ignore[arg-type]
    return Trials(Agent(settings, 0.0), [f"t{i}" for i in range(count)], total, iter_s, joins_s)


def policy() -> ThemisPaper:
    return ThemisPaper(min_bidders=3, payment="time", leftover="placed")


def test_one_search_alone_uses_the_whole_cluster() -> None:
    alone = search("a", 4, 100)
    loop = Loop(Arbiter(policy(), CONFIG), [alone], machines=[Machine("m0", 4)])
    loop.run(300)
    assert alone.left_s == 100
    assert set(alone.starts.values()) == {1}  # renewed, never stopped
    assert not loop.history.refused


def test_two_searches_share_and_both_finish() -> None:
    first, second = search("a", 4, 150), search("b", 4, 150, joins_s=20)
    arbiter = Arbiter(policy(), CONFIG)
    loop = Loop(arbiter, [first, second], machines=[Machine("m0", 2), Machine("m1", 2)])
    loop.run(3000)
    assert first.left_s is not None
    assert second.left_s is not None
    # 1200 GPU-s on 4 GPUs take 300 s; at the end the last trials run alone, one GPU each.
    assert max(first.left_s, second.left_s) <= 360
    assert not loop.history.refused
    assert arbiter.state.ledger.free() == arbiter.state.cluster.capacity
    removed_by_force = [
        c for _, c in loop.history.of(RemoveGroup) if isinstance(c.reason, LeaseEnded)
    ]
    assert not removed_by_force


def test_elastic_trials_span_machines_when_one_is_too_small() -> None:
    """Its trial can use 4 GPUs, and no machine has more than 2."""
    wide = search("a", 1, 400, max=4)
    loop = Loop(Arbiter(policy(), CONFIG), [wide], machines=[Machine("m0", 2), Machine("m1", 2)])
    loop.run(2000)
    assert not loop.history.refused
    assert wide.left_s == 100
    assert wide.sizes["t0"] == [4]


def test_an_elastic_trial_takes_over_what_another_app_leaves() -> None:
    elastic, short = search("a", 1, 2000, max=4), search("b", 2, 30)
    loop = Loop(Arbiter(policy(), CONFIG), [short, elastic], machines=[Machine("m0", 4)])
    loop.run(5000)
    assert elastic.sizes["t0"][-1] == 4
    assert elastic.left_s is not None
    assert elastic.left_s <= 2000 / 4 + 60


@pytest.mark.parametrize("limits", [{"max": 2}, {"min": 2, "max": 2}, {"max": 4}])
def test_gpus_are_not_granted_returned_and_granted_in_turns(limits: dict[str, int]) -> None:
    odd = search("a", 1, 300, **limits)
    other = SimpleAgent("b", [JobSpec(100.0)], joins_s=3)
    loop = Loop(Arbiter(policy(), CONFIG), [odd, other], machines=[Machine("m0", 3)])
    history = loop.run(290)
    returned = [t for t, e in history.events if isinstance(e, ev.GpusReturned)]
    assert len(returned) <= 290 / CONFIG.lease_s + 2
    assert len(history.of(RequestReport)) <= 60


def test_pinned_trials_keep_their_gpus_against_all_comers() -> None:
    stuck, other = search("a", 2, 300), search("b", 2, 100, joins_s=5)
    for trial in stuck.agent.trials.values():
        trial.preemptible = False
    loop = Loop(Arbiter(policy(), CONFIG), [stuck, other], machines=[Machine("m0", 2)])
    loop.run(1000)
    assert stuck.left_s == 300
    assert set(stuck.starts.values()) == {1}
    assert other.left_s == 400


def test_a_search_of_gangs_gets_whole_gangs() -> None:
    gangs, ones = search("a", 2, 100, min=2, max=2), search("b", 4, 100, joins_s=1)
    machines = [Machine("m0", 3), Machine("m1", 2)]
    loop = Loop(Arbiter(policy(), CONFIG), [gangs, ones], machines=machines)
    loop.run(2000)
    assert gangs.left_s is not None
    assert ones.left_s is not None
    assert all(set(sizes) == {2} for sizes in gangs.sizes.values())
