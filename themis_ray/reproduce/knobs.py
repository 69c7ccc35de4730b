"""THEMIS, Figure 19: the fairness knob f and the length of a lease."""

from __future__ import annotations

from collections.abc import Mapping

from themis_ray.reproduce.claims import below, bottom_at
from themis_ray.reproduce.contention import table_of_max_r
from themis_ray.reproduce.fairness import TESTBED
from themis_ray.reproduce.figure import Claim, Figure, Outcomes, Values, headline, published
from themis_ray.reproduce.runs import Run
from themis_ray.reproduce.sizes import Sizes

SETUP = (
    "Themis as published, on Workload 2 with {apps} apps at 2x contention on the testbed; the "
    "paper uses its simulator. With so few apps f = 0.8 leaves one to three bidders, so that 0.8 "
    "to 1 differ little."
)


def _runs(sizes: Sizes, seed: int) -> Mapping[str, Run]:
    trace = f"w2:apps={sizes.sweep_apps},{sizes.w2_scale},contention=2"
    return {
        f"lease {lease} min/f={knob:g}": Run(
            TESTBED,
            trace,
            "themis-paper",
            options=(("fairness_knob", f"{knob:g}"),),
            seed=seed,
            lease_s=60.0 * lease,
        )
        for lease in sizes.leases_min
        for knob in sizes.knobs
    }


def _max_r(outcomes: Outcomes) -> Values:
    return table_of_max_r(outcomes)


def _gpu_hours(outcomes: Outcomes) -> Values:
    out: dict[str, dict[str, float]] = {}
    for label, outcome in outcomes.items():
        row, column = label.split("/")
        out.setdefault(row, {})[column] = outcome.figure("gpu_hours")
    return out


def _setup(sizes: Sizes) -> str:
    return SETUP.format(apps=sizes.sweep_apps)


FIGURES = (
    Figure(
        name="themis-fig-19a",
        title="Figure 19a: max r by f and lease",
        setup=_setup,
        runs=_runs,
        values=_max_r,
        claims=(
            Claim(
                "With 10-minute leases, max r is lower at f = 0.8 than at f = 0.",
                below(("lease 10 min", "f=0.8"), ("lease 10 min", "f=0")),
                "An auction among everybody values a first GPU for an app without any above "
                "all else, which is fair already; the filter takes that away from those who wait.",
            ),
            Claim(
                "Max r is least near f = 0.8 (0.7 to 0.9).",
                bottom_at("lease 10 min", ("f=0.7", "f=0.8", "f=0.9")),
                "See the claim above: here the filter does not help.",
            ),
            Claim(
                "Shorter leases are fairer at f = 0.8 (5 against 40 minutes).",
                below(("lease 5 min", "f=0.8"), ("lease 40 min", "f=0.8")),
                "Each end of a lease may move a job, and a move costs 45 s.",
            ),
        ),
        published=published("themis-fig-19a"),
        headline=headline("themis-fig-19a"),
        unit="max r",
        chart="lines",
    ),
    Figure(
        name="themis-fig-19b",
        title="Figure 19b: GPU time by f and lease",
        setup=_setup,
        runs=_runs,
        values=_gpu_hours,
        claims=(
            Claim(
                "With 10-minute leases, GPU time is greater at f = 1 than at f = 0.",
                below(("lease 10 min", "f=0"), ("lease 10 min", "f=1")),
                "A lone bidder takes the best placement there is; with few apps that is enough.",
            ),
            Claim(
                "Shorter leases need more GPU time at f = 0.8 (5 against 40 minutes).",
                below(("lease 40 min", "f=0.8"), ("lease 5 min", "f=0.8")),
                "The effect is small in the paper's own plot, too (4 %).",
            ),
        ),
        published=published("themis-fig-19b"),
        headline=headline("themis-fig-19b"),
        unit="GPU-hours",
        digits=0,
        chart="lines",
    ),
)
