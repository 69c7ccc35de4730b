"""``themis reproduce``: the evaluations of THEMIS and Tiresias, simulated anew."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from themis_ray.cli.options import JsonOption
from themis_ray.cli.output import print_json, print_table
from themis_ray.errors import InvalidInputError
from themis_ray.reproduce.cache import Cache, default_folder
from themis_ray.reproduce.evaluate import Result, evaluate, runs_of
from themis_ray.reproduce.figure import Figure
from themis_ray.reproduce.outcome import Outcome
from themis_ray.reproduce.page import WORDS, Study, cell_text, render
from themis_ray.reproduce.registry import FIGURES, figures_of_traces, select
from themis_ray.reproduce.runner import do_runs
from themis_ray.reproduce.runs import Run
from themis_ray.reproduce.sizes import SIZES, Sizes

SEEDS = 3
NO_TRACES = "figures on traces of others; name their folder with --traces DIR."


def reproduce(
    figures: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FIGURE]...",
            help="Figures by name, or the beginning of several (themis, tiresias, mechanism, "
            "ablation); all if left out. --list shows them.",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, max=100, help=f"How many seeds; {SEEDS}, 1 with --quick.", show_default=False
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="How many processes; one for each CPU.", show_default=False),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Tiny workloads, to try it out: seconds a figure.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="As many apps as in the paper: hours.")
    ] = False,
    traces: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Also all policies on each trace file in this folder."),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the page, Markdown; its plots go beside it."),
    ] = None,
    plots: Annotated[bool, typer.Option(help="With --out: draw the plots (needs plotly).")] = True,
    cache: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Where finished runs are kept; default ~/.cache/themis_ray/reproduce.",
            show_default=False,
        ),
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep no finished runs.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the figures and end.")] = False,
    json_: JsonOption = False,
) -> None:
    """Run the papers' evaluations on the simulator: our values beside the published ones.

    All figures with 3 seeds are about 800 runs and take about half an hour on 2 cores. Finished
    runs are kept, by their inputs and the code that they depend on, so that an interrupted study
    goes on where it was and a change of one policy repeats that policy's runs only.
    """
    known = (*FIGURES, *(figures_of_traces(Path(traces)) if traces else ()))
    chosen = select(figures or (), known)
    if list_:
        _list(chosen, as_json=json_)
        return
    sizes = _sizes(quick, full)
    count = seeds or (1 if quick else SEEDS)
    notes = () if traces or figures else (NO_TRACES,)
    drawn = ""
    if out is not None and plots:
        from themis_ray.reporting.sim_plots import check_plotly

        check_plotly()
        drawn = Path(out).with_suffix(".html").name
    results = _work(chosen, sizes, count, jobs, _cache(cache, no_cache))
    command = _command(figures or (), quick, full, seeds, traces, out)
    study = Study(command, sizes, count, results, notes, drawn)
    if out is not None:
        _write_page(Path(out), study)
    if json_:
        print_json(_document(study))
    else:
        _print(study, tables=out is None)


def _sizes(quick: bool, full: bool) -> Sizes:
    if quick and full:
        raise InvalidInputError("--quick and --full exclude each other; use one of them")
    return SIZES["quick" if quick else "full" if full else "default"]


def _cache(folder: str | None, no_cache: bool) -> Cache:
    if no_cache:
        return Cache(None)
    return Cache(default_folder() if folder is None else Path(folder))


def _command(
    figures: Sequence[str],
    quick: bool,
    full: bool,
    seeds: int | None,
    traces: str | None,
    out: str | None,
) -> str:
    """The command line again, for the page."""
    words = ["themis", "reproduce", *figures]
    words += ["--quick"] * quick + ["--full"] * full
    for option, value in (("--seeds", seeds), ("--traces", traces), ("--out", out)):
        words += [option, str(value)] if value is not None else []
    return shlex.join(words)


def _list(figures: Sequence[Figure], *, as_json: bool) -> None:
    if as_json:
        print_json({"figures": {figure.name: figure.title for figure in figures}})
        return
    for figure in figures:
        typer.echo(f"{figure.name:<20} {figure.title}")


def _work(
    figures: Sequence[Figure], sizes: Sizes, seeds: int, jobs: int | None, cache: Cache
) -> list[Result]:
    """Do the runs under a progress bar; work out the figures."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    runs = runs_of(figures, sizes, seeds)
    console = Console(stderr=True)
    with Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
        console=console,
    ) as bar:
        task = bar.add_task("", total=len(runs))
        spent, cached = 0.0, 0
        began = time.monotonic()

        def done(run: Run, outcome: Outcome, known: bool) -> None:
            nonlocal spent, cached
            cached += known
            spent += 0.0 if known else outcome.seconds
            said = "known already" if known else f"{outcome.seconds:.1f} s"
            bar.update(task, advance=1, description=f"{run.title}: {said}")

        outcomes = do_runs(runs, jobs=jobs or os.cpu_count() or 1, cache=cache, done=done)
    console.print(
        f"{len(runs)} runs, {cached} of them known already; {spent:,.0f} s of CPU time in "
        f"{time.monotonic() - began:,.0f} s",
        highlight=False,
    )
    return [evaluate(figure, sizes, seeds, outcomes) for figure in figures]


def _write_page(file: Path, study: Study) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(render(study), encoding="utf-8")
        if study.plots:
            from themis_ray.reproduce.plots import plots_page

            facts = f"{study.command}: size {study.sizes.name}, {study.seeds} seeds"
            file.with_name(study.plots).write_text(
                plots_page(study.results, facts), encoding="utf-8"
            )
    except OSError as error:
        raise InvalidInputError(
            f"--out {file}: {(error.strerror or str(error)).lower()}"
        ) from error


def _document(study: Study) -> dict[str, Any]:
    return {
        "size": study.sizes.name,
        "seeds": study.seeds,
        "figures": {result.figure.name: result.document() for result in study.results},
        "left_out": list(study.notes),
    }


def _print(study: Study, *, tables: bool) -> None:
    from rich.console import Console

    console = Console()
    for result in study.results:
        if tables:
            texts = {
                row: [
                    cell_text(cells[column], result.figure.digits) if column in cells else ""
                    for column in result.columns
                ]
                for row, cells in result.cells.items()
            }
            print_table(result.figure.title, result.columns, texts, first=result.figure.unit)
        else:
            console.print(result.figure.title, style="bold")
        for claim in result.claims:
            console.print(f"  {WORDS[claim.holds]}: {claim.text} ({claim.evidence})")
        for error in result.errors:
            console.print(f"  failed: {error}")
    for note in study.notes:
        console.print(f"Left out: {note}")
