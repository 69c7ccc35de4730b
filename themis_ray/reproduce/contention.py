"""THEMIS, Figure 14: more contention."""

from __future__ import annotations

from collections.abc import Mapping

from themis_ray.reproduce.claims import changes_by, least
from themis_ray.reproduce.fairness import BASELINES, OWN_JUDGE, TESTBED
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
from themis_ray.sim.judges import Judge


def _runs(sizes: Sizes, seed: int) -> Mapping[str, Run]:
    return {
        f"{name}/{contention}x": Run(TESTBED, sizes.w1(contention), name, seed=seed)
        for name in COMPARED
        for contention in sizes.contentions
    }


def table_of_max_r(outcomes: Outcomes, judge: Judge = "paper") -> dict[str, dict[str, float]]:
    """Labels of the form ``row/column``, as a table of the greatest r."""
    out: dict[str, dict[str, float]] = {}
    for label, outcome in outcomes.items():
        row, column = label.split("/")
        out.setdefault(row, {})[column] = outcome.max_r(judge)
    return out


def _values(outcomes: Outcomes) -> Values:
    return table_of_max_r(outcomes)


FIGURES = (
    Figure(
        name="themis-fig-14",
        title="Figure 14: max r at 1x, 2x and 4x contention, Workload 1",
        setup=lambda sizes: (
            "The paper halves and quarters its cluster; here apps arrive two and four times as "
            "fast, on the same cluster. r by the paper's judge."
        ),
        runs=_runs,
        values=_values,
        claims=(
            Claim(
                "At 4x, Themis as published has the lowest max r of the paper's schemes.",
                least("themis-paper", "4x", BASELINES),
                OWN_JUDGE,
            ),
            Claim(
                "Its max r hardly changes from 1x to 4x (by at most 20 %).",
                changes_by("themis-paper", "1x", "4x", 0.20),
                "At 1x the cluster here is often half empty, and r by the paper's judge is then "
                "set by how few GPUs a small app can use, not by the policy.",
            ),
            Claim(
                "Our default, `themis`, is at or below Themis as published at 4x.",
                least("themis", "4x", ("themis-paper",)),
                "`themis` reckons with the exclusive T_id, not with the one that judges here.",
            ),
        ),
        published=published("themis-fig-14"),
        headline=headline("themis-fig-14"),
        unit="max r",
        chart="lines",
    ),
)
