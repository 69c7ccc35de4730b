"""How long an iteration takes: CUDA events on a GPU, a monotonic clock otherwise."""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

# Pending CUDA events beyond which those that have come to pass are read, so that a loop that never
# asks for its timing keeps no events for ever.
_MANY_PENDING = 64


@dataclass(frozen=True, slots=True)
class Timing:
    """Iteration times in brief.

    Attributes:
        median_s: Seconds per iteration; NaN when nothing was measured.
        spread_s: Interquartile range, in seconds; 0 for fewer than two iterations.
        count: Iterations measured, warm-up not counted.
    """

    median_s: float
    spread_s: float
    count: int

    @classmethod
    def of(cls, times_s: Iterable[float]) -> Timing:
        """Sum up some iterations."""
        known = list(times_s)
        if not known:
            return cls(math.nan, 0.0, 0)
        spread = 0.0
        if len(known) > 1:
            low, _, high = statistics.quantiles(known, n=4, method="inclusive")
            spread = high - low
        return cls(statistics.median(known), spread, len(known))


class IterationTimer:
    """Seconds per iteration, median and spread over a sliding window, warm-up dropped.

    Args:
        device: Where the iterations run, a ``torch.device``. On CUDA nothing waits for the GPU
            until a figure is read: the time between two events is measured by the GPU itself.
        warmup: First iterations to leave out (allocation, autotuning, a cold cache).
        window: Iterations that figures are taken over.
    """

    def __init__(self, device: Any, warmup: int = 2, window: int = 50) -> None:
        self._cuda = device.type == "cuda"
        self._warmup = warmup
        self._seen = 0
        self._settled: deque[float] = deque(maxlen=window)
        self._first: deque[float] = deque(maxlen=1)
        self._pending: deque[tuple[Any, Any]] = deque()
        self._started: Any = None

    def start(self) -> None:
        """Mark the start of an iteration."""
        self._started = self._mark()

    def stop(self) -> None:
        """Mark the end of the iteration."""
        self._pending.append((self._started, self._mark()))
        if len(self._pending) > _MANY_PENDING:
            self._collect(wait=False)

    @property
    def seconds(self) -> float:
        """Median seconds per iteration; of the warm-up as long as there is nothing else."""
        self._collect()
        measured = self._settled or self._first
        return statistics.median(measured) if measured else math.nan

    @property
    def timing(self) -> Timing:
        """Median, spread and count, without the warm-up."""
        self._collect()
        return Timing.of(self._settled)

    def _mark(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _collect(self, *, wait: bool = True) -> None:
        while self._pending:
            begin, end = self._pending[0]
            if self._cuda and not wait and not end.query():
                return
            self._pending.popleft()
            self._seen += 1
            home = self._settled if self._seen > self._warmup else self._first
            home.append(self._elapsed(begin, end))

    def _elapsed(self, begin: Any, end: Any) -> float:
        if not self._cuda:
            return float(end - begin)
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3
