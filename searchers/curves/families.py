"""Shapes of learning curves: ``metric(t) = level + gain * shape(t)``, lower being better.

Each shape falls from 1 at the first iteration towards 0, so that ``level`` is where the curve ends
and ``gain`` what it gains on the way. The families are those that are usual for learning curves
(Domhan et al., IJCAI 2015; Viering and Loog, TPAMI 2023), as far as they differ in this form: the
log-power and Hill curves are MMF's in other parameters.

Shape parameters are kept as logarithms, and times are relative to the last observed iteration, so
that one prior fits curves of any length: 0 is "as usual", and a unit is one standard deviation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

BOUND = 4.0
"""Shape parameters lie within so many standard deviations of the usual."""


@dataclass(frozen=True)
class Times:
    """Iterations at which a curve is evaluated.

    Attributes:
        at: The iterations, positive; any shape that broadcasts with the parameters.
        first: The first observed iteration.
        last: The last observed iteration.
    """

    at: Array
    first: float
    last: float


@dataclass(frozen=True)
class Family:
    """One family of shapes.

    Attributes:
        name: For reports.
        usual: The usual value of each shape parameter, as a logarithm.
        spread: The standard deviation of each, as a logarithm.
        shape: Takes the parameters (one array for each, all of them logarithms) and the times.
    """

    name: str
    usual: tuple[float, ...]
    spread: tuple[float, ...]
    shape: Callable[[tuple[Array, ...], Times], Array]

    @property
    def size(self) -> int:
        """How many shape parameters it has."""
        return len(self.usual)

    def evaluate(self, units: Array, times: Times) -> Array:
        """The shape for parameters in standard deviations from the usual.

        Args:
            units: ``(size, ...)``.
            times: Broadcast against ``units[0]``.
        """
        logs = tuple(
            usual + spread * np.asarray(x)
            for usual, spread, x in zip(self.usual, self.spread, units, strict=True)
        )
        return self.shape(logs, times)


def _power(logs: tuple[Array, ...], times: Times) -> Array:
    return np.asarray((times.at / times.first) ** -np.exp(logs[0]))


def _shifted_power(logs: tuple[Array, ...], times: Times) -> Array:
    shift = times.last * np.exp(logs[1])
    return np.asarray(((times.at + shift) / (times.first + shift)) ** -np.exp(logs[0]))


def _exponential(logs: tuple[Array, ...], times: Times) -> Array:
    return np.asarray(np.exp(-np.exp(logs[0]) * (times.at - times.first) / times.last))


def _weibull(logs: tuple[Array, ...], times: Times) -> Array:
    """Janoschek's curve is this one, too."""
    rate, power = np.exp(logs[0]), np.exp(logs[1])
    passed = (times.at / times.last) ** power - (times.first / times.last) ** power
    return np.asarray(np.exp(-rate * passed))


def _mmf(logs: tuple[Array, ...], times: Times) -> Array:
    """Morgan, Mercer and Flodin."""
    rate, power = np.exp(logs[0]), np.exp(logs[1])
    start = 1.0 + rate * (times.first / times.last) ** power
    return np.asarray(start / (1.0 + rate * (times.at / times.last) ** power))


def _ilog2(logs: tuple[Array, ...], times: Times) -> Array:
    return np.asarray(np.log(times.first + 1.0) / np.log(times.at + 1.0))


def _constant(logs: tuple[Array, ...], times: Times) -> Array:
    return np.zeros_like(times.at)


CONSTANT = Family("constant", (), (), _constant)

FAMILIES: tuple[Family, ...] = (
    Family("power", (np.log(0.6),), (0.7,), _power),
    Family("shifted power", (np.log(1.0), np.log(0.3)), (0.7, 1.0), _shifted_power),
    Family("exponential", (np.log(1.0),), (1.3,), _exponential),
    Family("weibull", (np.log(1.0), np.log(0.9)), (1.3, 0.6), _weibull),
    Family("mmf", (np.log(1.5), np.log(1.2)), (1.5, 0.6), _mmf),
    Family("ilog2", (), (), _ilog2),
    CONSTANT,
)
"""All of them; the last says that nothing more is learnt."""
