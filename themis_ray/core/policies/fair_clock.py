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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from themis_ray.core.fairness import PhaseWork
from themis_ray.core.policies.alone import Alone, AloneForecasts
from themis_ray.core.policies.life import LEAST_SHARE, NO_WORK_GPU_S, Forecast, Life
from themis_ray.core.policies.water import Taker, Water


@dataclass(frozen=True, slots=True)
class FairClock:
    """The virtual cluster at a time.

    Attributes:
        now_s: The time.
        lives: The apps on it, by id.
    """

    now_s: float = 0.0
    lives: Mapping[str, Life] = field(default_factory=dict)

    @property
    def words(self) -> Mapping[str, Life]:
        """The apps' last words on their work, by id; how much is done may be out of date."""
        return self.lives.words if isinstance(self.lives, Alone) else self.lives


def advanced(clock: FairClock, present: Mapping[str, Life], now_s: float, gpus: int) -> FairClock:
    """The clock at ``now_s``.

    Args:
        clock: The clock before.
        present: The apps of the real cluster, as they are known now; those that the clock does
            not know yet arrive at their ``joined_s``. One of which nothing new is known may be
            given as it stands in :attr:`FairClock.words`, which saves time.
        now_s: The time, in seconds.
        gpus: GPUs in the cluster.
    """
    if isinstance(clock.lives, Alone):
        soon = clock.lives.later(present, now_s, gpus)
        if soon is not None:
            return FairClock(now_s, soon)
    lives: dict[str, Life] = {}
    for app, life in clock.lives.items():
        word = present.get(app)
        if word is not None and word.joined_s == life.joined_s:
            lives[app] = _revised(life, word, clock.now_s)
        elif word is None and life.finished_s is None:
            lives[app] = life
    new = sorted(
        (max(life.joined_s, 0.0), app) for app, life in present.items() if app not in lives
    )
    alone = Alone.of(lives, clock.now_s, gpus)
    if alone is not None:
        all_lives = {**lives, **{app: present[app] for _, app in new}}
        alone = alone.later(all_lives, now_s, gpus)
    if alone is not None:
        return FairClock(now_s, alone)
    run = _Run(lives, clock.now_s, gpus)
    for joined_s, app in new:
        if run.now_s < joined_s <= now_s:
            run.until(joined_s)
        run.join(app, present[app])
    run.until(now_s)
    return FairClock(now_s, run.lives())


def forecasts(clock: FairClock, gpus: int) -> Mapping[str, Forecast]:
    """When each app is done on the virtual cluster if nobody joins."""
    alone = clock.lives if isinstance(clock.lives, Alone) else None
    if alone is None or alone.gpus != gpus:
        alone = Alone.of(clock.lives, clock.now_s, gpus)
    if alone is not None:
        return AloneForecasts(alone)
    water, left_gpu_s = _water(clock.lives, gpus)
    level = water.level
    out = {}
    for app, life in clock.lives.items():
        if life.finished_s is not None:
            out[app] = Forecast(life.finished_s, max(LEAST_SHARE, level * life.weight))
    for app, after_s in water.run(math.inf):
        share = left_gpu_s[app] / after_s if after_s > 0 else level * clock.lives[app].weight
        out[app] = Forecast(clock.now_s + after_s, max(LEAST_SHARE, share))
    return out


def _revised(life: Life, word: Life, at_s: float) -> Life:
    """An app's life with what it says now of its work and weight; ``at_s``: where it stands."""
    if life.weight != word.weight or life.phases != word.phases:
        life = replace(life, weight=word.weight, phases=word.phases)
    elif life.finished_s is not None:
        return life
    if life.finished_s is None and life.done_gpu_s < life.phases[-1].gpu_s - NO_WORK_GPU_S:
        return life  # there is a phase that is not done
    if life.left:
        return replace(life, finished_s=None)  # perhaps there is more work than it had said
    return life if life.finished_s is not None else replace(life, finished_s=at_s)


class _Run:
    """The virtual cluster on its way from one time to another.

    Args:
        lives: The apps; changed in place.
        from_s: The time.
        gpus: GPUs in the cluster.
    """

    def __init__(self, lives: dict[str, Life], from_s: float, gpus: int) -> None:
        self.now_s = self._from_s = from_s
        self._lives = lives
        self._water = _water(lives, gpus)[0]

    def join(self, app: str, life: Life) -> None:
        """An app arrives."""
        self._lives[app] = life
        if life.finished_s is None:
            self._water.join(Taker(app, life.weight, life.left, life.done_gpu_s))

    def until(self, to_s: float) -> None:
        """Let time pass."""
        if to_s <= self.now_s:
            return
        for app, after_s in self._water.run(to_s - self._from_s):
            life = self._lives[app]
            work = math.fsum(phase.gpu_s for phase in life.phases)
            self._lives[app] = replace(life, done_gpu_s=work, finished_s=self._from_s + after_s)
        self.now_s = to_s

    def lives(self) -> dict[str, Life]:
        """The apps as they stand now."""
        if self.now_s > self._from_s:
            for taker in self._water.takers:
                life = self._lives[taker.app]
                if life.finished_s is None:  # dataclasses.replace() takes several times as long
                    done = self._water.done_gpu_s(taker)
                    self._lives[taker.app] = Life(life.joined_s, life.weight, life.phases, done)
        return self._lives


def _water(lives: Mapping[str, Life], gpus: int) -> tuple[Water, dict[str, float]]:
    """The unfinished apps on the water, and how much work each has left."""
    takers, work = [], {}
    for app, life in lives.items():
        if life.finished_s is None:
            left = life.left
            takers.append(Taker(app, life.weight, left, life.done_gpu_s))
            work[app] = sum(phase.gpu_s for phase in left)
    return Water(float(gpus), takers, NO_WORK_GPU_S), work


def phases_or(phases: Sequence[PhaseWork], gpu_s: float, gpus: float) -> tuple[PhaseWork, ...]:
    """The phases that an app tells, or one made up from its work when it tells none."""
    some = tuple([phase for phase in phases if phase.gpu_s > NO_WORK_GPU_S])
    return some or (PhaseWork(max(gpu_s, 2 * NO_WORK_GPU_S), max(gpus, 1e-9)),)
