"""``themis timeline``: who held which machine's GPUs when, from a live cluster's journal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from themis_ray.cli.options import JournalArgument, JsonOption
from themis_ray.cli.output import print_json, write_file
from themis_ray.errors import InvalidInputError
from themis_ray.live.journal_reader import read_journal
from themis_ray.reporting.journal_timeline import bars, timeline_page
from themis_ray.sim.replay_history import History


def timeline(
    journal: JournalArgument,
    out: Annotated[
        str | None, typer.Option(metavar="FILE.html", help="Write a page with the timeline.")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Show who held which machine's GPUs, and when."""
    if out is None and not json_:
        raise InvalidInputError("name a page to write with --out FILE.html, or use --json")
    warnings: list[str] = []
    history = History()
    for place, line in read_journal(journal, warnings.append):
        history.take(place, line)
    history.finish()
    if out is not None:
        write_file("--out", out, timeline_page(history, Path(journal).name))
    if json_:
        held = [
            {
                "machine": bar.machine,
                "lane": bar.lane,
                "app": bar.app,
                "group": bar.group,
                "begin_s": bar.begin_s,
                "end_s": bar.end_s,
            }
            for bar in bars(history)
        ]
        print_json({"journal": journal, "page": out, "held": held, "warnings": warnings})
        return
    for warning in warnings:
        typer.echo(f"note: {warning}")
    typer.echo(f"the timeline is in {out}")
