"""Whole histories of an arbiter with apps in memory."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from themis_ray.core import events as ev
from themis_ray.core.arbiter import Arbiter
from themis_ray.core.cluster import Machine
from themis_ray.core.commands import CreateGroup, Decided, LeasesChanged, RemoveGroup
from themis_ray.core.explain import NoAnswer
from themis_ray.core.policies import Policy, ThemisPaper, make_policy
from themis_ray.core.settings import ArbiterConfig
from themis_ray.testing import FakeClock, JobSpec, Loop, SimpleAgent, run
from themis_ray.testing.policies import FirstCome

CONFIG = ArbiterConfig(lease_s=100, notice_s=10, grace_s=5, min_lease_s=10)
# As by default on a cluster: without a grid, the GPUs of a gang come free one by one.
ON_GRID = replace(CONFIG, lease_grid_s=25)


def policies() -> list[Policy]:
    return [
        ThemisPaper(min_bidders=3, payment="gpus"),
        ThemisPaper(min_bidders=3, payment="time", leftover="placed"),
        make_policy("themis"),
    ]


def held(arbiter: Arbiter, app: str) -> int:
    return arbiter.state.ledger.entitled(app).size


@pytest.mark.parametrize("policy", policies(), ids=["gpus", "time", "themis"])
def test_one_app_alone_has_the_cluster_and_is_never_stopped(policy: Policy) -> None:
    agent = SimpleAgent("a", [JobSpec(1000.0)] * 8)
    history = run(Arbiter(policy, CONFIG), [agent], 2000, machines=[Machine("m0", 8)])
    assert agent.left_s == 1000
    assert len(history.of(CreateGroup)) == 8
    assert all(t == 1000 for t, _ in history.of(RemoveGroup))
    assert not history.refused


@pytest.mark.parametrize("policy", policies(), ids=["gpus", "time", "themis"])
def test_a_newcomer_gets_gpus_within_one_lease(policy: Policy) -> None:
    """A big early app does not starve a small late one."""
    arbiter = Arbiter(policy, CONFIG)
    big = SimpleAgent("big", [JobSpec(2000.0)] * 16)
    late = SimpleAgent("late", [JobSpec(150.0)] * 2, joins_s=12)
    loop = Loop(arbiter, [big, late], machines=[Machine("m0", 4), Machine("m1", 4)])
    loop.run(11)
    assert held(arbiter, "big") == 8
    history = loop.run(1000)
    first = min(t for t, c in history.of(LeasesChanged, "late") if any(x.held for x in c.leases))
    assert first <= CONFIG.lease_s + CONFIG.grace_s
    # In turns of one lease with half of the cluster for each, it would need 3 leases in all.
    assert late.left_s is not None
    assert late.left_s <= 4 * CONFIG.lease_s


def test_an_app_of_large_gangs_is_not_starved_by_small_jobs() -> None:
    """One app of a 4-GPU gang against three of 1-GPU jobs."""
    agents = [SimpleAgent("gang", [JobSpec(5500.0, gpus=4)])]
    agents += [SimpleAgent(name, [JobSpec(1375.0)] * 4) for name in ("one", "two", "three")]
    arbiter = Arbiter(make_policy("themis", restart_s=2.0), ON_GRID)
    loop = Loop(arbiter, agents, machines=[Machine("m0", 4)])
    # All have the same work, and with fair shares all would be done at 22000 s. Here they go one
    # after the other, and the last is done when fair shares would have it so.
    loop.run(22000 * 1.05)
    ends = sorted(agent.left_s or math.inf for agent in agents)
    assert ends[0] <= 5500 * 1.05
    assert ends[-1] <= 22000 * 1.05, ends


def test_a_stream_of_small_apps_does_not_keep_a_gang_out() -> None:
    gang = SimpleAgent("gang", [JobSpec(2000.0, gpus=4)])
    small = [SimpleAgent(f"s{i}", [JobSpec(300.0)] * 4, joins_s=330.0 * i) for i in range(16)]
    loop = Loop(
        Arbiter(make_policy("themis", restart_s=2.0), ON_GRID),
        [gang, *small],
        machines=[Machine("m0", 4)],
    )
    loop.run(330.0 * 16)
    assert gang.left_s is not None
    assert gang.left_s < small[-4].joins_s  # small apps were still coming


@pytest.mark.parametrize("policy", policies(), ids=["gpus", "time", "themis"])
def test_gpus_do_not_idle_while_an_app_waits(policy: Policy) -> None:
    """Jobs that end early free their GPUs for the other app, long before their lease ends."""
    arbiter = Arbiter(policy, CONFIG)
    early = SimpleAgent("early", [JobSpec(1000.0), *[JobSpec(20.0)] * 7])
    waits = SimpleAgent("waits", [JobSpec(1000.0)] * 8, joins_s=5)
    loop = Loop(arbiter, [early, waits], machines=[Machine("m0", 8)])
    loop.run(19)
    assert held(arbiter, "early") == 8
    loop.run(21)
    assert held(arbiter, "early") == 1
    assert held(arbiter, "waits") == 7
    assert waits.running == 7


def test_what_is_of_no_use_to_gangs_goes_to_others() -> None:
    """Three GPUs and an app whose jobs need two: the third is not wasted on it."""
    arbiter = Arbiter(ThemisPaper(min_bidders=3), CONFIG)
    twos = SimpleAgent("twos", [JobSpec(1000.0, gpus=2)] * 2)
    loop = Loop(arbiter, [twos], machines=[Machine("m0", 3)])
    loop.run(10)
    assert held(arbiter, "twos") == 2
    loop.at(10, ev.AppJoined("single", ev.AppReport(1.0, 100.0, 100.0, 1)))
    history = loop.run(30)
    assert history.of(Decided)[-1][1].reasons["single"] is not None
    assert held(arbiter, "twos") == 2


def test_an_app_that_never_releases_loses_its_gpus_at_the_end_of_the_grace() -> None:
    arbiter = Arbiter(FirstCome(), CONFIG)
    stubborn = SimpleAgent("stubborn", [JobSpec(1e6)] * 4, releases="never", joins_s=1)
    first = SimpleAgent("first", [JobSpec(50.0)] * 4)
    loop = Loop(arbiter, [first, stubborn], machines=[Machine("m0", 4)], remove_s=2)
    loop.run(60)  # first is done at 50, its groups are gone at 52
    assert held(arbiter, "stubborn") == 4
    loop.at(60, ev.AppJoined("heir", ev.AppReport(1.0, 100.0, 100.0, 4)))
    arbiter.state.apps["stubborn"].joined_s = 1e9  # from now on it ranks last
    loop.at(142, ev.Reported("heir", ev.AppReport(1.0, 100.0, 100.0, 4), 1))
    heir_s = []

    def watch(now: float) -> None:
        if "heir" in arbiter.state.apps and held(arbiter, "heir"):
            heir_s.append(now)

    loop._observe = watch
    rounds_before = arbiter.rounds
    loop.run(142)
    loop.at(142, ev.Reported("heir", ev.AppReport(1.0, 100.0, 100.0, 4), rounds_before + 1))
    loop.run(200)
    removed = [t for t, c in loop.history.of(RemoveGroup, "stubborn")]
    assert removed == [157.0] * 4  # lease 52..152, grace 5
    assert heir_s[0] == 159.0


@pytest.mark.parametrize("fault", ["silent", "bad_bids"])
def test_an_app_that_misbehaves_costs_the_others_nothing(fault: str) -> None:
    arbiter = Arbiter(ThemisPaper(min_bidders=3), CONFIG)
    bad = SimpleAgent("bad", [JobSpec(1000.0)] * 4, **{fault: True})  # type: ignore[arg-type]
    good = SimpleAgent("good", [JobSpec(400.0)] * 4, joins_s=1)
    history = run(arbiter, [bad, good], 1000, machines=[Machine("m0", 4)])
    assert good.left_s is not None
    assert good.left_s <= 500  # at most one lease late
    assert bool(history.refused) == (fault == "bad_bids")
    assert bad.left_s is None or fault == "bad_bids"
    if fault == "silent":
        assert isinstance(arbiter.reason("bad"), NoAnswer)


def test_late_answers_lose_rounds_only() -> None:
    config = ArbiterConfig(lease_s=100, notice_s=10, report_timeout_s=2, bid_timeout_s=2)
    arbiter = Arbiter(ThemisPaper(min_bidders=3), config)
    slow = SimpleAgent("slow", [JobSpec(200.0)] * 2, answers_after_s=3)
    good = SimpleAgent("good", [JobSpec(200.0)] * 2, joins_s=1)
    run(arbiter, [slow, good], 400, machines=[Machine("m0", 2)])
    assert good.left_s is not None
    assert good.left_s <= 300


def test_groups_take_time_to_come_and_go() -> None:
    agents = [SimpleAgent(f"a{i}", [JobSpec(300.0)] * 4, joins_s=i) for i in range(3)]
    arbiter = Arbiter(ThemisPaper(min_bidders=3), CONFIG)
    loop = Loop(arbiter, agents, machines=[Machine("m0", 4)], create_s=3, remove_s=4)
    loop.run(5000)
    assert all(agent.left_s is not None for agent in agents)
    assert not loop.history.refused
    assert arbiter.state.ledger.free() == arbiter.state.cluster.capacity


def test_a_lost_node_moves_its_jobs() -> None:
    agent = SimpleAgent("a", [JobSpec(100.0)] * 4)
    script = [(50.0, ev.ClusterChanged((Machine("m1", 2),)))]
    machines = [Machine("m0", 2), Machine("m1", 2)]
    run(Arbiter(FirstCome(), CONFIG), [agent], 500, machines=machines, script=script)
    # 200 GPU-s are done at 50; the other 200 take 100 s on what is left.
    assert agent.left_s == 150


def test_the_fake_clock_does_not_run_backwards() -> None:
    clock = FakeClock(5)
    assert clock.advance(2) == clock() == 7
    for time_s in (6.9, float("nan")):
        with pytest.raises(ValueError, match="time cannot go to"):
            clock.advance_to(time_s)
