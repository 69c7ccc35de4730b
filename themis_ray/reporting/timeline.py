"""Who held how many GPUs when: step curves made of stays on GPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

OTHERS = "others"


class Held(Protocol):
    """GPUs that an app held for a time; times in seconds."""

    @property
    def app(self) -> str:
        """The app."""

    @property
    def size(self) -> int:
        """How many GPUs."""

    @property
    def begin_s(self) -> float:
        """From when."""

    @property
    def end_s(self) -> float:
        """Until when."""


@dataclass(frozen=True, slots=True)
class Steps:
    """A step curve: ``counts[i]`` holds from ``times_s[i]`` on.

    Attributes:
        name: What it shows.
        times_s: Times, ascending.
        counts: GPUs.
    """

    name: str
    times_s: tuple[float, ...]
    counts: tuple[int, ...]


def in_use(stays: Iterable[Held], name: str = "") -> Steps:
    """GPUs in use over time."""
    changes: dict[float, int] = defaultdict(int)
    for stay in stays:
        if stay.end_s > stay.begin_s:
            changes[stay.begin_s] += stay.size
            changes[stay.end_s] -= stay.size
    times, counts, now = [], [], 0
    for time_s in sorted(changes):
        if changes[time_s]:
            now += changes[time_s]
            times.append(time_s)
            counts.append(now)
    return Steps(name, tuple(times), tuple(counts))


def by_app(stays: Iterable[Held], most: int = 12) -> list[Steps]:
    """A curve for each app, in the order of their first GPUs.

    Args:
        stays: Who held what.
        most: The apps with the most GPU time get a curve each; the rest share the last one.
    """
    held: dict[str, list[Held]] = {}
    for stay in stays:
        held.setdefault(stay.app, []).append(stay)
    largest = sorted(held, key=lambda app: (-_gpu_s(held[app]), app))[:most]
    shown = [app for app in held if app in set(largest)]
    curves = [in_use(held[app], app) for app in shown]
    rest = [stay for app, some in held.items() if app not in set(largest) for stay in some]
    return [*curves, in_use(rest, OTHERS)] if rest else curves


def on_grid(curves: Sequence[Steps], points: int = 600) -> tuple[list[float], list[list[float]]]:
    """The mean of each curve in equal spans of time, to draw long runs with few points.

    Returns:
        The beginnings of the spans, and a list of means for each curve.
    """
    ends = [curve.times_s[-1] for curve in curves if curve.times_s]
    if not ends or max(ends) <= 0:
        return [], [[] for _ in curves]
    width = max(ends) / points
    out = []
    for curve in curves:
        sums = [0.0] * points
        for (begin, end), count in zip(pairwise(curve.times_s), curve.counts, strict=False):
            _spread(sums, width, begin, end, count)
        out.append([total / width for total in sums])
    return [i * width for i in range(points)], out


def _spread(sums: list[float], width: float, begin: float, end: float, count: int) -> None:
    first = min(len(sums) - 1, int(begin / width))
    last = min(len(sums) - 1, int(end / width))
    for i in range(first, last + 1):
        overlap = min(end, (i + 1) * width) - max(begin, i * width)
        if overlap > 0:
            sums[i] += count * overlap


def _gpu_s(stays: Iterable[Held]) -> float:
    return sum(stay.size * (stay.end_s - stay.begin_s) for stay in stays)
