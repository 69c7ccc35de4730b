"""What a figure is: a description, from which everything else follows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from themis_ray.reproduce.outcome import Outcome
from themis_ray.reproduce.runs import Run
from themis_ray.reproduce.sizes import Sizes

# Row -> column -> value.
Values = Mapping[str, Mapping[str, float]]
Outcomes = Mapping[str, Outcome]

# The paper's name of each scheme -> the policy that stands for it. Its Tiresias knows nothing of
# the jobs beforehand.
SCHEMES: Mapping[str, str] = {
    "Themis": "themis-paper",
    "Gandiva": "gandiva",
    "SLAQ": "slaq",
    "Tiresias": "tiresias-l",
    "SRTF": "srtf",
    "SRSF": "srsf",
    "Optimus": "optimus",
}
# What is compared with the paper's schemes: they, and our default.
COMPARED = ("themis", *SCHEMES.values())


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a claim holds for given values (None: they do not differ), and those values."""

    holds: bool | None
    evidence: str


@dataclass(frozen=True, slots=True)
class Claim:
    """What should hold.

    Attributes:
        text: The claim.
        check: Judges our values; a KeyError means that a value is missing.
        otherwise: Why it may not hold here.
    """

    text: str
    check: Callable[[Values], Verdict]
    otherwise: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure or table.

    Attributes:
        name: On the command line.
        title: What it shows.
        setup: What is run, and how that differs from the paper.
        runs: The runs that it needs for a seed, by labels of its own.
        values: Its values, from the outcomes of those runs.
        claims: What should hold.
        published: What was published, rows and columns named as ours.
        headline: What the paper's text says, where its own plot differs.
        unit: What the values are.
        digits: How many of them are printed.
        chart: ``bars`` (a group of bars for each column), ``lines`` (a line for each row), or
            ``none``.
        lead_seed_only: One seed, since nothing in it is random or its runs take too long for more.
    """

    name: str
    title: str
    setup: Callable[[Sizes], str]
    runs: Callable[[Sizes, int], Mapping[str, Run]]
    values: Callable[[Outcomes], Values]
    claims: tuple[Claim, ...] = ()
    published: Values = field(default_factory=dict)
    headline: str = ""
    unit: str = ""
    digits: int = 2
    chart: Literal["bars", "lines", "none"] = "bars"
    lead_seed_only: bool = False


@cache
def _published(paper: str) -> dict[str, Any]:
    text = files("themis_ray.reproduce").joinpath("published", f"{paper}.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


def published_source(paper: str) -> str:
    """Where the published values are from."""
    return str(_published(paper)["source"])


def published(name: str) -> Values:
    """The published values of a figure, schemes under the names of their policies."""
    values: Values = _published(name.split("-")[0])["figures"][name]["values"]
    return {SCHEMES.get(row, row): columns for row, columns in values.items()}


def headline(name: str) -> str:
    """What the paper's text says of a figure."""
    return str(_published(name.split("-")[0])["figures"][name]["headline"])
