"""Trials that need a part of a GPU only."""

from __future__ import annotations

import pytest

from tests.agent.apps import agent_with, gpus, lease, requests, run_all, tell
from themis_ray.agent.agent import Agent, AgentSettings
from themis_ray.agent.trials import TrialPhase


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
