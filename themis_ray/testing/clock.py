"""Time that passes when told to."""

from __future__ import annotations


class FakeClock:
    """Stands in for ``time.monotonic``: calling it gives the time.

    Args:
        start_s: The time at first.
    """

    def __init__(self, start_s: float = 0.0) -> None:
        self.now_s = start_s

    def __call__(self) -> float:
        """The time, in seconds."""
        return self.now_s

    def advance(self, by_s: float) -> float:
        """Let time pass; returns the new time."""
        return self.advance_to(self.now_s + by_s)

    def advance_to(self, time_s: float) -> float:
        """Let time pass until ``time_s``; returns it.

        Raises:
            ValueError: That is in the past.
        """
        if not time_s >= self.now_s:
            raise ValueError(f"it is {self.now_s}; time cannot go to {time_s}")
        self.now_s = time_s
        return time_s
