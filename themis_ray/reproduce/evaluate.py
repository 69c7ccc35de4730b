"""From outcomes to a figure's table and verdicts, over several seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from themis_ray.reproduce.figure import Claim, Figure, Values
from themis_ray.reproduce.outcome import Outcome
from themis_ray.reproduce.runs import Run
from themis_ray.reproduce.sizes import Sizes


@dataclass(frozen=True, slots=True)
class Cell:
    """A value.

    Attributes:
        ours: Ours, of each seed.
        published: The paper's, if it is known.
    """

    ours: tuple[float, ...]
    published: float | None

    @property
    def mean(self) -> float:
        """The mean of ours."""
        return fmean(self.ours)

    @property
    def deviation(self) -> float | None:
        """The standard deviation of ours over the seeds, if there are several."""
        return stdev(self.ours) if len(self.ours) > 1 else None


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim, judged.

    Attributes:
        text: The claim.
        holds: Whether it holds for the means over the seeds; None when values are missing or
            level.
        evidence: The values that say so.
        seeds: In how many seeds it holds, taken by themselves.
        of: Out of how many.
        because: Why it may not hold; empty when it does.
    """

    text: str
    holds: bool | None
    evidence: str
    seeds: int
    of: int
    because: str


@dataclass(frozen=True, slots=True)
class Result:
    """A figure, worked out.

    Attributes:
        figure: Its description.
        setup: What was run.
        cells: Row -> column -> cell.
        claims: Its claims, judged.
        errors: Runs that got stuck, and why.
    """

    figure: Figure
    setup: str
    cells: Mapping[str, Mapping[str, Cell]]
    claims: tuple[Judged, ...]
    errors: tuple[str, ...]

    @property
    def columns(self) -> list[str]:
        """All columns, in order."""
        return list(dict.fromkeys(column for row in self.cells.values() for column in row))

    def document(self) -> dict[str, Any]:
        """What ``--json`` prints of it."""
        return {
            "title": self.figure.title,
            "setup": self.setup,
            "unit": self.figure.unit,
            "values": {
                row: {
                    column: {
                        "mean": _rounded(cell.mean),
                        "deviation": _rounded(cell.deviation),
                        "seeds": [_rounded(value) for value in cell.ours],
                        "published": cell.published,
                    }
                    for column, cell in cells.items()
                }
                for row, cells in self.cells.items()
            },
            "claims": [
                {
                    "claim": claim.text,
                    "holds": claim.holds,
                    "evidence": claim.evidence,
                    "seeds_holding": claim.seeds,
                    "seeds": claim.of,
                    "because": claim.because,
                }
                for claim in self.claims
            ],
            "errors": list(self.errors),
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def seeds_of(figure: Figure, seeds: int) -> range:
    """The seeds that a figure is run with."""
    return range(1 if figure.lead_seed_only else seeds)


def runs_of(figures: Sequence[Figure], sizes: Sizes, seeds: int) -> list[Run]:
    """All runs of some figures, each one once."""
    asked = (
        run
        for figure in figures
        for seed in seeds_of(figure, seeds)
        for run in figure.runs(sizes, seed).values()
    )
    return list(dict.fromkeys(asked))


def evaluate(figure: Figure, sizes: Sizes, seeds: int, outcomes: Mapping[Run, Outcome]) -> Result:
    """Work out a figure."""
    tables: list[Values] = []
    errors: list[str] = []
    for seed in seeds_of(figure, seeds):
        usable = {}
        for label, run in figure.runs(sizes, seed).items():
            error = outcomes[run].error
            if error is None:
                usable[label] = outcomes[run]
            else:
                errors.append(f"{run.title}: {error}")
        try:
            tables.append(figure.values(usable))
        except KeyError as missing:
            errors.append(f"seed {seed}: no values without {missing.args[0]}")
    cells = _cells(tables, figure.published)
    means = {row: {c: cell.mean for c, cell in columns.items()} for row, columns in cells.items()}
    return Result(
        figure,
        figure.setup(sizes),
        cells,
        tuple(_judge(claim, means, tables) for claim in figure.claims),
        tuple(errors),
    )


def _cells(tables: Sequence[Values], published: Values) -> dict[str, dict[str, Cell]]:
    ours: dict[str, dict[str, list[float]]] = {}
    for table in tables:
        for row, columns in table.items():
            for column, value in columns.items():
                ours.setdefault(row, {}).setdefault(column, []).append(value)
    return {
        row: {
            column: Cell(tuple(values), published.get(row, {}).get(column))
            for column, values in columns.items()
        }
        for row, columns in ours.items()
    }


def _judge(claim: Claim, means: Values, tables: Sequence[Values]) -> Judged:
    try:
        verdict = claim.check(means)
        each = [claim.check(table).holds is True for table in tables]
    except (KeyError, ValueError):  # a row or column is missing, or all of them
        return Judged(claim.text, None, "not run at this size", 0, len(tables), "")
    return Judged(
        claim.text,
        verdict.holds,
        verdict.evidence,
        sum(each),
        len(each),
        claim.otherwise if verdict.holds is False else "",
    )
