"""How long an iteration takes: CUDA events on a GPU, a monotonic clock otherwise."""

from __future__ import annotations

import statistics
import time
from collections import deque
from typing import Any

import torch


class IterationTimer:
    """Seconds per iteration, median over a sliding window, warm-up dropped.

    Args:
        device: Where the iterations run. On CUDA nothing waits for the GPU until
            ``seconds`` is read: the time between two events is measured by the GPU itself.
        warmup: First iterations to leave out (allocation, autotuning, a cold cache).
        window: Iterations the median is taken over.
    """

    def __init__(self, device: Any, warmup: int = 2, window: int = 50) -> None:
        self._cuda = device.type == "cuda"
        self._warmup = warmup
        self._seen = 0
        self._settled: deque[float] = deque(maxlen=window)
        self._first: deque[float] = deque(maxlen=1)
        self._pending: list[tuple[Any, Any]] = []
        self._started: Any = None

    def start(self) -> None:
        """Mark the start of an iteration."""
        self._started = self._mark()

    def stop(self) -> None:
        """Mark the end of the iteration."""
        self._pending.append((self._started, self._mark()))

    @property
    def seconds(self) -> float:
        """Median seconds per iteration; of the warm-up as long as there is nothing else."""
        self._collect()
        measured = self._settled or self._first
        return statistics.median(measured) if measured else float("nan")

    def _mark(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _collect(self) -> None:
        for begin, end in self._pending:
            self._seen += 1
            home = self._settled if self._seen > self._warmup else self._first
            home.append(self._elapsed(begin, end))
        self._pending.clear()

    def _elapsed(self, begin: Any, end: Any) -> float:
        if not self._cuda:
            return float(end - begin)
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3
