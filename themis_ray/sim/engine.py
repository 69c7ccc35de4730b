"""Virtual time: a heap of what is to happen, with ties in the order in which they were set."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any


class Engine:
    """Runs calls at virtual times.

    Attributes:
        now: The virtual time, in seconds.
    """

    __slots__ = ("_heap", "_serial", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._serial = 0

    def at(self, time_s: float, call: Callable[..., None], *args: Any) -> None:
        """Have ``call(*args)`` run at a time; calls of one time run in the order of this call.

        Calls cannot be taken back: what they are about carries a version, and a call whose
        version is past does nothing.
        """
        self._serial += 1
        heapq.heappush(self._heap, (max(time_s, self.now), self._serial, call, args))

    def next_s(self) -> float:
        """When the next call is due; ``inf`` for never."""
        return self._heap[0][0] if self._heap else math.inf

    def run_due(self, time_s: float) -> None:
        """Move on to a time and run all that is due by then, also what comes up meanwhile."""
        self.now = time_s
        heap = self._heap
        while heap and heap[0][0] <= time_s:
            _, _, call, args = heapq.heappop(heap)
            call(*args)
