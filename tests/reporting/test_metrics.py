"""The figures that Prometheus gets of an arbiter."""

from __future__ import annotations

from collections.abc import Mapping

from themis_ray.core.arbiter import Arbiter
from themis_ray.core.cluster import Machine
from themis_ray.core.commands import Command, Decided, LeasesChanged
from themis_ray.core.explain import Won
from themis_ray.core.policies import ThemisPaper
from themis_ray.core.settings import ArbiterConfig
from themis_ray.live.cluster_watch import ClusterWatch
from themis_ray.live.driver import LiveDriver
from themis_ray.live.snapshot import snapshot
from themis_ray.reporting.metrics import COUNTERS, GAUGES, HISTOGRAMS, ArbiterMetrics
from themis_ray.testing.agents import JobSpec, SimpleAgent
from themis_ray.testing.loop import Loop

Key = tuple[str, tuple[tuple[str, str], ...]]


class Kept:
    """Instruments that keep what they are told; they refuse what Ray would not know."""

    def __init__(self) -> None:
        self.levels: dict[Key, float] = {}
        self.counts: dict[Key, float] = {}
        self.spreads: dict[str, list[float]] = {}

    def level(self, name: str, value: float, tags: Mapping[str, str]) -> None:
        assert tuple(tags) == GAUGES[name][1]
        self.levels[name, tuple(tags.items())] = value

    def count(self, name: str, by: float, tags: Mapping[str, str]) -> None:
        assert tuple(tags) == COUNTERS[name][1]
        key = name, tuple(tags.items())
        self.counts[key] = self.counts.get(key, 0.0) + by

    def spread(self, name: str, value: float) -> None:
        assert name in HISTOGRAMS
        self.spreads.setdefault(name, []).append(value)


def test_an_arbiters_life_in_figures() -> None:
    kept = Kept()
    metrics = ArbiterMetrics(kept)
    arbiter = Arbiter(
        ThemisPaper(payment="time", min_bidders=2), ArbiterConfig(lease_s=30, min_lease_s=0)
    )
    driver = LiveDriver(arbiter, ClusterWatch("GPU"), lambda app, command: None)
    agents = [
        SimpleAgent("a", [JobSpec(200, 2)] * 2, answers_after_s=0.25),
        SimpleAgent("b", [JobSpec(200, 2)] * 2, joins_s=5, answers_after_s=0.25),
    ]
    loop = Loop(arbiter, agents, machines=[Machine("m0", 4)])
    history = loop.run(100)
    ended: dict[str, set[str]] = {"a": set(), "b": set()}
    for time_s, command in history.commands:
        metrics.decided([command], time_s)
        if isinstance(command, LeasesChanged):
            ended[command.app] |= {lease.id for lease in command.leases if lease.final}
    decided: list[tuple[float, Command]] = [*history.of(Decided)]
    assert kept.counts["themis_rounds_total", ()] == len(decided) > 2
    for app, leases in ended.items():
        key = "themis_leases_ended_total", (("app", app),)
        assert kept.counts.get(key, 0) == len(leases)
    assert ended["a"]
    # All report 0.25 s after they are asked, and bid as long after that.
    assert {round(s, 6) for s in kept.spreads["themis_round_seconds"]} == {0.5}
    last = {}
    for _, command in decided:
        assert isinstance(command, Decided)
        for app, reason in command.reasons.items():
            if isinstance(reason, Won):
                last[app] = 1 - reason.payment_factor
    for app, paid in last.items():
        assert kept.levels["themis_hidden_payment", (("app", app),)] == paid

    status = snapshot(driver, 0.0)
    metrics.levels(status)
    gpus = {key[1][0][1]: v for key, v in kept.levels.items() if key[0] == "themis_gpus"}
    assert gpus["leased"] + gpus["free"] == 4
    assert kept.levels["themis_apps", ()] == len(status["apps"])
    assert kept.levels["themis_max_r", ()] == status["max_r"]
    assert sum(v for k, v in kept.levels.items() if k[0] == "themis_app_gpus") == gpus["leased"]

    loop.run(2000)
    metrics.levels(snapshot(driver, 0.0))
    assert kept.levels["themis_apps", ()] == 0
    assert kept.levels["themis_max_r", ()] == 0
    assert {v for k, v in kept.levels.items() if k[0].startswith("themis_app_")} == {0.0}
