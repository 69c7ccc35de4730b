"""The page: ``docs/reproduction.md``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from themis_ray.reproduce.evaluate import Cell, Judged, Result
from themis_ray.reproduce.figure import published_source
from themis_ray.reproduce.sizes import Sizes

PARTS = (
    ("themis-", "THEMIS (NSDI '20)"),
    ("tiresias-", "Tiresias (NSDI '19)"),
    ("mechanism-", "Which mechanism is fairest"),
    ("traces-", "On traces of others"),
    ("ablation-", "What each option of `themis` brings"),
)
WORDS = {True: "holds", False: "does not hold", None: "not judged"}


@dataclass(frozen=True, slots=True)
class Study:
    """What was asked for, and what came of it.

    Attributes:
        command: How to get the page.
        sizes: Sizes of the workloads.
        seeds: How many seeds.
        results: The figures.
        notes: What was left out, and why.
        plots: The file with the plots, relative to the page; empty for none.
    """

    command: str
    sizes: Sizes
    seeds: int
    results: Sequence[Result]
    notes: Sequence[str] = ()
    plots: str = ""


def render(study: Study) -> str:
    """The page as Markdown."""
    return "\n".join(_lines(study)) + "\n"


def _lines(study: Study) -> Iterator[str]:
    yield "# The papers' evaluations, simulated anew"
    yield ""
    yield f"Written by `{study.command}`. Do not edit; run it again."
    yield ""
    yield (
        "Every number is a run of the simulator, which drives the same arbiter and policies as "
        "a live cluster. In the tables: our value, ± the standard deviation over the seeds, and "
        "the published value in [brackets] where there is one. The row `themis-paper` is the "
        "mechanism as THEMIS prints it; `themis` is this package's default, which the paper does "
        "not have. Claims are judged on the means; in how many single seeds they hold is said."
    )
    yield ""
    seeds = "1 seed" if study.seeds == 1 else f"{study.seeds} seeds"
    yield f"Size `{study.sizes.name}`, {seeds}. {study.sizes.said}"
    if study.sizes.name == "quick":
        yield ""
        yield (
            "**This is the quick size, a trial of the machinery**: its workloads are so small that "
            "apps hardly meet, and most policies come out level. Nothing follows from it."
        )
    yield ""
    yield (
        "The papers' traces are not public. The workloads are drawn from the distributions that "
        "THEMIS plots (tasks, jobs per app, GPUs per job, models) and that Tiresias lists; "
        "arrivals are Poisson at a load of one. So orders and trends can be compared, absolute "
        "values hardly."
    )
    yield ""
    yield "Published values:"
    yield ""
    yield f"- {published_source('themis')}"
    yield f"- {published_source('tiresias')}"
    for note in study.notes:
        yield ""
        yield f"Left out: {note}"
    if study.plots:
        yield ""
        yield f"The plots are in [{study.plots}]({study.plots}), one page that needs no network."
    yield ""
    yield from _overview(study.results)
    for prefix, title in PARTS:
        part = [result for result in study.results if result.figure.name.startswith(prefix)]
        if part:
            yield f"## {title}"
            yield ""
            for result in part:
                yield from _section(result)


def _overview(results: Sequence[Result]) -> Iterator[str]:
    yield "## At a glance"
    yield ""
    yield "| figure | claims that hold | those that do not |"
    yield "|---|---|---|"
    for result in results:
        judged = [claim for claim in result.claims if claim.holds is not None]
        failed = [claim.text for claim in judged if not claim.holds]
        yield (
            f"| [{result.figure.title}](#{result.figure.name}) "
            f"| {len(judged) - len(failed)} of {len(judged)} | {' '.join(failed)} |"
        )
    yield ""


def _section(result: Result) -> Iterator[str]:
    yield f'### <a id="{result.figure.name}"></a>{result.figure.title}'
    yield ""
    yield result.setup
    yield ""
    yield from _table(result)
    for claim in result.claims:
        yield _claim(claim)
    if result.figure.headline:
        yield f"- *The paper's text.* {result.figure.headline}"
    for error in result.errors:
        yield f"- **A run failed.** {error}"
    yield ""


def _table(result: Result) -> Iterator[str]:
    columns = result.columns
    yield f"| {result.figure.unit} | " + " | ".join(columns) + " |"
    yield "|---|" + "---:|" * len(columns)
    for row, cells in result.cells.items():
        texts = [
            cell_text(cells[column], result.figure.digits) if column in cells else ""
            for column in columns
        ]
        yield f"| {row} | " + " | ".join(texts) + " |"
    yield ""


def cell_text(cell: Cell, digits: int) -> str:
    """A cell: ``1.34 ± 0.05 [1.22]``."""
    text = f"{cell.mean:,.{digits}f}"
    if cell.deviation is not None:
        text += f" ± {cell.deviation:,.{digits}f}"
    if cell.published is not None:
        text += f" [{cell.published:g}]"
    return text


def _claim(claim: Judged) -> str:
    line = f"- {claim.text} **{WORDS[claim.holds].capitalize()}**: {claim.evidence}"
    if claim.of > 1 and claim.holds is not None:
        line += f" ({claim.seeds} of {claim.of} seeds)"
    line += "."
    return f"{line} {claim.because}" if claim.because else line
