"""GPUs that are divided like water among apps, followed from event to event.

At any time each app has its share by weight, but no more than its phase can use, and what it cannot
use goes to the others: the water stands at one *level* (GPUs per weight) for all that could use
more, who *float*; the others are *full*. The level changes only when a phase begins or ends. In
between, whoever is full ends at a known time, and those that float end in the order of what is
left per weight, since they all rise by the same. So heaps do, and n phases take O(n log n). When
the level falls, whoever stands out of the water then is looked for among all.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence

from themis_ray.core.fairness import PhaseWork

# Ends that are this near to each other, as a part of the time since the event before, are one.
TOGETHER = 1e-12
# So small a part of the cluster is an error of rounding.
NOISE = 1e-10
LEAST_GPUS = 1e-9


class Taker:
    """An app on the water.

    Attributes:
        app: Its name.
        weight: Its weight.
        done_gpu_s: What has been done of it, as of when it last became full, afloat, or done.
    """

    __slots__ = ("_todo", "app", "done_gpu_s", "end", "full", "level", "most", "since", "weight")

    def __init__(
        self, app: str, weight: float, phases: Sequence[PhaseWork], done_gpu_s: float
    ) -> None:
        self.app = app
        self.weight = weight
        self.done_gpu_s = done_gpu_s
        self._todo = phases[::-1]
        self.full = False
        self.most = self.level = 0.0
        self.since = 0.0  # time if it is full, risen if it floats
        self.end: float | None = None  # likewise; None when it is done

    def next_phase(self, gpus: float, least_gpu_s: float) -> float | None:
        """Begin a phase; what it takes in GPU-seconds, or None when there is none."""
        if not self._todo:
            return None
        phase, self._todo = self._todo[-1], self._todo[:-1]
        self.most = max(LEAST_GPUS, min(gpus, phase.gpus))
        self.level = self.most / self.weight
        return max(phase.gpu_s, least_gpu_s)


_Heap = list[tuple[float, int, Taker]]


class Water:
    """The apps that are not done, and GPUs that flow.

    Args:
        gpus: GPUs in the cluster.
        takers: The apps that are there at time 0.
        least_gpu_s: A phase has at least so much work.
    """

    def __init__(self, gpus: float, takers: Iterable[Taker], least_gpu_s: float) -> None:
        self.gpus = gpus
        self.now_s = 0.0
        self.takers: list[Taker] = []
        self._least_gpu_s = least_gpu_s
        self._risen = 0.0  # GPU-seconds per weight that whoever floats has had since time 0
        self._full = self._floating = 0
        self._full_gpus = self._floating_weight = 0.0
        # Entries whose app has changed sides or phase since stay in the heaps until they come up.
        self._full_ends: _Heap = []
        self._floating_ends: _Heap = []
        self._greatest_full = 0.0  # nobody who is full is so at a higher level
        self._floating_levels: _Heap = []
        self._begin([(taker, taker.next_phase(gpus, least_gpu_s)) for taker in takers])

    def _begin(self, some: Sequence[tuple[Taker, float | None]]) -> None:
        self.takers = [taker for taker, _ in some]
        plenty = sum(taker.most for taker in self.takers) <= self.gpus
        for i, (taker, work) in enumerate(some):
            if work is not None:
                self._enter(i, taker, work, full=plenty)
        self._settle()

    def join(self, taker: Taker) -> None:
        """An app comes."""
        self.takers.append(taker)
        work = taker.next_phase(self.gpus, self._least_gpu_s)
        if work is not None:
            self._enter(len(self.takers) - 1, taker, work, full=False)
            self._settle()

    # -- who floats ------------------------------------------------------------------------

    @property
    def level(self) -> float:
        """GPUs that an app of weight 1 that could use any number would have now."""
        if self._floating:
            return self._height()
        if not self._full:
            return self.gpus
        if self.gpus - self._full_gpus <= LEAST_GPUS:
            return max(t.level for t in self.takers if t.end is not None)
        return self.gpus / sum(t.weight for t in self.takers if t.end is not None)

    def _height(self) -> float:
        return max(LEAST_GPUS, self.gpus - self._full_gpus) / self._floating_weight

    def _bounds(self) -> tuple[float, float]:
        """Whoever floats at a level up to the first is full; who is full above the second floats.

        They are a little apart, or rounding could have an app change sides for ever.
        """
        left, slack = self.gpus - self._full_gpus, self.gpus * NOISE
        if self._floating:
            return left / self._floating_weight, (left + slack) / self._floating_weight
        return math.inf, 0.0 if left < -slack else math.inf

    def _enter(self, i: int, taker: Taker, work: float, *, full: bool) -> None:
        """An app with so much work left in its phase is full, or floats, from now on."""
        taker.full = full
        if full:
            taker.since, taker.end = self.now_s, self.now_s + work / taker.most
            self._full += 1
            self._full_gpus += taker.most
            heapq.heappush(self._full_ends, (taker.end, i, taker))
            if taker.level > self._greatest_full:
                self._greatest_full = taker.level
        else:
            taker.since, taker.end = self._risen, self._risen + work / taker.weight
            self._floating += 1
            self._floating_weight += taker.weight
            heapq.heappush(self._floating_ends, (taker.end, i, taker))
            heapq.heappush(self._floating_levels, (taker.level, i, taker))

    def _exit(self, taker: Taker) -> float:
        """An app is neither any more; the work that is left in its phase."""
        assert taker.end is not None
        taker.done_gpu_s = self.done_gpu_s(taker)
        # Sums begin at 0 again when they can, so that errors do not add up.
        if taker.full:
            self._full -= 1
            self._full_gpus = self._full_gpus - taker.most if self._full else 0.0
            return (taker.end - self.now_s) * taker.most
        self._floating -= 1
        self._floating_weight = self._floating_weight - taker.weight if self._floating else 0.0
        return (taker.end - self._risen) * taker.weight

    def _settle(self) -> None:
        """Whoever the water reaches up to is full; whoever stands out of it floats again."""
        rising = self._floating_levels
        while True:
            up_to, above = self._bounds()
            if self._greatest_full > above:
                self._unsettle(above)
            elif rising and rising[0][0] <= up_to:
                level, i, taker = heapq.heappop(rising)
                if not taker.full and taker.end is not None and taker.level == level:
                    self._enter(i, taker, self._exit(taker), full=True)
            else:
                return

    def _unsettle(self, above: float) -> None:
        """Of those that are full and stand out of the water, the one that does most floats."""
        full = [(t.level, i) for i, t in enumerate(self.takers) if t.full and t.end is not None]
        level, i = max(full, default=(0.0, 0))
        self._greatest_full = level
        if level > above:
            taker = self.takers[i]
            self._enter(i, taker, self._exit(taker), full=False)

    # -- time ------------------------------------------------------------------------------

    def done_gpu_s(self, taker: Taker) -> float:
        """What has been done of an app by now."""
        if taker.end is None:
            return taker.done_gpu_s
        if taker.full:
            return taker.done_gpu_s + (self.now_s - taker.since) * taker.most
        return taker.done_gpu_s + (self._risen - taker.since) * taker.weight

    def run(self, until_s: float) -> list[tuple[str, float]]:
        """Run up to a time, or to the end; the apps that end, and when."""
        ended: list[tuple[str, float]] = []
        while self._full or self._floating:
            height = self._height() if self._floating else 0.0
            step_s = min(self._next_full_s(), self._next_floating_s(height))
            if step_s > (until_s - self.now_s) * (1 + TOGETHER):
                self._pass(until_s - self.now_s, height)
                break
            self._pass(step_s, height)
            near_s = step_s * TOGETHER
            over: list[tuple[int, Taker]] = []
            while self._next_full_s() <= near_s:
                over.append(self._ended(self._full_ends))
            while self._next_floating_s(height) <= near_s:
                over.append(self._ended(self._floating_ends))
            for i, taker in over:
                work = taker.next_phase(self.gpus, self._least_gpu_s)
                if work is None:
                    ended.append((taker.app, self.now_s))
                else:
                    self._enter(i, taker, work, full=False)
            self._settle()
        self.now_s = max(self.now_s, until_s)
        return ended

    def _ended(self, heap: _Heap) -> tuple[int, Taker]:
        """The app that comes up in a heap is done with its phase."""
        _, i, taker = heapq.heappop(heap)
        self._exit(taker)
        taker.end = None
        return i, taker

    def _pass(self, step_s: float, height: float) -> None:
        if step_s > 0:
            self.now_s += step_s
            self._risen += step_s * height

    def _next_full_s(self) -> float:
        """How long it takes until the next one of those that are full ends; infinite for never."""
        heap = self._full_ends
        while heap and not (heap[0][2].full and heap[0][2].end == heap[0][0]):
            heapq.heappop(heap)
        return max(0.0, heap[0][0] - self.now_s) if heap else math.inf

    def _next_floating_s(self, height: float) -> float:
        """Likewise of those that float."""
        heap = self._floating_ends
        while heap and (heap[0][2].full or heap[0][2].end != heap[0][0]):
            heapq.heappop(heap)
        return max(0.0, (heap[0][0] - self._risen) / height) if heap and height else math.inf
