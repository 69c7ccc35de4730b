"""The ``themis`` command.

Each command is a function in a module of its own, imported only when that command runs, so that
``themis --help`` does not wait for Ray or pydantic. See :mod:`themis_ray.cli.errors` for what
commands have in common: ``--json``, ``--debug``, messages and exit codes.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from themis_ray.cli.errors import DebugOption, handled


@dataclass(frozen=True, slots=True)
class _Command:
    """Where a command is, and what the list of commands says of it."""

    module: str
    function: str
    summary: str


COMMANDS = {
    "start": _Command("start", "start", "Start the arbiter in a Ray cluster."),
    "stop": _Command("stop", "stop", "Stop the arbiter; all leases end."),
    "status": _Command("status", "status", "Show who holds which GPU, until when, and why."),
    "why": _Command("why", "why", "Say why an app has what it has, and what would change it."),
    "auction": _Command("auction", "auction", "Run one partial-allocation auction on a file."),
    "bids": _Command("bids", "bids", "Print what an app would bid for each number of GPUs."),
    "simulate": _Command("simulate", "simulate", "Run a workload under policies, simulated."),
    "reproduce": _Command(
        "reproduce", "reproduce", "Run the papers' evaluations, simulated; write a page."
    ),
    "profile": _Command("profile", "profile", "Measure how placement slows a model down, S(G)."),
    "replay": _Command("replay", "replay", "Check a live cluster's journal, or ask it: what if?"),
    "timeline": _Command("timeline", "timeline", "Draw who held which GPUs when, from a journal."),
    "doctor": _Command("doctor", "doctor", "Check this machine: Ray, gRPC, NVML, extras, access."),
}

_debug_for_all = False


class LazyGroup(TyperGroup):
    """Lists the commands by their summaries; loads the one that is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Put the real command in the place of its summary, then go on as usual."""
        if args and args[0] in COMMANDS:
            self.commands[args[0]] = _load(args[0])
        return super().resolve_command(ctx, args)


def _load(name: str) -> Any:
    """The command itself."""
    entry = COMMANDS[name]
    function = getattr(import_module(f"themis_ray.cli.{entry.module}"), entry.function)
    alone = typer.Typer(add_completion=False)
    alone.command(name)(handled(function, lambda: _debug_for_all))
    return typer.main.get_command(alone)


def _placeholder() -> Callable[[], None]:
    def listed_only() -> None:
        raise AssertionError("the command was not loaded")

    return listed_only


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"themis_ray {version('themis_ray')}")
        raise typer.Exit


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name, _entry in COMMANDS.items():
    app.command(_name, help=_entry.summary)(_placeholder())


@app.callback()
def themis(
    debug: DebugOption = False,
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Share a GPU cluster among Ray Tune experiments, fairly in finish time, by auction."""
    global _debug_for_all
    _debug_for_all = debug


def main() -> None:
    """The entry point of the ``themis`` script."""
    _keep_stdout_to_ourselves()
    app(prog_name="themis")


def _keep_stdout_to_ourselves() -> None:
    """Send to stderr what C libraries print to descriptor 1: HiGHS does, in the midst of JSON."""
    out = sys.__stdout__
    if out is None or sys.stdout is not out:
        return  # there is none, or somebody catches what is printed
    with contextlib.suppress(OSError, ValueError):  # it is closed
        out.flush()
        ours = os.dup(1)
        os.dup2(2, 1)
        sys.stdout = os.fdopen(ours, "w", 1 if os.isatty(ours) else -1, out.encoding, out.errors)
