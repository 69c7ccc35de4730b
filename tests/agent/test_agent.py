"""The AGENT by itself, and against a real arbiter with trials that exist on paper only."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from themis_ray.agent.agent import IDLE_BEFORE_RETURN_S, Agent, AgentSettings
from themis_ray.agent.trials import TrialPhase
from themis_ray.core import events as ev
from themis_ray.core.arbiter import Arbiter
from themis_ray.core.cluster import NOTHING, Allocation, Machine
from themis_ray.core.commands import (
    GroupRefused,
    LeasesChanged,
    LeaseView,
    RemoveGroup,
    RequestReport,
    SendOffer,
)
from themis_ray.core.explain import LeaseEnded, NotHeld, Waiting
from themis_ray.core.policies import ThemisPaper
from themis_ray.core.settings import ArbiterConfig
from themis_ray.testing import JobSpec, Loop, SimpleAgent
from themis_ray.testing.loop import Told

PUMP_S = 0.5


def gpus(**counts: int) -> Allocation:
    return Allocation(counts)


def agent_with(*trials: str, least: int = 1, most: int = 1, total: float = 100) -> Agent:
    agent = Agent(AgentSettings("a", trial_min=least, trial_max=most), 0.0, cluster_gpus=8)
    for name in trials:
        agent.add_trial(name, total)
        agent.trial_waits(name, f"{name}-1")
    return agent


def lease(
    held: Allocation, expires_s: float = 100, *, final: bool = False, name: str = "L1"
) -> LeaseView:
    return LeaseView(name, held, NOTHING, expires_s, final)


def tell(agent: Agent, *leases: LeaseView) -> None:
    agent.leases_changed(LeasesChanged("a", leases, Waiting(0)))


def requests(events: Sequence[ev.Event]) -> dict[str, Allocation]:
    return {e.group: e.allocation for e in events if isinstance(e, ev.GroupRequested)}


def run_all(agent: Agent, now: float = 1) -> None:
    for trial in agent.trials.values():
        if trial.phase is TrialPhase.PLACED:
            agent.trial_ran(trial.id, now, 1, 1.0)


# -- plans --------------------------------------------------------------------------------------


def test_waiting_trials_start_in_order_on_what_is_held() -> None:
    agent = agent_with("t0", "t1", "t2")
    tell(agent, lease(gpus(m0=2)))
    assert requests(agent.plan(0)) == {"t0-1": gpus(m0=1), "t1-1": gpus(m0=1)}
    assert requests(agent.plan(0)) == {}
    assert agent.trials["t2"].phase is TrialPhase.WAITING


def test_demand_is_told_when_it_changes_only() -> None:
    agent = agent_with("t0")
    reports = [e for e in agent.plan(0) if isinstance(e, ev.Reported)]
    assert [r.report.wants for r in reports] == [1]
    assert not [e for e in agent.plan(0.1) if isinstance(e, ev.Reported)]
    agent.add_trial("t1", 100)
    agent.trial_waits("t1", "t1-1")
    reports = [e for e in agent.plan(0.2) if isinstance(e, ev.Reported)]
    assert [r.report.wants for r in reports] == [2]


def test_the_last_trials_leave_when_gpus_are_lost() -> None:
    agent = agent_with("t0", "t1", "t2")
    tell(agent, lease(gpus(m0=3)))
    agent.plan(0)
    run_all(agent)
    tell(agent, lease(gpus(m0=1), 200, name="L2"), lease(gpus(m0=2), 100, final=True))
    agent.plan(90)
    assert {t.id: t.leave_by_s for t in agent.trials.values()} == {
        "t0": None,
        "t1": 100,
        "t2": 100,
    }
    assert agent.trial_ran("t1", 91, 2, 1.0)  # its next report is the time to pause
    assert not agent.trial_ran("t0", 91, 2, 1.0)
    assert agent.overdue(99.9) == []
    assert agent.overdue(100) == ["t1", "t2"]


def test_a_trial_leaves_by_the_end_of_its_own_lease() -> None:
    """Of two lost leases the one that ends sooner takes one trial sooner."""
    agent = agent_with("t0", "t1", "t2")
    tell(agent, lease(gpus(m0=3)))
    agent.plan(0)
    run_all(agent)
    tell(
        agent,
        lease(gpus(m0=1), 200, name="L2"),
        lease(gpus(m0=1), 100, final=True, name="L3"),
        lease(gpus(m0=1), 108, final=True, name="L4"),
    )
    agent.plan(90)
    assert [agent.trials[t].leave_by_s for t in ("t0", "t1", "t2")] == [None, 108, 100]


def test_a_trial_that_gets_its_gpus_back_stays() -> None:
    agent = agent_with("t0")
    tell(agent, lease(gpus(m0=1)))
    agent.plan(0)
    run_all(agent)
    tell(agent, lease(gpus(m0=1), final=True))
    agent.plan(90)
    assert agent.trials["t0"].leave_by_s == 100
    tell(agent, lease(gpus(m0=1), 200, name="L2"))
    agent.plan(91)
    assert agent.trials["t0"].leave_by_s is None


def test_trials_that_cannot_be_preempted_are_pinned_and_leave_last() -> None:
    agent = agent_with("t0", "t1")
    agent.trials["t1"].preemptible = False
    tell(agent, lease(gpus(m0=2)))
    agent.plan(0)
    run_all(agent)
    assert agent.state_of_app(1).pinned == gpus(m0=1)
    tell(agent, lease(gpus(m0=1), 200, name="L2"), lease(gpus(m0=1), final=True))
    agent.plan(90)
    assert agent.trials["t0"].leave_by_s == 100
    assert agent.trials["t1"].leave_by_s is None


def test_a_refused_group_is_asked_for_again() -> None:
    agent = agent_with("t0")
    tell(agent, lease(gpus(m0=1)))
    agent.plan(0)
    agent.refused(GroupRefused("a", "t0-1", NotHeld(gpus(m0=1), NOTHING)))
    assert agent.trials["t0"].phase is TrialPhase.WAITING
    assert requests(agent.plan(1)) == {"t0-1": gpus(m0=1)}


def test_idle_gpus_go_back_after_a_while_and_are_not_asked_for_again() -> None:
    agent = agent_with("t0", "t1")
    tell(agent, lease(gpus(m0=2)))
    agent.plan(0)
    run_all(agent)
    agent.trial_left("t1", 10, done=True)
    assert not [e for e in agent.plan(10) if isinstance(e, ev.GpusReturned)]
    events = agent.plan(10 + IDLE_BEFORE_RETURN_S)
    assert [type(e) for e in events] == [ev.Reported, ev.GpusReturned]
    assert isinstance(events[0], ev.Reported)
    assert events[0].report.wants == 1
    assert events[1] == ev.GpusReturned("a", gpus(m0=1))
    assert agent.held() == gpus(m0=1)
    assert agent.plan(20) == [] or all(isinstance(e, ev.Reported) for e in agent.plan(20))
    assert agent.wants() == 1


def test_an_elastic_trial_grows_by_pausing_once_a_lease() -> None:
    agent = agent_with("t0", most=4, total=1000)
    tell(agent, lease(gpus(m0=2), 600))
    agent.plan(0)
    for i in range(3):
        agent.trial_ran("t0", 10.0 * (i + 1), i + 1, 10.0)
    tell(agent, lease(gpus(m0=2), 600), lease(gpus(m0=2), 600, name="L2"))
    agent.plan(40)
    assert agent.trials["t0"].leave_by_s == math.inf
    assert agent.overdue(1e9) == []  # it pauses at its next report; it is never stopped hard
    assert agent.trial_ran("t0", 50, 4, 10.0)
    agent.trial_leaves("t0")
    agent.trial_left("t0", 51, done=False)
    agent.trial_waits("t0", "t0-2")
    assert requests(agent.plan(52)) == {"t0-2": gpus(m0=4)}


def sharing_agent(count: int, sharers: int = 4) -> Agent:
    agent = Agent(AgentSettings("a", sharers=sharers), 0.0, cluster_gpus=8)
    for i in range(count):
        agent.add_trial(f"t{i}", 100)
        agent.join_group(f"t{i}", f"g{i}", 0)
    return agent


def test_trials_of_a_part_of_a_gpu_share_groups() -> None:
    agent = sharing_agent(6)
    assert [t.group for t in agent.trials.values()] == ["g0"] * 4 + ["g4"] * 2
    assert agent.wants() == 2
    tell(agent, lease(gpus(m0=1)))
    assert requests(agent.plan(0)) == {"g0": gpus(m0=1)}
    assert [t.holds for t in agent.trials.values()] == [True] * 4 + [False] * 2
    tell(agent, lease(gpus(m0=1, m1=1)))
    assert requests(agent.plan(1)) == {"g4": gpus(m1=1)}


def test_a_place_that_comes_free_is_taken_by_the_next_at_once() -> None:
    agent = sharing_agent(4)
    tell(agent, lease(gpus(m0=1)))
    agent.plan(0)
    run_all(agent)
    agent.trial_left("t1", 5, done=True)
    agent.add_trial("t9", 100)
    assert agent.join_group("t9", "g9", 6) == "g0"
    assert agent.trials["t9"].phase is TrialPhase.PLACED
    assert agent.trials["t9"].allocation == gpus(m0=1)
    assert requests(agent.plan(7)) == {}
    assert agent.wants() == 1


def test_all_that_share_a_gpu_leave_with_it_and_nobody_joins_them() -> None:
    agent = sharing_agent(3)
    tell(agent, lease(gpus(m0=1)))
    agent.plan(0)
    run_all(agent)
    tell(agent, lease(gpus(m0=1), 100, final=True))
    agent.plan(90)
    assert [t.leave_by_s for t in agent.trials.values()] == [100] * 3
    agent.add_trial("t9", 100)
    assert agent.join_group("t9", "g9", 91) == "g9"


def test_four_trials_on_a_gpu_take_as_long_as_one() -> None:
    """To r, a place on a GPU is what a GPU is to others."""
    four, one = sharing_agent(4), agent_with("t0")
    for agent in (four, one):
        agent.cluster_gpus = 1
        tell(agent, lease(gpus(m0=1)))
        agent.plan(0)
        for trial in agent.trials.values():
            agent.trial_ran(trial.id, 1, 1, 10.0)
            agent.trial_ran(trial.id, 2, 2, 10.0)
    assert four.state_of_app(50).r == pytest.approx(one.state_of_app(50).r)
    assert four.state_of_app(50).wants == 1


def test_r_is_equation_1_for_one_trial() -> None:
    agent = agent_with("t0", most=4, total=100)
    agent.n_avg, agent.cluster_gpus = 2.0, 8
    tell(agent, lease(gpus(m0=2), 600))
    agent.plan(0)
    agent.trial_ran("t0", 1, 1, 10.0)
    agent.trial_ran("t0", 20, 4, 5.0)  # on two GPUs: 10 s on one
    exact = (20 + 96 * 10 / 2) / (100 * 10 / 4 * 2)
    assert agent.trial_r("t0", 20) == pytest.approx(exact)
    assert agent.state_of_app(20).r == pytest.approx(exact)


def test_an_app_with_no_gpu_has_infinite_r() -> None:
    report = agent_with("t0").state_of_app(5)
    assert (report.r, report.t_shared_s) == (math.inf, math.inf)
    done = agent_with()
    assert done.state_of_app(5).r < math.inf


# -- against an arbiter -------------------------------------------------------------------------


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
