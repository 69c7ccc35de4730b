"""``themis stop``: stop the arbiter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from themis_ray.cli.durations import seconds
from themis_ray.cli.options import AddressOption, JsonOption
from themis_ray.cli.output import print_json


def stop(
    timeout: Annotated[
        str, typer.Option(metavar="TIME", help="How long trials have to save a checkpoint.")
    ] = "30s",
    address: AddressOption = None,
    json_: JsonOption = False,
) -> None:
    """End all leases, remove the placement groups and stop the arbiter."""
    from themis_ray.live import client

    timeout_s = seconds(timeout, "--timeout")
    with client.joined(address):
        document = client.stop(timeout_s=timeout_s)
    if json_:
        print_json(document)
        return
    if not document.get("stopped", True):
        typer.echo("no arbiter was running")
        return
    typer.echo(f"the arbiter is stopped; apps ended: {_names(document.get('apps_ended'))}")
    if document.get("groups_left"):
        typer.echo(f"placement groups left: {_names(document['groups_left'])}")


def _names(names: Iterable[str] | None) -> str:
    return ", ".join(names or ()) or "none"
