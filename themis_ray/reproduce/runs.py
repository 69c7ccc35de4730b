"""One simulated run: what goes into it, as a value that can be hashed, stored and sent."""

from __future__ import annotations

import hashlib
import json
import math
import time
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from themis_ray.core.policies import POLICIES, Policy, make_policy
from themis_ray.core.settings import ArbiterConfig, default_grid_s
from themis_ray.errors import InvalidInputError, ThemisError
from themis_ray.reproduce.outcome import Outcome, outcome_of
from themis_ray.sim.cluster_file import MoveCost, SimCluster, load_cluster, parse_cluster
from themis_ray.sim.generate import generate, is_spec
from themis_ray.sim.jobs import Trace
from themis_ray.sim.settings import SimConfig
from themis_ray.sim.study import Study, move_cost, without_move_costs
from themis_ray.sim.traces import load_trace

CLUSTERS = Path(__file__).parent / "clusters"
# THEMIS, section 8.6: one machine of 8 GPUs, which everybody prefers, and 28 of 2.
ONE_LARGE: dict[str, Any] = {
    "name": "one-large-64",
    "machines": [
        {"count": 1, "gpus": 8, "slots": 1, "rack": "r0"},
        {"count": 28, "gpus": 2, "slots": 1, "rack": "r0"},
    ],
    "models": {"vgg16": {"slot": 1, "machine": 1, "rack": 1.29, "cluster": 1.52}},
}
# So many GPUs in machines of 4, each with 2 slots, 8 machines a rack; models as on the testbed.
FOURS = "fours-"
MACHINES_A_RACK = 8
# The service of earlier jobs is told to tiresias-g as so many quantiles.
SERVICES = 100

