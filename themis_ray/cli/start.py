"""``themis start``: start the arbiter, or find the one that runs."""

from __future__ import annotations

from typing import Annotated

import typer

from themis_ray.cli.durations import seconds
from themis_ray.cli.output import print_json


def start(
    policy: Annotated[str | None, typer.Option(help="The policy that shares the GPUs.")] = None,
    lease: Annotated[
        str | None, typer.Option(metavar="TIME", help="Length of a lease: 90s, 10m, 1h.")
    ] = None,
    fairness_knob: Annotated[
        float | None, typer.Option(min=0, max=1, help="f: only the worst 1-f of the apps bid.")
    ] = None,
    num_gpus: Annotated[
        int | None,
        typer.Option(min=1, help="With no Ray cluster: start one here with so many logical GPUs."),
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="The Ray cluster; the one of this machine if left out.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Start the arbiter in a Ray cluster, or find the one that runs there."""
    from themis_ray.live import client

    asked = {
        "policy": policy,
        "lease_s": None if lease is None else seconds(lease, "--lease"),
        "fairness_knob": fairness_knob,
        "num_gpus": num_gpus,
        "address": address,
    }
    # What was not asked for keeps the defaults that themis_ray.start() documents.
    started = client.start(**{name: value for name, value in asked.items() if value is not None})
    if json_:
        print_json(started)
        return
    for name, value in started.items():
        typer.echo(f"{name}: {value}")
