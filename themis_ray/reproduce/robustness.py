"""THEMIS, Figures 17 and 18: wrong estimates and lies."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from themis_ray.reproduce.claims import Check, changes_by
from themis_ray.reproduce.contention import table_of_max_r
from themis_ray.reproduce.fairness import TESTBED
from themis_ray.reproduce.figure import (
    Claim,
    Figure,
    Outcomes,
    Values,
    Verdict,
    headline,
    published,
)
from themis_ray.reproduce.runs import Run
from themis_ray.reproduce.sizes import Sizes

ERRORS = (0, 5, 10, 20)
AUCTIONS = ("themis-paper", "themis")
LIAR = "a000"


def _error_runs(sizes: Sizes, seed: int) -> Mapping[str, Run]:
    return {
        f"{name}/{error} %": Run(TESTBED, sizes.w2(), name, seed=seed, error=error / 100)
        for name in AUCTIONS
        for error in ERRORS
    }


def _error_values(outcomes: Outcomes) -> Values:
    fluid = table_of_max_r(outcomes, "fluid")
    table: dict[str, dict[str, float]] = table_of_max_r(outcomes)
    return table | {f"{name}, fluid": columns for name, columns in fluid.items()}


def _lie_runs(sizes: Sizes, seed: int) -> Mapping[str, Run]:
    # Four times as long as the median task: the apps compete for a dozen leases or more.
    trace = f"alike:length={4 * sizes.length:g}"
    return {
        f"{name}/{lie} %": Run(
            "one-large-64",
            trace,
            name,
            seed=seed,
            lies=((LIAR, 1 + lie / 100),) if lie else (),
        )
        for name in AUCTIONS
        for lie in sizes.lies
    }


def _lie_values(outcomes: Outcomes) -> Values:
    out: dict[str, dict[str, float]] = {}
    for label, outcome in outcomes.items():
        name, column = label.split("/")
        honest = outcomes[f"{name}/0 %"]
        suffix = "" if name == "themis-paper" else f" ({name})"
        more = out.setdefault(f"liar's time, % more{suffix}", {})
        more[column] = 100 * (_liar_s(outcome.apps) / _liar_s(honest.apps) - 1)
        less = out.setdefault(f"others' time, % less{suffix}", {})
        less[column] = 100 * (1 - _others_s(outcome.apps) / _others_s(honest.apps))
    return out


def _liar_s(apps: list[dict[str, Any]]) -> float:
    return next(float(app["jct_s"]) for app in apps if app["id"] == LIAR)


def _others_s(apps: list[dict[str, Any]]) -> float:
    return fmean(app["jct_s"] for app in apps if app["id"] != LIAR)


def _no_gain(row: str, most: float) -> Check:
    def check(values: Values) -> Verdict:
        column = min(values[row], key=lambda column: values[row][column])
        gain = -values[row][column]
        return Verdict(gain <= most, f"the best lie is {column}, it ends {gain:.1f} % sooner")

    return check


def _harmless(row: str) -> Check:
    def check(values: Values) -> Verdict:
        column = min(values[row], key=lambda column: values[row][column])
        harm = -values[row][column]
        return Verdict(harm <= 1, f"at worst, at {column}, others end {harm:.1f} % later")

    return check


FIGURES = (
    Figure(
        name="themis-fig-17",
        title="Figure 17: max r when apps misjudge their work",
        setup=lambda sizes: (
            "Workload 2 on the testbed. Each app's estimate of its work left is off by a factor "
            "drawn once, evenly from 1 - X to 1 + X; the paper also draws one for S(G)."
        ),
        runs=_error_runs,
        values=_error_values,
        claims=(
            Claim(
                "Under Themis as published, max r changes by at most 15 % at X = 20 %.",
                changes_by("themis-paper", "0 %", "20 %", 0.15),
                "One app's r is the maximum, and it depends on which apps the errors favour.",
            ),
            Claim(
                "So it does under `themis`, by the fluid judge.",
                changes_by("themis, fluid", "0 %", "20 %", 0.15),
                "One app's r is the maximum, and it depends on which apps the errors favour.",
            ),
        ),
        published=published("themis-fig-17"),
        headline=headline("themis-fig-17"),
        unit="max r",
        chart="lines",
    ),
    Figure(
        name="themis-fig-18",
        title="Figure 18: one app of eight lies",
        setup=lambda sizes: (
            "Eight equal apps that mind placement, one machine of 8 GPUs and 28 of 2. One app "
            "reports X % more work left than it has, in every report and bid; in the paper it "
            "lies about S(G) of poor placements. Its time and the others' mean time, against the "
            "run without a lie."
        ),
        runs=_lie_runs,
        values=_lie_values,
        claims=(
            Claim(
                "Under Themis as published, no lie lets the liar end more than 1 % sooner.",
                _no_gain("liar's time, % more", 1.0),
                "Truthfulness is proved for divisible goods and values without time elapsed; with "
                "whole GPUs, rounding and rounds it is an empirical matter, and a lie about "
                "the work left also moves the liar's place in the filter.",
            ),
            Claim(
                "Nor under `themis`.",
                _no_gain("liar's time, % more (themis)", 1.0),
                "As above; and with a dozen leases the order in which equal apps have their turn "
                "at the large machine decides.",
            ),
            Claim(
                "The others are not worse off for it (by at most 1 %).",
                _harmless("others' time, % less"),
                "What the liar gains on the large machine, another app loses.",
            ),
        ),
        published=published("themis-fig-18"),
        headline=headline("themis-fig-18"),
        unit="%",
        digits=1,
        chart="lines",
    ),
)
