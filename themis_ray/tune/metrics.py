"""The newest r and lease of each trial of this process, for callbacks and loggers.

Tune hands its callbacks a trial and a result, not the scheduler. So ``ThemisScheduler`` publishes
here, before the callbacks run, and ``ThemisMLflowCallback`` reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from themis_ray.agent.agent import Agent


@dataclass(frozen=True, slots=True)
class TrialMetrics:
    """What is known of a trial at a report.

    Attributes:
        app: The app's name.
        policy: The policy that the arbiter runs.
        r: Finish-time fairness of the app.
        trial_r: r of this trial alone, by Equation 1; None before its first iteration time.
        t_shared_s: The app's finish time in the shared cluster, seconds from its start.
        t_ideal_s: Its finish time on a 1/N share, seconds from its start.
        gpus: GPUs (or leased units) that the trial holds.
        placement_score: 1 / S(G) of its placement; 1 is the best.
        lease: The name of the trial's present placement group.
        nodes: Machines that it runs on (host and the start of Ray's node id), each with its GPUs.
        leases: How many groups the trial has had so far.
        history: The GPUs of each of them, in words.
    """

    app: str
    policy: str
    r: float
    trial_r: float | None
    t_shared_s: float
    t_ideal_s: float
    gpus: int
    placement_score: float
    lease: str
    nodes: dict[str, int] = field(default_factory=dict)
    leases: int = 1
    history: tuple[str, ...] = ()


def of_trial(agent: Agent, trial_id: str, policy: str, now: float) -> TrialMetrics:
    """How a trial stands now, under the arbiter's policy."""
    state, report = agent.trials[trial_id], agent.state_of_app(now)
    return TrialMetrics(
        app=agent.settings.app,
        policy=policy,
        r=report.r,
        trial_r=agent.trial_r(trial_id, now),
        t_shared_s=report.t_shared_s,
        t_ideal_s=report.t_ideal_s,
        gpus=state.allocation.size,
        placement_score=agent.placement_score(trial_id),
        lease=state.group,
        nodes=dict(state.allocation),
        leases=state.leases,
        history=tuple(state.history),
    )


_latest: dict[str, TrialMetrics] = {}


def publish(trial_id: str, metrics: TrialMetrics) -> None:
    """Make ``metrics`` the newest of a trial."""
    _latest[trial_id] = metrics


def latest(trial_id: str) -> TrialMetrics | None:
    """The newest metrics of a trial; None when it does not run under ``ThemisScheduler``."""
    return _latest.get(trial_id)


def forget(trial_id: str) -> None:
    """Drop a trial that is over."""
    _latest.pop(trial_id, None)
