"""How a command fails: a message, an exit code, and no traceback unless ``--debug`` asks for it.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | it could not be done (no arbiter answers, an optional package is missing, a fault of ours) |
| 2 | bad input or usage |

The message goes to standard error. With ``--json``, standard output also gets one document,
``{"error": {"kind": ..., "message": ..., "exit_code": ...}}``, so that a script always finds
exactly one there. (Usage errors, such as an unknown option, are found before ``--json`` is read
and print their message only.)
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Annotated, Any, get_type_hints

import typer

from themis_ray.cli.output import print_json
from themis_ray.errors import InvalidInputError, ThemisError, UnknownAppError

BAD_INPUT = 2
FAILED = 1

DebugOption = Annotated[
    bool, typer.Option("--debug", help="Show debug logs, and a traceback on errors.")
]


def exit_code(error: BaseException) -> int:
    """The exit code for an error; a wrong app name is bad input too."""
    return BAD_INPUT if isinstance(error, InvalidInputError | UnknownAppError) else FAILED


@contextlib.contextmanager
def logs(debug: bool) -> Iterator[None]:
    """Keep logs to warnings and errors, or show this package's debug logs on standard error."""
    if not debug:
        # Ray sets its own loggers up while it connects, so that their levels do not help here.
        before = logging.root.manager.disable
        logging.disable(logging.INFO)
        try:
            yield
        finally:
            logging.disable(before)
        return
    logger = logging.getLogger("themis_ray")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


def report(error: Exception, *, debug: bool, as_json: bool) -> int:
    """Print an error as the module's text says; returns the exit code."""
    code = exit_code(error)
    kind, message = type(error).__name__, str(error)
    if not isinstance(error, ThemisError):
        message = f"{kind}: {message}; this is a fault of themis, --debug shows where"
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    print(f"themis: {message}", file=sys.stderr)
    if as_json:
        print_json({"error": {"kind": kind, "message": message, "exit_code": code}})
    return code


def handled(function: Callable[..., Any], debug_for_all: Callable[[], bool]) -> Callable[..., Any]:
    """Wrap a command function: add ``--debug`` to it and turn errors into exit codes.

    Args:
        function: A typer command function. Its parameter ``json_`` says whether ``--json`` is on.
        debug_for_all: Whether ``--debug`` stood before the command's name.
    """

    @functools.wraps(function)
    def wrapper(*, debug: bool, **options: Any) -> Any:
        debug = debug or debug_for_all()
        try:
            with logs(debug):
                return function(**options)
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except Exception as error:
            as_json = bool(options.get("json_"))
            raise typer.Exit(report(error, debug=debug, as_json=as_json)) from None

    # typer reads the options off the signature; that of the wrapper has one more.
    hints = get_type_hints(function, include_extras=True)
    parameters = [
        parameter.replace(annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(function).parameters.values()
    ]
    parameters.append(
        inspect.Parameter(
            "debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=DebugOption
        )
    )
    del wrapper.__wrapped__
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {**hints, "debug": DebugOption}
    return wrapper
