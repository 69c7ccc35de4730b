"""Progress of simulations, on the standard error of a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from themis_ray.sim.study import Told


@contextmanager
def progress_of(apps: int) -> Iterator[Told | None]:
    """Show how many apps of each policy's run have finished; nothing but on a terminal.

    Args:
        apps: Apps of a run.

    Yields:
        To be told, of each policy by its name, how many have finished.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeElapsedColumn,
    )

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    tasks: dict[str, TaskID] = {}
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:

        def told(policy: str, finished: int) -> None:
            if policy not in tasks:
                tasks[policy] = bars.add_task(policy, total=apps)
            bars.update(tasks[policy], completed=finished)

        yield told
