"""THEMIS, Figures 15 and 16: from no network-intensive app to nothing else."""

from __future__ import annotations

from collections.abc import Mapping

from themis_ray.reproduce.claims import below, least, peaks_inside
from themis_ray.reproduce.contention import table_of_max_r
from themis_ray.reproduce.fairness import BASELINES, OWN_JUDGE, PLACED_ALIKE
from themis_ray.reproduce.figure import (
    COMPARED,
    Claim,
    Figure,
    Outcomes,
    Values,
    headline,
    published,
)
from themis_ray.reproduce.runs import Run
from themis_ray.reproduce.sizes import Sizes

SIMULATOR = "paper-simulator-168"
GPUS = 168
SETUP = (
    "Apps as in Workload 2 on the paper's simulated cluster as its footnote lists it (168 GPUs; "
    "its text says 256). Network-intensive apps train VGG16, VGG19 or AlexNet, the others ResNet50 "
    "or Inception v3. The same arrivals and sizes for every share."
)


def _runs(sizes: Sizes, seed: int) -> Mapping[str, Run]:
    def trace(share: int) -> str:
        return f"w2:apps={sizes.sweep_apps},gpus={GPUS},{sizes.w2_scale},network={share / 100:g}"

    return {
        f"{name}/{share} %": Run(SIMULATOR, trace(share), name, seed=seed)
        for name in COMPARED
        for share in sizes.shares
    }


def _max_r(outcomes: Outcomes) -> Values:
    return table_of_max_r(outcomes)


def _gpu_hours(outcomes: Outcomes) -> Values:
    out: dict[str, dict[str, float]] = {}
    for label, outcome in outcomes.items():
        row, column = label.split("/")
        out.setdefault(row, {})[column] = outcome.figure("gpu_hours")
    return out


FIGURES = (
    Figure(
        name="themis-fig-15",
        title="Figure 15: max r by the share of network-intensive apps",
        setup=lambda sizes: SETUP + " r by the paper's judge.",
        runs=_runs,
        values=_max_r,
        claims=(
            Claim(
                "At 100 %, Themis as published has the lowest max r of the paper's schemes.",
                least("themis-paper", "100 %", BASELINES),
                OWN_JUDGE,
            ),
            Claim(
                "At 60 %, so does it among mixed workloads.",
                least("themis-paper", "60 %", BASELINES),
                OWN_JUDGE,
            ),
            Claim(
                "Mixed workloads are hardest: max r of Themis peaks inside.",
                peaks_inside("themis-paper"),
                "With S(G) as measured, an app that minds the network loses a third at worst, and "
                "the largest app's luck decides the greatest r.",
            ),
        ),
        published=published("themis-fig-15"),
        headline=headline("themis-fig-15"),
        unit="max r",
        chart="lines",
    ),
    Figure(
        name="themis-fig-16",
        title="Figure 16: GPU time by the share of network-intensive apps",
        setup=lambda sizes: SETUP,
        runs=_runs,
        values=_gpu_hours,
        claims=(
            Claim(
                "GPU time of Themis grows with the share.",
                below(("themis-paper", "0 %"), ("themis-paper", "100 %")),
                "Network-intensive apps that are well placed cost no more than others.",
            ),
            Claim(
                "At 100 %, Themis as published needs less than Gandiva.",
                below(("themis-paper", "100 %"), ("gandiva", "100 %")),
                PLACED_ALIKE,
            ),
        ),
        published=published("themis-fig-16"),
        headline=headline("themis-fig-16"),
        unit="GPU-hours",
        digits=0,
        chart="lines",
    ),
)
