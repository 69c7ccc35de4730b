"""Apps whose trials exist on paper, for the tests of the AGENT."""

from __future__ import annotations

from collections.abc import Sequence

from themis_ray.agent.agent import Agent, AgentSettings
from themis_ray.agent.trials import TrialPhase
from themis_ray.core import events as ev
from themis_ray.core.cluster import NOTHING, Allocation
from themis_ray.core.commands import LeasesChanged, LeaseView
from themis_ray.core.explain import Waiting


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
