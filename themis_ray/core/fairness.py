"""Finish-time fairness, r = T_sh / T_id (THEMIS, section 3.2, Equations 1 and 2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Ideal = Literal["paper", "exclusive"]
Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class Contention:
    """N_avg: the time-weighted mean number of apps present during an app's life.

    One instance serves all apps: it keeps the integral of the number of apps over time, and
    each app the value of the integral when it arrived.
    """

    apps: int = 0
    _integral_s: float = 0.0
    _since_s: float = 0.0

    def advance(self, now: float) -> float:
        """Bring the integral up to ``now`` (seconds) and return it."""
        if now > self._since_s:
            self._integral_s += self.apps * (now - self._since_s)
            self._since_s = now
        return self._integral_s

    def change(self, now: float, by: int) -> float:
        """``by`` apps arrive (or, negative, leave) at ``now``; returns the integral."""
        integral = self.advance(now)
        self._since_s = max(self._since_s, now)
        self.apps += by
        return integral

    def average(self, now: float, joined_s: float, joined_integral_s: float) -> float:
        """N_avg of an app that joined at ``joined_s``, itself included; at least 1."""
        life_s = now - joined_s
        if life_s <= 0:
            return float(max(1, self.apps))
        return max(1.0, (self.advance(now) - joined_integral_s) / life_s)


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of successive halving: ``jobs`` jobs that each run ``iterations``."""

    jobs: int
    iterations: float


class PhaseWork(NamedTuple):
    """What a phase of an app takes, from its start to its end.

    Attributes:
        gpu_s: GPU-seconds, without any slowdown.
        gpus: The most GPUs that make it shorter: all that its jobs can use together, or fewer
            when its longest job sets the pace.
    """

    gpu_s: float
    gpus: float


def finish_time_fairness(t_shared_s: float, t_ideal_s: float) -> float:
    """r; ``inf`` when the app never finishes.

    Raises:
        ValueError: ``t_ideal_s`` is not positive.
    """
    if not t_ideal_s > 0:
        raise ValueError(f"T_id is {t_ideal_s} s; it must be positive")
    return t_shared_s / t_ideal_s


def ideal_time_s(
    work_gpu_s: Sequence[float],
    demands: Sequence[int],
    *,
    cluster_gpus: int,
    n_avg: float,
    ideal: Ideal = "paper",
    weight: float = 1.0,
) -> float:
    """T_id, the finish time alone on a 1/N share, in seconds.

    Args:
        work_gpu_s: GPU-seconds of each phase (one entry for a single job).
        demands: The most GPUs that each phase can use.
        cluster_gpus: R_C.
        n_avg: Mean number of apps during the app's life.
        ideal: ``paper``: T_cluster * N_avg, with T_cluster on the whole cluster (Equations 1
            and 2: the total work over the largest demand); ``exclusive``: each phase on
            ``R_C / N_avg`` GPUs, which is shorter for an app that cannot use its whole share.
        weight: The app's weight; twice the weight is twice the share.
    """
    share = n_avg / weight
    if ideal == "paper":
        return sum(work_gpu_s) / max(1, min(cluster_gpus, max(demands))) * share
    own = max(cluster_gpus / share, 1e-9)
    return math.fsum(
        work / min(own, demand) for work, demand in zip(work_gpu_s, demands, strict=True)
    )


def water_fill(most: Floats, weight: Floats, total: float) -> Floats:
    """Divide ``total`` in proportion to ``weight``, nobody getting more than ``most``.

    What one cannot use goes to the others: weighted max-min fair share, like water finding its
    level. All arrays have one entry for each taker.
    """
    if most.sum() <= total:
        return most.copy()
    level = most / weight  # who is satisfied at which level of the water
    order = np.argsort(level, kind="stable")
    # If all up to here are satisfied, the water stands at this level for the others.
    taken = np.concatenate([[0.0], np.cumsum(most[order])[:-1]])
    others = np.cumsum(weight[order][::-1])[::-1]
    water = (total - taken) / others
    first = int(np.argmax(water <= level[order]))
    shares: Floats = np.minimum(most, water[first] * weight)
    return shares
