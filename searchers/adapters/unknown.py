"""A scheduler that nobody has written an adapter for: one phase, of all trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..api import JobInfo, PhaseSearch, share_out


class UnknownAdapter(PhaseSearch):
    """All trials run to their ends, in one phase.

    A search that stops trials early is thereby taken to have more work left than it has; the
    error shrinks with every trial that it stops.
    """

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler

    def num_phases(self) -> int:
        """One while anything is left."""
        return 1 if self.app.live or self.app.to_come else 0

    def jobs_in_phase(self, phase: int, allocation: Sequence[int]) -> Sequence[JobInfo]:
        """All jobs."""
        return share_out(self.app.jobs(), allocation, at_most=self.app.concurrency)

    def note(self) -> str:
        """How to do better."""
        return (
            f"no adapter is known for {type(self.scheduler).__name__}: its trials are taken to "
            "run to their ends, in one phase; register one with themis_ray.searchers.register"
        )
