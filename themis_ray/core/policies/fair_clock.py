"""A virtual fair-share clock: when would each app finish if GPUs were divided like water?

Beside the real cluster the policy runs a virtual one, in which GPUs are divided without loss: at
any time each app gets its fair share by weight, but no more than its phase can use, and what it
cannot use goes to the others (max-min fair share). The time that an app takes there is its T_id.
Unlike T_cluster * N_avg it does not grow when the app is held up (which makes the app meet more
others, and would hide the delay), and it is not longer than needed for an app that cannot use
its share. Serving those first that are furthest behind such a clock is known from processor
sharing: the fair sojourn protocol (Friedman and Henderson, SIGMETRICS '03) ends every job no later
than processor sharing does.

An app that has left the real cluster early goes on in the virtual one until it is done there:
that it was served sooner must not lengthen what the others may expect, nor shorten it.

The clock is a value, which a policy keeps from round to round: :func:`advanced` makes the next one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from themis_ray.core.fairness import PhaseWork, water_fill

Floats = npt.NDArray[np.float64]
# Work smaller than this, in GPU-seconds, is done.
NO_WORK_GPU_S = 1e-6


@dataclass(frozen=True, slots=True)
class Life:
    """One app on the virtual cluster.

    Attributes:
        joined_s: When it arrived.
        weight: Its weight.
        phases: All its work, the last word of the app on it.
        done_gpu_s: How much of it has been done there.
        finished_s: When it was done there; None while it is not.
    """

    joined_s: float
    weight: float
    phases: tuple[PhaseWork, ...]
    done_gpu_s: float = 0.0
    finished_s: float | None = None

    @property
    def left(self) -> list[PhaseWork]:
        """What is left of each phase."""
        out, done = [], self.done_gpu_s
        for phase in self.phases:
            if done < phase.gpu_s - NO_WORK_GPU_S:
                out.append(PhaseWork(phase.gpu_s - done, phase.gpus))
            done = max(0.0, done - phase.gpu_s)
        return out


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the clock says of an app, if nobody joins from now on.

    Attributes:
        finish_s: When it is done on the virtual cluster; in the past when it is.
        share: GPUs that it has there on average until then; for one that is done, the GPUs that
            an app of its weight would have now.
    """

    finish_s: float
    share: float


@dataclass(frozen=True, slots=True)
class FairClock:
    """The virtual cluster at a time.

    Attributes:
        now_s: The time.
        lives: The apps on it, by id.
    """

    now_s: float = 0.0
    lives: Mapping[str, Life] = field(default_factory=dict)


def advanced(clock: FairClock, present: Mapping[str, Life], now_s: float, gpus: int) -> FairClock:
    """The clock at ``now_s``.

    Args:
        clock: The clock before.
        present: The apps of the real cluster, as they are known now; those that the clock does
            not know yet arrive at their ``joined_s``.
        now_s: The time, in seconds.
        gpus: GPUs in the cluster.
    """
    lives = {}
    for app, life in clock.lives.items():
        word = present.get(app)
        if word is not None and word.joined_s == life.joined_s:
            lives[app] = _revised(life, word, clock.now_s)
        elif word is None and life.finished_s is None:
            lives[app] = life
    new = sorted(
        (max(life.joined_s, 0.0), app) for app, life in present.items() if app not in lives
    )
    at_s = clock.now_s
    for joined_s, app in new:
        if at_s < joined_s <= now_s:
            _run(lives, at_s, joined_s, gpus)
            at_s = joined_s
        lives[app] = present[app]
    _run(lives, at_s, now_s, gpus)
    return FairClock(now_s, lives)


def forecasts(clock: FairClock, gpus: int) -> dict[str, Forecast]:
    """When each app is done on the virtual cluster if nobody joins."""
    water = _Water(clock.lives, gpus)
    level = water.level()
    out = {}
    for app, life in clock.lives.items():
        if life.finished_s is not None:
            out[app] = Forecast(life.finished_s, max(1e-9, level * life.weight))
    left = {app: sum(p.gpu_s for p in life.left) for app, life in clock.lives.items()}
    for app, after_s in water.run(math.inf):
        share = left[app] / after_s if after_s > 0 else level * clock.lives[app].weight
        out[app] = Forecast(clock.now_s + after_s, max(1e-9, share))
    return out


