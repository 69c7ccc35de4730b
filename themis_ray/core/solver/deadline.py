"""A limit of time for the solver; the only clock in the core, and it only limits effort."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point on the monotonic clock; none when ``at_s`` is None.

    Attributes:
        at_s: When to stop, in seconds of the monotonic clock.
    """

    at_s: float | None = None

    @classmethod
    def after(cls, seconds: float | None) -> Deadline:
        """So many seconds from now; no limit for None."""
        return cls(None if seconds is None else time.monotonic() + seconds)

    def left_s(self) -> float | None:
        """Seconds left, 0 when it has passed; None without a limit."""
        return None if self.at_s is None else max(0.0, self.at_s - time.monotonic())

    def passed(self) -> bool:
        """Whether it has passed."""
        return self.at_s is not None and time.monotonic() >= self.at_s

    def share(self, fraction: float) -> Deadline:
        """A nearer deadline, after a fraction of the time left."""
        left = self.left_s()
        return self if left is None else Deadline.after(left * fraction)
