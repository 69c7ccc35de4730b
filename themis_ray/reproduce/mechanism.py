"""Which mechanism is fairest: all policies on both workloads, at all contentions, by all judges."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from themis_ray.core.policies import POLICIES
from themis_ray.reproduce.claims import least
from themis_ray.reproduce.fairness import TESTBED
from themis_ray.reproduce.figure import Claim, Figure, Outcomes, Values
from themis_ray.reproduce.outcome import Outcome
from themis_ray.reproduce.runs import Run
from themis_ray.reproduce.sizes import Sizes

# The bar, by an earlier study: plain fair share.
FAIR_SHARE = "drf"
MAX_FLUID = "max r, fluid"
GPU_HOURS = "GPU-hours"


def mechanism_columns(outcome: Outcome) -> dict[str, float]:
    """What mechanisms are judged by."""
    return {
        MAX_FLUID: outcome.max_r("fluid"),
        "exclusive": outcome.max_r("exclusive"),
        "paper": outcome.max_r("paper"),
        "p99 r, fluid": outcome.r_at("fluid", 99),
        "median r, fluid": outcome.r_at("fluid", 50),
        GPU_HOURS: outcome.figure("gpu_hours"),
        "mean JCT (h)": outcome.figure("avg_jct_s") / 3600,
    }


def mechanism_values(outcomes: Outcomes) -> Values:
    """A row of those for each policy."""
    return {name: mechanism_columns(outcome) for name, outcome in outcomes.items()}


CLAIMS = (
    Claim(
        "`themis` has the lowest max r (fluid) of all policies (within 1 %).",
        least("themis", MAX_FLUID, slack=0.01),
        "See the table for what is fairer here; no mechanism is fairest in every cell.",
    ),
    Claim(
        "`themis` is at or below plain fair share (`drf`).",
        least("themis", MAX_FLUID, (FAIR_SHARE,), slack=0.001),
        "Whole leases and restarts cost the auction more here than its order brings.",
    ),
    Claim(
        "It needs no more GPU time than fair share (within 1 %).",
        least("themis", GPU_HOURS, (FAIR_SHARE,), slack=0.01),
        "It moves jobs more often than fair share does.",
    ),
)


def _runs(workload: str, contention: int) -> Callable[[Sizes, int], Mapping[str, Run]]:
    def runs(sizes: Sizes, seed: int) -> Mapping[str, Run]:
        spec = sizes.w1(contention) if workload == "w1" else sizes.w2(contention)
        return {name: Run(TESTBED, spec, name, seed=seed) for name in POLICIES}

    return runs


def _figure(workload: str, contention: int) -> Figure:
    number = workload.removeprefix("w")
    return Figure(
        name=f"mechanism-{workload}-{contention}x",
        title=f"All policies, Workload {number}, {contention}x contention",
        setup=lambda sizes: (
            "The testbed of 64 GPUs, 10-minute leases, 45 s to move a job; every policy at its "
            "defaults. `themis-paper` and `strawman` reckon with the paper's T_id, the others with "
            "the exclusive one."
        ),
        runs=_runs(workload, contention),
        values=mechanism_values,
        claims=CLAIMS,
    )


FIGURES = tuple(
    _figure(workload, contention) for workload in ("w1", "w2") for contention in (1, 2, 4)
)