def _revised(life: Life, word: Life, at_s: float) -> Life:
    """An app's life with what it says now of its work and weight; ``at_s``: where it stands."""
    if life.weight != word.weight or life.phases != word.phases:
        life = replace(life, weight=word.weight, phases=word.phases)
    if life.left:
        return replace(life, finished_s=None)  # perhaps there is more work than it had said
    return life if life.finished_s is not None else replace(life, finished_s=at_s)


def _run(lives: dict[str, Life], from_s: float, to_s: float, gpus: int) -> None:
    """Let the virtual cluster run; changes ``lives`` in place."""
    if to_s <= from_s:
        return
    water = _Water(lives, gpus)
    ended = dict(water.run(to_s - from_s))
    for app, done in zip(water.apps, water.done_gpu_s(), strict=True):
        life = lives[app]  # dataclasses.replace() takes several times as long
        lives[app] = Life(life.joined_s, life.weight, life.phases, done, life.finished_s)
    for app, after_s in ended.items():
        work = math.fsum(phase.gpu_s for phase in lives[app].phases)
        lives[app] = replace(lives[app], done_gpu_s=work, finished_s=from_s + after_s)


class _Water:
    """The unfinished apps in arrays, and GPUs that flow."""

    def __init__(self, lives: Mapping[str, Life], gpus: int) -> None:
        self.gpus = float(gpus)
        self.apps = [app for app, life in lives.items() if life.finished_s is None]
        some = [lives[app] for app in self.apps]
        self._done = np.array([life.done_gpu_s for life in some])
        self._weight = np.array([life.weight for life in some])
        self._todo = [life.left[::-1] for life in some]
        self._left = np.zeros(len(some))
        self._most = np.zeros(len(some))
        for i in range(len(some)):
            self._next_phase(i)

    def level(self) -> float:
        """GPUs that an app of weight 1 that could use any number would have now."""
        live = self._most > 0
        weights = float(self._weight[live].sum())
        if not weights:
            return self.gpus
        rate = water_fill(self._most, self._weight, self.gpus)
        per_weight = rate[live] / self._weight[live]
        spare = self.gpus - float(rate.sum())
        return float(per_weight.max(initial=0.0)) if spare <= 1e-9 else self.gpus / weights

    def done_gpu_s(self) -> Iterable[float]:
        """What has been done of each app so far."""
        return (float(x) for x in self._done)

    def run(self, for_s: float) -> list[tuple[str, float]]:
        """Run for a time, or to the end; the apps that end, and after how long."""
        ended = []
        at_s = 0.0
        while at_s < for_s and (self._most > 0).any():
            rate = water_fill(self._most, self._weight, self.gpus)
            with np.errstate(divide="ignore", invalid="ignore"):
                ends = np.where(rate > 0, self._left / rate, math.inf)
            step_s = min(float(ends.min()), for_s - at_s)
            self._left = self._left - rate * step_s
            self._done = self._done + rate * step_s
            at_s += step_s
            for i in np.flatnonzero(ends <= step_s * (1 + 1e-12)):
                if not self._next_phase(int(i)):
                    ended.append((self.apps[i], at_s))
        return ended

    def _next_phase(self, i: int) -> bool:
        if not self._todo[i]:
            self._left[i] = self._most[i] = 0.0
            return False
        phase = self._todo[i].pop()
        self._left[i] = max(phase.gpu_s, NO_WORK_GPU_S)
        self._most[i] = min(self.gpus, max(phase.gpus, 1e-9))
        return True


def phases_or(phases: Sequence[PhaseWork], gpu_s: float, gpus: float) -> tuple[PhaseWork, ...]:
    """The phases that an app tells, or one made up from its work when it tells none."""
    some = tuple(phase for phase in phases if phase.gpu_s > NO_WORK_GPU_S)
    return some or (PhaseWork(max(gpu_s, 2 * NO_WORK_GPU_S), max(gpus, 1e-9)),)
