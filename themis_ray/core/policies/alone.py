"""Apps on a virtual cluster that has as many GPUs as all of them can use.

Nobody hangs on anybody else there, so an app's standing follows from the time alone: nothing needs
to be followed from event to event, and an app costs time only when it comes, ends or is looked at.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping

from themis_ray.core.policies.life import LEAST_SHARE, NO_WORK_GPU_S, Forecast, Life
from themis_ray.core.policies.water import LEAST_GPUS, TOGETHER


def most_of(life: Life, gpus: int) -> float:
    """GPUs that an app of one phase can use."""
    return max(LEAST_GPUS, min(float(gpus), life.phases[0].gpus))


class Alone(Mapping[str, Life]):
    """The apps as they stand at a time, worked out when they are looked at.

    Attributes:
        words: The apps as they stood when they came here, or ended.
        gpus: GPUs in the cluster.
    """

    def __init__(self, gpus: int, now_s: float) -> None:
        self.words: dict[str, Life] = {}
        self.gpus = gpus
        self._now_s = now_s
        # When the apps that are not done came here, and when they will be done.
        self._since: dict[str, float] = {}
        self._ends: list[tuple[float, str]] = []
        self._most = 0.0
        self._level: float | None = None

    @classmethod
    def of(cls, lives: Mapping[str, Life], now_s: float, gpus: int) -> Alone | None:
        """Apps that stand like that at a time; None when there are not GPUs enough for all."""
        made = cls(gpus, now_s)
        for app, life in lives.items():
            if life.finished_s is not None:
                made.words[app] = life
            elif not made._come(app, life, now_s):
                return None
        return made

    def _come(self, app: str, life: Life, since_s: float) -> bool:
        """An app comes; False when it is not in its last phase, or GPUs get scarce."""
        if len(life.phases) > 1 or life.done_gpu_s >= life.phases[0].gpu_s - NO_WORK_GPU_S:
            return False
        most = most_of(life, self.gpus)
        self._most += most
        if self._most > self.gpus:
            return False
        self.words[app], self._since[app] = life, since_s
        left_gpu_s = max(life.phases[0].gpu_s - life.done_gpu_s, NO_WORK_GPU_S)
        heapq.heappush(self._ends, (since_s + left_gpu_s / most, app))
        return True

    def later(self, present: Mapping[str, Life], now_s: float, gpus: int) -> Alone | None:
        """The apps at a later time.

        Args:
            present: The apps of the real cluster; those of which nothing new is known as in
                :attr:`words`. Whoever is missing goes on until it is done.
            now_s: The time.
            gpus: GPUs in the cluster.

        Returns:
            None when it cannot be said without following the apps from event to event.
        """
        words = self.words
        new = [(life.joined_s, app) for app, life in present.items() if words.get(app) is not life]
        known = any(app in words for _, app in new)
        if known or gpus != self.gpus or any(joined_s > now_s for joined_s, _ in new):
            return None
        out = Alone(gpus, now_s)
        out.words, out._since, out._ends = dict(words), dict(self._since), self._ends.copy()
        out._most = self._most
        for app in words.keys() - present.keys():
            if words[app].finished_s is not None:
                del out.words[app]
        for joined_s, app in sorted(new):
            if not out._come(app, present[app], max(self._now_s, joined_s)):
                return None
        out._end()
        return out

    def _end(self) -> None:
        """Those that are done by now are so."""
        while self._ends:
            end_s, app = self._ends[0]
            since_s = self._since[app]
            if end_s - since_s > (self._now_s - since_s) * (1 + TOGETHER):
                return
            heapq.heappop(self._ends)
            del self._since[app]
            life = self.words[app]
            self._most -= most_of(life, self.gpus)
            work = life.phases[0].gpu_s
            self.words[app] = Life(life.joined_s, life.weight, life.phases, work, end_s)
        if not self._ends:
            self._most = 0.0  # errors of rounding do not add up

    # -- looking ---------------------------------------------------------------------------

    def __getitem__(self, app: str) -> Life:
        life = self.words[app]
        if app not in self._since:
            return life
        more = (self._now_s - self._since[app]) * most_of(life, self.gpus)
        return Life(life.joined_s, life.weight, life.phases, life.done_gpu_s + more)

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def __len__(self) -> int:
        return len(self.words)

    def forecast(self, app: str) -> Forecast:
        """When an app is done if nobody joins."""
        life = self.words[app]
        if life.finished_s is not None:
            return Forecast(life.finished_s, max(LEAST_SHARE, self._height() * life.weight))
        most = most_of(life, self.gpus)
        left_gpu_s = max(life.phases[0].gpu_s - self[app].done_gpu_s, NO_WORK_GPU_S)
        return Forecast(self._now_s + left_gpu_s / most, max(LEAST_SHARE, most))

    def _height(self) -> float:
        """GPUs that an app of weight 1 that could use any number would have now."""
        if self._level is None:
            self._level = self._height_over([self.words[app] for app in self._since])
        return self._level

    def _height_over(self, live: Iterable[Life]) -> float:
        weights = sum(life.weight for life in live)
        if not weights:
            return float(self.gpus)
        if self.gpus - self._most <= LEAST_GPUS:
            return max(most_of(life, self.gpus) / life.weight for life in live)
        return self.gpus / weights


class AloneForecasts(Mapping[str, Forecast]):
    """What is to be expected of such apps, worked out when it is looked at."""

    def __init__(self, lives: Alone) -> None:
        self._lives = lives

    def __getitem__(self, app: str) -> Forecast:
        return self._lives.forecast(app)

    def __iter__(self) -> Iterator[str]:
        return iter(self._lives)

    def __len__(self) -> int:
        return len(self._lives)
