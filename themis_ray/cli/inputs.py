"""Reads a command's JSON input: what is wrong with it is said with the place and the remedy."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from themis_ray.errors import InvalidInputError

Model = TypeVar("Model", bound=BaseModel)

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]

STDIN = "-"


class Strict(BaseModel):
    """A part of an input: its fields and no others, of the types they have in JSON."""

    model_config = ConfigDict(extra="forbid", strict=True)


def read_text(file: str) -> str:
    """The text of a file, or of standard input for ``-``.

    Raises:
        InvalidInputError: The file cannot be read.
    """
    name = "standard input" if file == STDIN else file
    try:
        return sys.stdin.read() if file == STDIN else Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{name}: not a text file ({error.reason}); use UTF-8") from error
    except OSError as error:
        raise InvalidInputError(
            f"{file}: {(error.strerror or str(error)).lower()}; "
            f"give the path of a JSON file, or {STDIN} to read standard input"
        ) from error


def read_model(file: str, model: type[Model]) -> Model:
    """Read a JSON document into a pydantic model.

    Raises:
        InvalidInputError: It is not JSON (named by line and column), or a field is wrong (named by
            its path).
    """
    name = "standard input" if file == STDIN else file
    text = read_text(file)
    if not text.strip():
        raise InvalidInputError(f"{name} is empty; it needs one JSON object")
    try:
        data: Any = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_duplicates)
    except json.JSONDecodeError as error:
        raise InvalidInputError(
            f"{name}, line {error.lineno}, column {error.colno}: not JSON: {error.msg}"
        ) from error
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}: {error}") from None
    except (ValueError, RecursionError) as error:  # a number or a nesting beyond all measure
        raise InvalidInputError(f"{name}: not usable JSON: {error}") from error
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise InvalidInputError(describe(error, name)) from error


def describe(error: ValidationError, name: str) -> str:
    """Every fault that pydantic found, one a line, each with its field."""
    lines = []
    for fault in error.errors(include_url=False):
        given = fault["input"]
        said = fault["msg"].removeprefix("Value error, ")
        shown = ""
        if fault["type"] == "extra_forbidden":
            said = "no such field; remove it or correct its name"
        elif fault["type"] == "missing":
            said = "is missing"
        elif isinstance(given, str | int | float | bool) or given is None:
            shown = f" (got {json.dumps(given)})"
        lines.append(f"{name}: {field_path(fault['loc'])}: {said}{shown}")
    return "\n".join(lines)


def field_path(loc: Sequence[int | str]) -> str:
    """``("phases", 1, "jobs")`` as ``phases[1].jobs``."""
    path = ""
    for step in loc:
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return path.lstrip(".") or "the document"


def _no_constant(constant: str) -> NoReturn:
    raise InvalidInputError(f"{constant} is not JSON; use null for an infinite or unknown figure")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise InvalidInputError(f"the key {twice!r} stands twice in one object; keep one")
    return document