Plain = str | int | float | bool | tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """A workload on a cluster under a policy.

    Attributes:
        cluster: One of the simulated clusters that come with the package, or :func:`fours`.
        trace: A generated workload without its seed, as in ``w1:contention=2``; or a file.
        policy: The policy's name.
        options: The policy's options that are not at their defaults; a fraction as text, ``4/5``.
        seed: Seeds the workload, the policy and the simulation.
        lease_s: The length of a lease.
        restart_s: What moving a job costs, for every model; None for what the cluster says.
        error: Apps misjudge their work by up to this fraction.
        lies: (app, factor): who misreports its work, and by which factor.
        ideal: The T_id that apps report: ``auto`` for each policy's own.
        first: Only so many apps of the trace, the first that fit on the cluster; 0 for all.
        skip: With ``first``: leave out so many apps before those.
    """

    cluster: str
    trace: str
    policy: str
    options: tuple[tuple[str, Plain], ...] = ()
    seed: int = 0
    lease_s: float = 600.0
    restart_s: float | None = None
    error: float = 0.0
    lies: tuple[tuple[str, float], ...] = ()
    ideal: str = "auto"
    first: int = 0
    skip: int = 0

    @property
    def title(self) -> str:
        """For progress bars and messages."""
        trace = self.trace if is_spec(self.trace) else Path(self.trace).name
        return f"{self.policy} on {trace}, seed {self.seed}"

    def key(self, code: str) -> str:
        """Names the outcome: equal for equal inputs and equal code.

        Args:
            code: The version of the code, see :mod:`themis_ray.reproduce.code_version`.
        """
        inputs = asdict(self)
        if not is_spec(self.trace):
            inputs["trace"] = _digest(_bytes_of(self.trace))
        if self.cluster != ONE_LARGE["name"]:
            name = "testbed-64" if self.cluster.startswith(FOURS) else self.cluster
            inputs["cluster_file"] = _digest(_bytes_of(str(_cluster_file(name))))
        return _digest((code + json.dumps(inputs, sort_keys=True)).encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _bytes_of(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise InvalidInputError(f"{file}: {(error.strerror or str(error)).lower()}") from error


def _cluster_file(name: str) -> Path:
    return CLUSTERS / f"{name}.yaml"


@cache
def cluster_of(name: str) -> SimCluster:
    """A cluster by name."""
    if name == ONE_LARGE["name"]:
        return parse_cluster(ONE_LARGE, name, name)
    if name.startswith(FOURS):
        machines = int(name.removeprefix(FOURS)) // 4
        entries = [
            {"count": min(MACHINES_A_RACK, machines - i), "gpus": 4, "slots": 2, "rack": f"r{i}"}
            for i in range(0, machines, MACHINES_A_RACK)
        ]
        made = parse_cluster({"name": name, "machines": entries}, name, name)
        return replace(made, profiles=cluster_of("testbed-64").profiles)
    return load_cluster(_cluster_file(name))


def fours(gpus: float) -> str:
    """The cluster of at least so many GPUs that has nothing but machines of 4."""
    return f"{FOURS}{max(1, math.ceil(gpus / 4)) * 4}"


def trace_of(run: Run) -> Trace:
    """The workload of a run."""
    if not is_spec(run.trace):
        trace = load_trace(run.trace)
    else:
        separator = "," if ":" in run.trace else ":"
        trace = generate(f"{run.trace}{separator}seed={run.seed}")
    if not run.first:
        return trace
    gpus = cluster_of(run.cluster).cluster.gpus
    fit = (app for app in trace.apps[run.skip :] if gpus >= max(job.min_gpus for job in app.jobs))
    return replace(trace, apps=tuple(islice(fit, run.first)))


def policy_of(run: Run, trace: Trace) -> Policy:
    """The policy of a run, with its options.

    Raises:
        ConfigError: The policy takes no such option, or not with this value.
    """
    takes = options_of(run.policy)
    options: dict[str, Any] = {"seed": run.seed} if "seed" in takes else {}
    if "services" in takes:
        options["services"] = services_of(trace)
    for name, value in run.options:
        exact = isinstance(takes.get(name), Fraction)
        options[name] = Fraction(str(value)) if exact else value
    return make_policy(run.policy, **options)


def options_of(policy: str) -> dict[str, Any]:
    """The options that a policy takes, with their defaults."""
    kind: Any = POLICIES.get(policy)
    return {field.name: field.default for field in fields(kind)} if is_dataclass(kind) else {}


def services_of(trace: Trace) -> tuple[float, ...]:
    """The distribution of the jobs' GPU-seconds: what a log of earlier, like jobs would tell."""
    works = sorted(job.work_gpu_s for app in trace.apps for job in app.jobs)
    step = max(1.0, len(works) / SERVICES)
    picked = [works[int((i + 0.5) * step)] for i in range(min(len(works), SERVICES))]
    return tuple(sorted(set(picked)))


def study_of(run: Run, trace: Trace) -> Study:
    """The cluster, the workload and the assumptions of a run."""
    sim, move = cluster_of(run.cluster), MoveCost()
    if run.restart_s is not None:
        sim, move = without_move_costs(sim), move_cost(run.restart_s)
    config = SimConfig(
        arbiter=ArbiterConfig(
            lease_s=run.lease_s,
            notice_s=min(10.0, run.lease_s / 10),
            min_lease_s=min(60.0, run.lease_s / 10),
            lease_grid_s=default_grid_s(run.lease_s),
        ),
        ideal="paper" if run.ideal == "paper" else "exclusive",
        move=move,
        seed=run.seed,
        error=run.error,
        lies=dict(run.lies),
        record=True,
    )
    return Study(sim, trace, config, same_ideal=run.ideal != "auto")


def execute(run: Run) -> Outcome:
    """Simulate.

    Returns:
        The outcome; one with an error when the simulation got stuck.

    Raises:
        InvalidInputError: The run cannot be had: no such trace, cluster, policy or option.
    """
    began = time.process_time()
    trace = trace_of(run)
    study = study_of(run, trace)
    policy = policy_of(run, trace)
    try:
        result = study.run_policy(policy)
    except InvalidInputError:
        raise
    except ThemisError as error:
        return Outcome({"error": str(error), "seconds": time.process_time() - began})
    document = outcome_of(result, trace, run.seed)
    document["seconds"] = time.process_time() - began
    return Outcome(document)
