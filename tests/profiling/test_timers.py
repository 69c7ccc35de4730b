"""Iteration timers, on the clock and with events as CUDA's."""

from __future__ import annotations

import itertools
import math
import statistics
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis_ray.profiling import timers
from themis_ray.profiling.timers import IterationTimer, Timing

CPU, CUDA = SimpleNamespace(type="cpu"), SimpleNamespace(type="cuda")


def run(timer: IterationTimer, durations: list[float], patch: pytest.MonkeyPatch) -> None:
    """Have iterations last so long, with a second between them."""
    ticks = itertools.accumulate(x for d in durations for x in (1.0, d))
    patch.setattr(timers.time, "perf_counter", lambda: next(ticks))
    for _ in durations:
        timer.start()
        timer.stop()


def test_the_warm_up_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = IterationTimer(CPU, warmup=2, window=3)
    assert math.isnan(timer.seconds)
    run(timer, [9.0, 7.0], monkeypatch)
    assert timer.seconds == 7.0  # better than nothing
    assert timer.timing.count == 0
    run(timer, [50.0, 2.0, 4.0, 3.0], monkeypatch)
    assert timer.seconds == 3.0  # the window has lost the slow one
    assert timer.timing == Timing(3.0, 1.0, 3)


@given(st.lists(st.floats(0.001, 1e3), min_size=1, max_size=60))
def test_median_and_spread(times: list[float]) -> None:
    timing = Timing.of(times)
    assert timing.median_s == statistics.median(times)
    assert 0 <= timing.spread_s <= max(times) - min(times)
    assert timing.count == len(times)


class Event:
    """As ``torch.cuda.Event`` on a GPU that is behind: an event comes to pass later."""

    clock = itertools.count()
    reached = -1
    waits = 0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at = next(Event.clock)

    def query(self) -> bool:
        return self.at <= Event.reached

    def synchronize(self) -> None:
        if not self.query():
            Event.waits, Event.reached = Event.waits + 1, self.at

    def elapsed_time(self, end: Any) -> float:
        return float(end.at - self.at) * 500


def test_events_are_read_when_asked_for_or_when_many_have_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "Event", Event)
    timer = IterationTimer(CUDA)

    def iterate(times: int) -> None:
        for _ in range(times):
            timer.start()
            timer.stop()

    iterate(200)
    # The GPU has not got anywhere: nothing was waited for, and nothing could be read.
    assert (Event.waits, len(timer._pending)) == (0, 200)
    Event.reached = 2 * 150
    iterate(1)
    assert (Event.waits, len(timer._pending)) == (0, 51)
    assert timer.timing == Timing(0.5, 0.0, 50)
    assert Event.waits > 0
