"""``themis start``: start the arbiter, or find the one that runs."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated, Any

import typer

from themis_ray.cli.durations import seconds
from themis_ray.cli.options import AddressOption, JsonOption
from themis_ray.cli.output import print_json
from themis_ray.errors import ArbiterUnavailableError


def start(
    policy: Annotated[str | None, typer.Option(help="The policy that shares the GPUs.")] = None,
    lease: Annotated[
        str | None, typer.Option(metavar="TIME", help="Length of a lease: 90s, 10m, 1h.")
    ] = None,
    fairness_knob: Annotated[
        float | None, typer.Option(min=0, max=1, help="f: only the worst 1-f of the apps bid.")
    ] = None,
    journal: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|off",
            help="Where the arbiter's node keeps the journal, for themis replay; Ray's session "
            "folder if left out.",
        ),
    ] = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="YAML file with these and other options.")
    ] = None,
    num_gpus: Annotated[
        int | None,
        typer.Option(min=1, help="With no Ray cluster: start one here with so many logical GPUs."),
    ] = None,
    address: AddressOption = None,
    json_: JsonOption = False,
) -> None:
    """Start the arbiter in a Ray cluster, or find the one that runs there.

    Where no Ray cluster runs, its head is started on this machine; ``ray stop`` ends it.
    """
    from themis_ray.live import client

    asked: dict[str, Any] = {
        "policy": policy,
        "lease_s": None if lease is None else seconds(lease, "--lease"),
        "fairness_knob": fairness_knob,
        "journal": journal,
        "config": config,
        "num_gpus": num_gpus,
        "address": address,
    }
    # What was not asked for keeps the defaults of the arbiter's own options.
    given = {name: value for name, value in asked.items() if value is not None}
    new_head = address is None and not client.a_cluster_runs()
    if new_head:
        start_head(num_gpus)
    with client.joined(address):
        document: dict[str, Any] = {**client.start(**given), "ray_started": new_head}
    if json_:
        print_json(document)
        return
    for name, value in document.items():
        typer.echo(f"{name}: {value}")


def start_head(num_gpus: int | None) -> None:
    """Start a Ray head that outlives this command.

    Raises:
        ArbiterUnavailableError: Ray does not start.
    """
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head"]
    command += ["--include-dashboard=false"]
    if num_gpus is not None:
        command.append(f"--num-gpus={num_gpus}")
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise ArbiterUnavailableError(
            f"`ray start --head` failed: {said[-1] if said else f'exit {done.returncode}'}; "
            "run it by itself for the whole message"
        )
