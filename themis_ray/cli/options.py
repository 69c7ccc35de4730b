"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

AddressOption = Annotated[
    str | None, typer.Option(help="The Ray cluster; the one of this machine if left out.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
FileArgument = Annotated[str, typer.Argument(metavar="FILE|-", help="JSON input; - reads stdin.")]
