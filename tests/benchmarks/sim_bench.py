"""How fast the simulator is: ``python tests/benchmarks/sim_bench.py [--quick] [--jobs N]``.

The target is 100,000 jobs in 10 minutes on one core; ``--jobs 100000`` runs them all. Cost per job
grows with the apps that are present at a time and with the leases that a job lives through, so each
line says both. ``cpu`` is this process's processor time. Memory is to grow with the apps present,
not with the trace: the last column is the peak of what a run allocates beyond the trace itself, per
app of the trace.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from dataclasses import dataclass
from pathlib import Path

from headlines import headline

from themis_ray.sim.cluster_file import load_cluster
from themis_ray.sim.driver import Simulation
from themis_ray.sim.generate import generate
from themis_ray.sim.study import Study

TARGET_JOBS, TARGET_S = 100_000, 600.0
CLUSTER = Path(__file__).parents[2] / "clusters" / "simulated" / "testbed-64.yaml"


@dataclass(frozen=True, slots=True)
class Case:
    """A workload and a policy; ``share`` of the jobs asked for are run."""

    policy: str
    spec: str
    jobs_per_app: float
    share: float
    has_target: bool = False


CASES = (
    Case("best-effort", "philly:apps={apps},length=0.02,load=0.7,max_gpus=8", 1, 1, True),
    Case("tiresias-l", "philly:apps={apps},length=0.02,load=0.7,max_gpus=8", 1, 0.1, True),
    Case("drf", "philly:apps={apps},length=0.02,load=0.7,max_gpus=8", 1, 0.1, True),
    Case("srsf", "philly:apps={apps},length=0.02,load=0.7,max_gpus=8", 1, 0.05, True),
    Case("best-effort", "w1:apps={apps},length=0.05", 45, 0.1),
    Case("themis", "philly:apps={apps},length=0.02,load=0.7,max_gpus=8", 1, 0.01),
)


def run(case: Case, jobs: int) -> None:
    """Run a case and print its line."""
    apps = max(60, int(jobs * case.share / case.jobs_per_app))
    spec = case.spec.format(apps=apps)
    trace = generate(spec)
    study = Study(load_cluster(CLUSTER), trace)
    simulation = Simulation(study.cluster, trace, study.policy(case.policy), study.config)
    started = time.process_time()
    result = simulation.run()
    cpu_s = time.process_time() - started
    present = sum(record.jct_s for record in result.apps) / max(a.finish_s for a in result.apps)
    all_s = cpu_s / trace.jobs * TARGET_JOBS
    print(
        f"{case.policy:12} {trace.jobs:7} jobs {present:6.1f} apps at a time {result.rounds:7} "
        f"rounds {cpu_s:7.1f} s cpu; {TARGET_JOBS} jobs: {all_s:6.0f} s, "
        f"{TARGET_S / all_s:5.2f} of the target's speed"
    )
    headline(
        f"{case.policy} on {case.spec.partition(':')[0]}, {TARGET_JOBS:,} jobs at this rate",
        f"{all_s:.0f} s cpu",
        f"{TARGET_S:g} s" if case.has_target else "",
        all_s <= TARGET_S if case.has_target else None,
    )


def memory(apps: int) -> None:
    """Print the peak of a run's own memory, for a trace and one of twice its length."""
    study = Study(load_cluster(CLUSTER), generate("philly:apps=10"))
    for count in (apps, 2 * apps):
        trace = generate(f"philly:apps={count},length=0.02,load=0.7,max_gpus=8")
        simulation = Simulation(study.cluster, trace, study.policy("best-effort"))
        tracemalloc.start()
        simulation.run()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        print(f"memory: {count} apps, peak {peak / 1e6:.1f} MB, {peak / count:.0f} bytes an app")


def main() -> None:
    """Run all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few jobs")
    parser.add_argument("--jobs", type=int, help="20,000 by default, with --quick 1,000")
    asked = parser.parse_args()
    jobs = asked.jobs or (1_000 if asked.quick else 20_000)
    for case in CASES:
        run(case, jobs)
    memory(500 if asked.quick else 2000)


if __name__ == "__main__":
    main()
