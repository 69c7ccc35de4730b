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

from themis_ray.core.fairness import PhaseWork
from themis_ray.core.policies.water import LEAST_GPUS, TOGETHER, Taker, Water

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
        done = self.done_gpu_s
        if len(self.phases) == 1:  # the usual case
            phase = self.phases[0]
            over = done >= phase.gpu_s - NO_WORK_GPU_S
            return [] if over else [PhaseWork(phase.gpu_s - done, phase.gpus)]
        out = []
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
    if (
        all(joined_s <= now_s for joined_s, _ in new)
        and _most_in_all([*lives.values(), *(present[app] for _, app in new)], gpus) is not None
    ):
        for app, life in lives.items():
            lives[app] = _alone(life, clock.now_s, now_s, gpus)
        for joined_s, app in new:
            lives[app] = _alone(present[app], max(clock.now_s, joined_s), now_s, gpus)
        return FairClock(now_s, lives)
    run = _Run(lives, clock.now_s, gpus)
    for joined_s, app in new:
        if run.now_s < joined_s <= now_s:
            run.until(joined_s)
        run.join(app, present[app])
    run.until(now_s)
    return FairClock(now_s, run.lives())


def forecasts(clock: FairClock, gpus: int) -> dict[str, Forecast]:
    """When each app is done on the virtual cluster if nobody joins."""
    most_in_all = _most_in_all(clock.lives.values(), gpus)
    if most_in_all is not None:
        return _forecasts_alone(clock, gpus, most_in_all)
    water, left_gpu_s = _water(clock.lives, gpus)
    level = water.level
    out = {}
    for app, life in clock.lives.items():
        if life.finished_s is not None:
            out[app] = Forecast(life.finished_s, max(1e-9, level * life.weight))
    for app, after_s in water.run(math.inf):
        share = left_gpu_s[app] / after_s if after_s > 0 else level * clock.lives[app].weight
        out[app] = Forecast(clock.now_s + after_s, max(1e-9, share))
    return out


def _most(life: Life, gpus: int) -> float:
    """GPUs that an app of one phase can use."""
    return max(LEAST_GPUS, min(float(gpus), life.phases[0].gpus))


def _most_in_all(lives: Iterable[Life], gpus: int) -> float | None:
    """GPUs that all apps can use, when all of them have that many and are in their last phase.

    Nobody hangs on anybody else then, and there is nothing to be followed from event to event.
    None when it is not so.
    """
    most = 0.0
    for life in lives:
        if life.finished_s is None:
            if len(life.phases) > 1 or life.done_gpu_s >= life.phases[0].gpu_s - NO_WORK_GPU_S:
                return None
            most += _most(life, gpus)
            if most > gpus:
                return None
    return most


def _alone(life: Life, from_s: float, to_s: float, gpus: int) -> Life:
    """An app that has all GPUs that it can use for a time."""
    if life.finished_s is not None or to_s <= from_s:
        return life
    work, most = life.phases[0].gpu_s, _most(life, gpus)
    after_s = max(work - life.done_gpu_s, NO_WORK_GPU_S) / most
    if after_s <= (to_s - from_s) * (1 + TOGETHER):
        return Life(life.joined_s, life.weight, life.phases, work, from_s + after_s)
    done_gpu_s = life.done_gpu_s + (to_s - from_s) * most
    return Life(life.joined_s, life.weight, life.phases, done_gpu_s)


def _forecasts_alone(clock: FairClock, gpus: int, most_in_all: float) -> dict[str, Forecast]:
    live = [life for life in clock.lives.values() if life.finished_s is None]
    if live and gpus - most_in_all <= LEAST_GPUS:
        level = max(_most(life, gpus) / life.weight for life in live)
    else:
        level = gpus / sum(life.weight for life in live) if live else float(gpus)
    out = {}
    for app, life in clock.lives.items():
        if life.finished_s is None:
            most = _most(life, gpus)
            left_s = max(life.phases[0].gpu_s - life.done_gpu_s, NO_WORK_GPU_S) / most
            out[app] = Forecast(clock.now_s + left_s, max(1e-9, most))
        else:
            out[app] = Forecast(life.finished_s, max(1e-9, level * life.weight))
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
    if len(some) == len(phases) and isinstance(phases, tuple):
        some = phases  # itself, so that it is known again quickly
    return some or (PhaseWork(max(gpu_s, 2 * NO_WORK_GPU_S), max(gpus, 1e-9)),)
