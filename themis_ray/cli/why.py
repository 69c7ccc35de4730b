"""``themis why APP``: the last decision about an app, and what would change it."""

from __future__ import annotations

from typing import Annotated

import typer

from themis_ray.cli.options import AddressOption, JsonOption
from themis_ray.cli.output import print_json


def why(
    app: Annotated[str, typer.Argument(help="The app's name, as in themis status.")],
    address: AddressOption = None,
    json_: JsonOption = False,
) -> None:
    """Say why an app has what it has, and what would change it."""
    from themis_ray.live import client

    with client.joined(address):
        explained = client.explain(app)
    if json_:
        print_json(explained)
        return
    from rich.console import Console

    from themis_ray.reporting.render import explanation
    from themis_ray.reporting.view import app_view

    Console().print(explanation(app_view(explained)))
