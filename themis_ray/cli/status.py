"""``themis status``: who holds which GPU, until when, and why."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from themis_ray.cli.options import AddressOption
from themis_ray.cli.output import print_json

WATCH_PERIOD_S = 1.0


def status(
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Repeat every second until Ctrl-C.")
    ] = False,
    address: AddressOption = None,
    json_: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON document; with --watch one a line."),
    ] = False,
) -> None:
    """Show who holds which GPU, until when, and why."""
    from themis_ray.live import client

    with client.joined(address):
        if watch:
            # Ctrl-C is how a watch ends.
            with contextlib.suppress(KeyboardInterrupt):
                _watch(client.status, json_, time.sleep)
            return
        document = client.status()
    if json_:
        print_json(document)
    else:
        from rich.console import Console

        Console().print(_render(document))


def _render(document: dict[str, Any]) -> Any:
    from themis_ray.reporting.render import status_table
    from themis_ray.reporting.view import status_view

    return status_table(status_view(document))


def _watch(
    read: Callable[[], dict[str, Any]], as_json: bool, wait: Callable[[float], object]
) -> None:
    """Show the status again and again, until ``wait`` or ``read`` raises."""
    if as_json:
        while True:
            print_json(read())
            wait(WATCH_PERIOD_S)
    from rich.live import Live

    with Live(_render(read()), auto_refresh=False) as live:
        while True:
            wait(WATCH_PERIOD_S)
            live.update(_render(read()), refresh=True)
