"""Tiresias (NSDI '19), section 6.4: queues, thresholds and PROMOTEKNOB."""

from __future__ import annotations

import math
from collections.abc import Mapping

from themis_ray.reproduce.claims import at_most, below, changes_by
from themis_ray.reproduce.figure import Claim, Figure, Outcomes, Values, headline, published
from themis_ray.reproduce.runs import Plain, Run
from themis_ray.reproduce.sizes import Sizes
from themis_ray.reproduce.tiresias import TESTBED

VARIANTS = ("tiresias-l", "tiresias-g")
HOUR_GPU_S = 3600.0
# K queues: each threshold four times the one before.
QUEUES = {
    "K=2": (HOUR_GPU_S,),
    "K=3": (HOUR_GPU_S, 4 * HOUR_GPU_S),
    "K=4": (HOUR_GPU_S, 4 * HOUR_GPU_S, 16 * HOUR_GPU_S),
    "0.5 h": (0.5 * HOUR_GPU_S,),
    "2 h": (2 * HOUR_GPU_S,),
    "4 h": (4 * HOUR_GPU_S,),
}
KNOBS = {"never": math.inf, "8": 8.0, "4": 4.0, "2": 2.0, "1": 1.0}


def _run(sizes: Sizes, seed: int, policy: str, option: str, value: Plain) -> Run:
    trace = sizes.philly
    return Run(TESTBED, trace, policy, options=((option, value),), seed=seed, restart_s=0.0)


def _queue_runs(sizes: Sizes, seed: int) -> Mapping[str, Run]:
    return {
        f"{name}/{label}": _run(sizes, seed, name, "thresholds", thresholds)
        for name in VARIANTS
        for label, thresholds in QUEUES.items()
    }


def _queue_values(outcomes: Outcomes) -> Values:
    return {
        name: {
            label: outcomes[f"{name}/{label}"].figure("avg_jct_s")
            / outcomes[f"{name}/K=2"].figure("avg_jct_s")
            for label in QUEUES
        }
        for name in VARIANTS
    }


def _promote_runs(sizes: Sizes, seed: int) -> Mapping[str, Run]:
    return {
        f"{name}/{label}": _run(sizes, seed, name, "promote_knob", knob)
        for name in VARIANTS
        for label, knob in KNOBS.items()
    }


def _promote_values(outcomes: Outcomes) -> Values:
    out: dict[str, dict[str, float]] = {}
    for name in VARIANTS:
        never = outcomes[f"{name}/never"]
        for label in KNOBS:
            outcome = outcomes[f"{name}/{label}"]
            longest = max(app["jct_s"] for app in outcome.apps)
            base = max(app["jct_s"] for app in never.apps)
            out.setdefault(f"{name}, longest", {})[label] = longest / base
            p95 = outcome.figure("p95_jct_s") / never.figure("p95_jct_s")
            out.setdefault(f"{name}, p95", {})[label] = p95
            mean = outcome.figure("avg_jct_s") / never.figure("avg_jct_s")
            out.setdefault(f"{name}, average", {})[label] = mean
    return out


HEAVY_TAIL = (
    "One job of the trace's tail can run for weeks; with so few jobs, where it stands in the queue "
    "decides."
)

FIGURES = (
    Figure(
        name="tiresias-queues",
        title="Tiresias, section 6.4: number of queues and threshold",
        setup=lambda sizes: (
            f"The {sizes.philly_apps} jobs of Table 5, one seed; average completion time against "
            "K = 2 with its threshold at 1 GPU-hour. Each further threshold is four times the one "
            "before."
        ),
        runs=_queue_runs,
        values=_queue_values,
        claims=(
            Claim(
                "Two more queues change the average of Tiresias-L by at most 10 %.",
                changes_by("tiresias-l", "K=2", "K=4", 0.10),
                HEAVY_TAIL,
            ),
            Claim(
                "So does a threshold of 4 GPU-hours in place of 1.",
                changes_by("tiresias-l", "K=2", "4 h", 0.10),
                HEAVY_TAIL,
            ),
        ),
        published=published("tiresias-queues"),
        headline=headline("tiresias-queues"),
        unit="times K = 2",
        chart="lines",
        lead_seed_only=True,
    ),
    Figure(
        name="tiresias-promote",
        title="Tiresias, section 6.4: PROMOTEKNOB",
        setup=lambda sizes: (
            f"The {sizes.philly_apps} jobs of Table 5, one seed; completion times against those "
            "without promotion."
        ),
        runs=_promote_runs,
        values=_promote_values,
        claims=(
            Claim(
                "Promotion shortens the longest completion time of Tiresias-G.",
                below(("tiresias-g, longest", "8"), ("tiresias-g, longest", "never")),
                HEAVY_TAIL,
            ),
            Claim(
                "Promotion does not lengthen the 95th percentile of Tiresias-L.",
                at_most("tiresias-l, p95", "8", 1.0),
                HEAVY_TAIL,
            ),
            Claim(
                "The knob's value hardly matters for the average (8 against 1, 10 %).",
                changes_by("tiresias-l, average", "8", "1", 0.10),
                "A low knob promotes long jobs again and again, ahead of short ones.",
            ),
        ),
        published=published("tiresias-promote"),
        headline=headline("tiresias-promote"),
        unit="times never",
        chart="lines",
        lead_seed_only=True,
    ),
)
