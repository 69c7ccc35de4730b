"""r of an app and of a trial."""

from __future__ import annotations

import math

import pytest

from tests.agent.apps import agent_with, gpus, lease, tell


def test_r_is_equation_1_for_one_trial() -> None:
    agent = agent_with("t0", most=4, total=100)
    agent.n_avg, agent.cluster_gpus = 2.0, 8
    agent.plan(0)
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
