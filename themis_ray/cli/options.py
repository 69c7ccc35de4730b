"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from themis_ray.errors import InvalidInputError

AddressOption = Annotated[
    str | None, typer.Option(help="The Ray cluster; the one of this machine if left out.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
FileArgument = Annotated[str, typer.Argument(metavar="FILE|-", help="JSON input; - reads stdin.")]
JournalArgument = Annotated[
    str,
    typer.Argument(
        metavar="JOURNAL", help="An arbiter's journal; themis status --json says where it is."
    ),
]
JudgeOption = Annotated[str, typer.Option(help="The T_id that r is by: fluid, exclusive or paper.")]


def one_of(option: str, value: str, known: Sequence[Any]) -> Any:
    """``value``, which is one of those known.

    Raises:
        InvalidInputError: It is not.
    """
    if value not in known:
        raise InvalidInputError(f"{option}: {value!r} is unknown; use {', '.join(known)}")
    return value
