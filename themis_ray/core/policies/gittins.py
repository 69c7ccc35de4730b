"""The Gittins index of a job, from the distribution of all jobs' service (Tiresias, 3.2.2)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T", float, Fraction)


def gittins_index(attained: T, services: Sequence[T]) -> T:
    """``sup over D of P(S - a <= D | S > a) / E[min(S - a, D) | S > a]``.

    The chance to finish within a quantum D per unit of service spent on it, for the best D.
    Between two possible services a larger D only costs more, so D need only be the rest of one
    of them. Exact when given fractions.

    Args:
        attained: a, the service that the job has had.
        services: The possible services S, equally likely; give one that is twice as likely twice.

    Returns:
        The index; 0 when no service is greater than ``attained``.
    """
    rest = sorted(s - attained for s in services if s > attained)
    best = attained * 0
    ended = attained * 0
    for i, quantum in enumerate(rest):
        ended += quantum
        # i + 1 of them end within the quantum; the others use all of it.
        best = max(best, (i + 1) / (ended + (len(rest) - i - 1) * quantum))
    return best


class GittinsTable:
    """:func:`gittins_index` in floats, fast enough for thousands of jobs in a round.

    Args:
        services: The possible services, equally likely.
    """

    def __init__(self, services: Sequence[float]) -> None:
        self._services: npt.NDArray[np.float64] = np.sort(np.asarray(services, dtype=np.float64))
        self._sums = np.concatenate(([0.0], np.cumsum(self._services)))

    def index(self, attained: float) -> float:
        """The index of a job with some attained service."""
        start = int(np.searchsorted(self._services, attained, side="right"))
        rest = self._services[start:]
        if not rest.size:
            return 0.0
        ended = np.arange(1, rest.size + 1)
        # Sum over the jobs of min(S - a, D), with D the rest of each one in turn.
        spent = self._sums[start + 1 :] - self._sums[start] - ended * attained
        spent += (rest.size - ended) * (rest - attained)
        return float(np.max(ended / spent))
