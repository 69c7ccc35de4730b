"""Rounds that ask nobody in vain decide the same as rounds that ask everybody."""

from __future__ import annotations

import pytest

from themis_ray.core.policies import POLICIES
from themis_ray.core.settings import ArbiterConfig
from themis_ray.sim import answers
from themis_ray.sim.cluster_file import SimCluster, parse_cluster
from themis_ray.sim.driver import Simulation
from themis_ray.sim.generate import generate
from themis_ray.sim.records import RunResult
from themis_ray.sim.settings import SimConfig
from themis_ray.sim.study import Study
from themis_ray.testing.invariants import check_arbiter

RENEWING = [name for name, policy in POLICIES.items() if policy.renews]
PLENTY = [{"count": 12, "gpus": 4, "slots": 2, "rack": "r0"}] * 2
TRACES = (
    "philly:seed=1,apps=40,max_gpus=16,length=0.2",
    "philly:seed=2,apps=40,max_gpus=16,length=0.2,contention=2",
    "w2:seed=3,apps=4,length=0.05,gang=true",
    "w2:seed=4,apps=4,length=0.05",
)


def plenty() -> SimCluster:
    machines = [dict(m, rack=f"r{i}") for i, m in enumerate(PLENTY)]
    return parse_cluster({"name": "c", "machines": machines, "models": {}}, "c", "c")


def run(policy: str, spec: str, *, check: bool = False) -> tuple[RunResult, int]:
    """A run, and how many reports were asked for."""
    config = SimConfig(arbiter=ArbiterConfig(lease_grid_s=150), ideal="exclusive")
    study = Study(plenty(), generate(spec), config)
    simulation = Simulation(
        study.cluster, study.trace, study.policy(policy), config, check_arbiter if check else None
    )
    return simulation.run(), simulation.result.events


@pytest.mark.parametrize("spec", TRACES)
@pytest.mark.parametrize("policy", RENEWING)
def test_the_same_comes_out_as_when_everybody_is_asked(
    policy: str, spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    some, events = run(policy, spec)
    monkeypatch.setattr(answers, "_steady", lambda app, wants: False)
    every, events_of_all = run(policy, spec)
    assert some.apps == every.apps
    assert some.rounds == every.rounds
    assert events <= events_of_all


@pytest.mark.parametrize("policy", RENEWING)
def test_the_books_are_right_throughout(policy: str) -> None:
    run(policy, TRACES[0], check=True)


def test_most_questions_are_saved_where_gpus_are_plentiful(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, events = run("tiresias-l", TRACES[0])
    monkeypatch.setattr(answers, "_steady", lambda app, wants: False)
    _, events_of_all = run("tiresias-l", TRACES[0])
    assert 2 * events < events_of_all
