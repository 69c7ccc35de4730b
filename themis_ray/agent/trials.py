"""What the AGENT knows of each trial: how much is left of it, how fast it goes, where it runs."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from themis_ray.core.cluster import NOTHING, Allocation
from themis_ray.core.slowdown import Signature, SlowdownTable

# Reports kept for the median; enough to outvote a hiccup, few enough to follow a change.
WINDOW = 15


class TrialPhase(Enum):
    """Where a trial stands with its GPUs."""

    IDLE = "idle"  # the tuning algorithm holds it back
    WAITING = "waiting"  # it has asked for a lease
    PLACED = "placed"  # its placement group has been asked for
    RUNNING = "running"
    LEAVING = "leaving"  # it has been told to pause
    DONE = "done"


@dataclass(slots=True)
class IterationTimer:
    """Seconds of one iteration on one GPU, from reports made on any number of GPUs.

    Attributes:
        slowdown: Where measured placement slowdowns go, and where S(G) comes from.
        restart_s: Seconds from a group's grant to the first report, less one iteration.
        first_s: A first iteration, which is often slow (caches, autotuning), as serial seconds:
            it counts until there is another, so that trials whose leases are over after one
            iteration are timed too.
    """

    slowdown: SlowdownTable
    restart_s: float = 5.0
    first_s: float | None = None
    _serial: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _single: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _single_steps: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _placed: dict[Signature, deque[float]] = field(default_factory=dict)

    def record_first(self, iter_s: float, signature: Signature) -> None:
        """Take in the first iteration of a lease, as :meth:`record` does the others."""
        if 0 < iter_s < float("inf"):
            self.first_s = iter_s * max(1, sum(signature.parts)) / self.slowdown.s(signature)

    def record(self, iter_s: float, signature: Signature, step_s: float | None = None) -> None:
        """Take in one iteration.

        Args:
            iter_s: Its duration, in seconds; non-positive values are passed over.
            signature: The GPUs that it ran on.
            step_s: Seconds of a training step within it by the trial's own timer. Where there
                is one it tells S(G): an iteration also evaluates and saves, as fast anywhere.
        """
        if not 0 < iter_s < float("inf"):
            return
        gpus = max(1, sum(signature.parts))
        if gpus == 1:
            self._single.append(iter_s)
            self._single_steps.append(step_s or iter_s)
        elif self._single_steps:
            # Only a measurement on one GPU tells what part of the time is due to the placement.
            times = self._placed.setdefault(signature, deque(maxlen=WINDOW))
            times.append(step_s or iter_s)
            serial = statistics.median(self._single_steps)
            self.slowdown.record(signature, statistics.median(times) * gpus / serial)
        self._serial.append(iter_s * gpus / self.slowdown.s(signature))

    @property
    def serial_iter_s(self) -> float | None:
        """The median; None before the first report."""
        times = self._single or self._serial
        return statistics.median(times) if times else self.first_s


@dataclass(slots=True)
class TrialState:
    """One trial of the app.

    Attributes:
        id: Tune's trial id.
        order: Trials are served in this order.
        iterations_total: Iterations until it ends, as far as is known.
        timer: Its iteration times.
        model: Trials of one model share their slowdown table.
        phase: Where it stands.
        group: Its placement group's name, from when it asks for a lease.
        allocation: Its GPUs, from when the group is asked for.
        iterations_done: As of its last report.
        checkpointed: Iterations covered by its last checkpoint; None when it has none.
        preemptible: False when a pause would lose all its work.
        leave_by_s: It has to pause, and is stopped at this time; ``inf``: at its next report.
        asked_s: Since when it has waited for its present group; None before it is planned for.
        asked_with: The leases that the app had then.
        leases: How many groups it has had.
        granted_s: When its present group was granted.
        idle_since_s: Since when it has had none.
        history: The GPUs of each of its groups, in words.
        last_result: What it last reported.
        skew: The largest tensor's share of what a step sends; None until it is known.
    """

    id: str
    order: int
    iterations_total: float
    timer: IterationTimer
    model: str = ""
    phase: TrialPhase = TrialPhase.IDLE
    group: str = ""
    allocation: Allocation = NOTHING
    iterations_done: float = 0.0
    checkpointed: float | None = None
    preemptible: bool = True
    leave_by_s: float | None = None
    asked_s: float | None = None
    asked_with: str = ""
    leases: int = 0
    history: list[str] = field(default_factory=list)
    granted_s: float = 0.0
    idle_since_s: float = 0.0
    attained_gpu_s: float = 0.0
    reports_in_lease: int = 0
    grown_for: str = ""
    last_result: Mapping[str, Any] = field(default_factory=dict)
    skew: float | None = None

    @property
    def iterations_left(self) -> float:
        """Iterations still to do; never below one while it lives."""
        return max(1.0, self.iterations_total - self.iterations_done)

    @property
    def live(self) -> bool:
        """Whether it still has work to do."""
        return self.phase is not TrialPhase.DONE

    @property
    def holds(self) -> bool:
        """Whether it has, or has asked for, GPUs by name."""
        return self.phase in (TrialPhase.PLACED, TrialPhase.RUNNING, TrialPhase.LEAVING)


def heads(trials: Sequence[TrialState]) -> list[TrialState]:
    """One trial of each placement group, the first: its GPUs are those of all that share it."""
    seen: set[str] = set()
    out = []
    for trial in trials:
        if not trial.group or trial.group not in seen:
            out.append(trial)
            seen.add(trial.group)
    return out
