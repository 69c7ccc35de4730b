"""Finish times that the AGENT predicts, beside those that came."""

from __future__ import annotations

import logging

import pytest

from themis_ray.agent.agent import Agent, AgentSettings
from themis_ray.core.cluster import NOTHING, Allocation
from themis_ray.core.commands import LeasesChanged, LeaseView
from themis_ray.core.explain import Waiting


def agent_on_gpus(trials: int, total: float = 10) -> Agent:
    """An app whose trials each run on a GPU from time 0 on."""
    agent = Agent(AgentSettings("a"), 0.0, cluster_gpus=8)
    for i in range(trials):
        agent.add_trial(f"t{i}", total)
        agent.trial_waits(f"t{i}", f"g{i}")
    views = (LeaseView("L1", Allocation({"m0": trials}), NOTHING, 1e9, False),)
    agent.leases_changed(LeasesChanged("a", views, Waiting(0)))
    agent.plan(0)
    return agent


def run(agent: Agent, trial: str, iter_s: list[float], *, first_s: float = 9.0) -> float:
    """Iterations one after another; the first of the lease is slow. Returns when they are over."""
    now, before = first_s, agent.trials[trial].iterations_done
    agent.trial_ran(trial, now, before + 1, first_s)
    for i, seconds in enumerate(iter_s, 2):
        now += seconds
        agent.trial_ran(trial, now, before + i, seconds)
    return now


def test_nothing_is_said_before_a_trial_has_ended() -> None:
    agent = agent_on_gpus(1)
    run(agent, "t0", [2.0] * 5)
    assert str(agent.errors) == ""
    assert agent.state_of_app(30.0).notes == ()


def test_a_trial_that_keeps_its_pace_ends_as_predicted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    agent = agent_on_gpus(1)
    agent.trial_left("t0", run(agent, "t0", [2.0] * 9), done=True)
    assert agent.errors.relative == [0.0]
    assert "finished after 16.0 s; 16.0 s were predicted on its last GPUs" in caplog.text


def test_the_error_is_that_of_the_time_to_go_and_reaches_the_arbiter() -> None:
    agent = agent_on_gpus(3)
    # Predicted after an iteration of 2 s, with 8 to go: 16 s. It takes 32 s, 12.8 s, 16 s.
    agent.trial_left("t0", run(agent, "t0", [2.0] + [4.0] * 8), done=True)
    agent.trial_left("t1", run(agent, "t1", [2.0] + [1.6] * 8), done=True)
    agent.trial_left("t2", run(agent, "t2", [2.0] * 9), done=True)
    assert agent.errors.relative == pytest.approx([-0.5, 0.25, 0.0])
    [note] = agent.state_of_app(60.0).notes
    assert note == ("predicted finish times were off by 25% (median of 3 trials, at worst 50%)")


def test_a_trial_that_the_search_stops_says_nothing_of_iteration_times() -> None:
    agent = agent_on_gpus(1)
    agent.trial_left("t0", run(agent, "t0", [2.0] * 4), done=True)
    assert agent.errors.relative == []
    assert agent.state_of_app(30.0).notes == ("1 trial ended earlier than expected",)


def test_both_kinds_are_told_together() -> None:
    agent = agent_on_gpus(2)
    agent.trial_left("t0", run(agent, "t0", [2.0] * 9), done=True)
    agent.trial_left("t1", run(agent, "t1", [2.0] * 4), done=True)
    assert str(agent.errors).endswith("at worst 0%); 1 trial ended earlier than expected")


def test_only_the_last_lease_is_judged() -> None:
    """What was predicted on GPUs that were then taken away can be neither right nor wrong."""
    agent = agent_on_gpus(1)
    now = run(agent, "t0", [2.0] * 3)
    agent.trial_left("t0", now, done=False)
    agent.trial_waits("t0", "g1")
    agent.plan(1000.0)
    agent.trial_ran("t0", 1009.0, 5, 9.0)
    for i in range(6, 11):
        agent.trial_ran("t0", 1009.0 + 2 * (i - 5), i, 2.0)
    agent.trial_left("t0", 1019.0, done=True)
    assert agent.errors.relative == pytest.approx([0.0])
