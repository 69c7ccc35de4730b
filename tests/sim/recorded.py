"""Journals of arbiters in memory, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from themis_ray.core import events as ev
from themis_ray.core.arbiter import Arbiter
from themis_ray.core.cluster import Machine
from themis_ray.core.commands import Command
from themis_ray.core.journal import Entry, Line, header_of, write_line
from themis_ray.core.policies import Policy
from themis_ray.core.settings import ArbiterConfig
from themis_ray.testing.agents import JobSpec, SimpleAgent
from themis_ray.testing.loop import Loop

CONFIG = ArbiterConfig(
    lease_s=60, notice_s=6, grace_s=4, report_timeout_s=3, bid_timeout_s=2, min_lease_s=5
)
MACHINES = (Machine("m0", 4), Machine("m1", 4), Machine("m2", 2, "r1"))


class RecordedArbiter(Arbiter):
    """An arbiter with a journal in memory."""

    def __init__(self, policy: Policy, config: ArbiterConfig = CONFIG, **more: Any) -> None:
        super().__init__(policy, config)
        self.lines: list[Line] = [header_of(policy, config, **{"run": "r1", **more})]

    def handle(self, event: ev.Event, now: float) -> list[Command]:
        try:
            commands = super().handle(event, now)
        except Exception as error:
            self.lines.append(Entry.of(now, event, (), error))
            raise
        self.lines.append(Entry.of(now, event, commands))
        return commands


def busy_agents() -> list[SimpleAgent]:
    """Apps of all characters: late, heavy, silent, wrong, stubborn, not to be preempted."""
    return [
        SimpleAgent("a", [JobSpec(300, 1)] * 4, restart_s=2),
        SimpleAgent("b", [JobSpec(500, 2)] * 3, joins_s=10, weight=2.0, answers_after_s=0.5),
        SimpleAgent("c", [JobSpec(200, 4)] * 2, joins_s=20.25, releases="at expiry"),
        SimpleAgent("d", [JobSpec(90, 1)], joins_s=30, silent=True),
        SimpleAgent("e", [JobSpec(150, 1)] * 2, joins_s=41, bad_bids=True),
        SimpleAgent("f", [JobSpec(120, 1)] * 2, joins_s=55, pinned=True),
        SimpleAgent("g", [JobSpec(400, 2)] * 2, joins_s=70, releases="never"),
    ]


def record(
    policy: Policy, until_s: float = 900.0, agents: Sequence[SimpleAgent] | None = None
) -> RecordedArbiter:
    """Run apps with a machine that comes late and one that goes for a while."""
    arbiter = RecordedArbiter(policy)
    script = [
        (150.0, ev.ClusterChanged(MACHINES[:2])),
        (260.0, ev.ClusterChanged((*MACHINES, Machine("m3", 1)))),
    ]
    Loop(
        arbiter,
        busy_agents() if agents is None else agents,
        machines=MACHINES,
        script=script,
        create_s=0.25,
        remove_s=0.5,
    ).run(until_s)
    return arbiter


def save(path: Path, lines: Sequence[Line]) -> Path:
    path.write_text("".join(write_line(line) for line in lines))
    return path
