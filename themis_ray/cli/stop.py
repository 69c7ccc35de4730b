"""``themis stop``: stop the arbiter."""

from __future__ import annotations

from typing import Annotated

import typer

from themis_ray.cli.durations import seconds
from themis_ray.cli.output import print_json


def stop(
    timeout: Annotated[
        str, typer.Option(metavar="TIME", help="How long trials have to save a checkpoint.")
    ] = "30s",
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """End all leases, remove the placement groups and stop the arbiter."""
    from themis_ray.live import client

    stopped = client.stop(timeout_s=seconds(timeout, "--timeout"))
    if json_:
        print_json(stopped)
        return
    typer.echo("the arbiter is stopped")
    for name, value in stopped.items():
        typer.echo(f"{name}: {value}")
