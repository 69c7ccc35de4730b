"""Runs one trace under several policies and collects their figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any

from themis_ray.core.fairness import Ideal
from themis_ray.core.policies import POLICIES, Policy, make_policy
from themis_ray.errors import InvalidInputError
from themis_ray.sim.cluster_file import MoveCost, SimCluster
from themis_ray.sim.driver import Simulation
from themis_ray.sim.jobs import Trace
from themis_ray.sim.judges import Judge
from themis_ray.sim.metrics import summary
from themis_ray.sim.records import RunResult
from themis_ray.sim.settings import SimConfig

# These reckon with T_id as the paper prints it; the others with the exclusive share.
PAPER_IDEAL = frozenset({"themis-paper", "strawman"})

Told = Callable[[str, int], None]
"""Is told how many apps of a run have finished, by the policy's name."""


@dataclass(frozen=True, slots=True)
class Study:
    """What to run.

    Attributes:
        cluster: The cluster.
        trace: The workload.
        config: Assumptions; each policy gets its own ``ideal`` unless ``same_ideal``.
        judge: Which T_id the figures are by.
        same_ideal: All apps report the T_id of ``config``, whatever the policy.
        options: Options for the policies that take them.
    """

    cluster: SimCluster
    trace: Trace
    config: SimConfig = field(default_factory=SimConfig)
    judge: Judge = "fluid"
    same_ideal: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def policy(self, name: str) -> Policy:
        """A policy, with those of the options that it takes."""
        if name not in POLICIES:
            make_policy(name)  # raises, naming what there is
        takes = getattr(POLICIES[name], "__dataclass_fields__", {})
        given = {key: value for key, value in self.options.items() if key in takes}
        return make_policy(name, **given)

    def run(self, name: str, told: Told | None = None) -> RunResult:
        """Simulate one policy."""
        return self.run_policy(self.policy(name), told)

    def run_policy(self, policy: Policy, told: Told | None = None) -> RunResult:
        """Simulate a policy with options of its own.

        Args:
            policy: The policy.
            told: Is told of each app that finishes.
        """
        config = self.config
        if not self.same_ideal:
            ideal: Ideal = "paper" if policy.name in PAPER_IDEAL else "exclusive"
            config = replace(config, ideal=ideal)
        ended = None if told is None else partial(told, policy.name)
        return Simulation(self.cluster, self.trace, policy, config, ended=ended).run()

    def figures(self, result: RunResult) -> dict[str, Any]:
        """The figures of a run."""
        return summary(result, self.trace, self.judge, self.config.seed)


def move_cost(total_s: float) -> MoveCost:
    """What moving a job costs when it is ``total_s`` in all, parted as in the paper's testbed."""
    usual = MoveCost()
    part = total_s / (usual.checkpoint_s + usual.start_s)
    return MoveCost(usual.checkpoint_s * part, usual.start_s * part)


def without_move_costs(sim: SimCluster) -> SimCluster:
    """The same cluster, with no model having a move cost of its own."""
    profiles = {name: replace(profile, move=None) for name, profile in sim.profiles.items()}
    return replace(sim, profiles=profiles)


def policy_names(text: str) -> list[str]:
    """``a,b`` as names; ``all`` for every policy there is.

    Raises:
        InvalidInputError: A name is unknown or stands twice, or there is none.
    """
    if text.strip() == "all":
        return list(POLICIES)
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise InvalidInputError(f"--policy names none; there are: {', '.join(POLICIES)}")
    for name in names:
        if name not in POLICIES:
            raise InvalidInputError(
                f"--policy: no policy {name!r}; there are: {', '.join(POLICIES)}, or all"
            )
        if names.count(name) > 1:
            raise InvalidInputError(f"--policy: {name!r} stands twice")
    return names


def fairness_knob(value: float) -> Fraction:
    """f, exactly as it was written (the ceiling of ``(1 - 0.7) * 10`` is 4 in floating point)."""
    return Fraction(str(value))


def run_all(
    study: Study, names: Sequence[str], told: Told | None = None
) -> list[tuple[RunResult, dict[str, Any]]]:
    """Run policies one after another; ``told`` is told of each app that finishes."""
    for name in names:
        study.policy(name)  # a wrong option is found before the first long run
    out = []
    for name in names:
        result = study.run(name, told)
        out.append((result, study.figures(result)))
    return out
