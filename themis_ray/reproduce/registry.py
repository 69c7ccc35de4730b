"""All figures by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from themis_ray.errors import InvalidInputError
from themis_ray.reproduce import (
    ablation,
    bid_table,
    contention,
    fairness,
    knobs,
    mechanism,
    network,
    robustness,
    tiresias,
    tiresias_knobs,
    traces,
)
from themis_ray.reproduce.figure import Figure

FIGURES: tuple[Figure, ...] = (
    *bid_table.FIGURES,
    *fairness.FIGURES,
    *contention.FIGURES,
    *network.FIGURES,
    *robustness.FIGURES,
    *knobs.FIGURES,
    *tiresias.FIGURES,
    *tiresias_knobs.FIGURES,
    *mechanism.FIGURES,
    *ablation.FIGURES,
)
TRACE_ENDINGS = (".csv", ".csv.gz")


def figures_of_traces(folder: Path) -> tuple[Figure, ...]:
    """Figures for each trace file in a folder.

    Raises:
        InvalidInputError: There is no such folder, or it has no trace.
    """
    if not folder.is_dir():
        raise InvalidInputError(f"--traces {folder}: no such folder")
    found = sorted(file for file in folder.iterdir() if file.name.endswith(TRACE_ENDINGS))
    if not found:
        raise InvalidInputError(f"--traces {folder}: no {' or '.join(TRACE_ENDINGS)} file in it")
    return tuple(figure for file in found for figure in traces.traces_figures(file))


def select(names: Sequence[str], figures: Iterable[Figure]) -> tuple[Figure, ...]:
    """The figures of the names given, in the order of the registry; all for no name.

    A name may be the beginning of several, up to a hyphen: ``tiresias``, ``mechanism-w2``.

    Raises:
        InvalidInputError: A name is unknown; the message lists those there are.
    """
    known = tuple(figures)
    for name in names:
        if not any(_named(figure, name) for figure in known):
            listed = "\n".join(f"  {figure.name:<20} {figure.title}" for figure in known)
            raise InvalidInputError(
                f"no figure {name!r}; use one of these, or the beginning of several (as "
                f"themis, tiresias, mechanism):\n{listed}"
            )
    return tuple(
        figure for figure in known if not names or any(_named(figure, name) for name in names)
    )


def _named(figure: Figure, name: str) -> bool:
    if not figure.name.startswith(name):
        return False
    rest = figure.name[len(name) :]
    return not rest or rest[0] == "-" or (len(rest) == 1 and rest.isalpha())
