"""Reasons of the split inside an app: which trial runs on which of the app's GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from themis_ray.core.cluster import Allocation
from themis_ray.core.explain.reason import Reason


@dataclass(frozen=True, slots=True)
class TrialKeepsSize(Reason):
    """More GPUs were there for a running trial, and a restart would not have paid."""

    trial: str
    gpus: Allocation
    more: int
    restart_s: float
    window_s: float

    def __str__(self) -> str:
        return (
            f"trial {self.trial} keeps {self.gpus}: {self.more} more GPUs for "
            f"{self.window_s:.0f} s would not make up for a checkpoint and restart of "
            f"{self.restart_s:.0f} s"
        )

    @property
    def remedy(self) -> str:
        return "longer leases, or a trial that starts faster"


@dataclass(frozen=True, slots=True)
class TrialGrows(Reason):
    """A running trial pauses at its next report, to go on with more GPUs."""

    trial: str
    gpus: Allocation
    more: int
    restart_s: float
    saves_s: float

    def __str__(self) -> str:
        return (
            f"trial {self.trial} leaves {self.gpus} for {self.more} more GPUs: that saves "
            f"{self.saves_s:.0f} s, its restart of {self.restart_s:.0f} s already counted"
        )


@dataclass(frozen=True, slots=True)
class TrialTogether(Reason):
    """A trial runs on fewer GPUs, since it would be slower if it were spread over machines."""

    trial: str
    gpus: Allocation
    spread: Allocation
    slowdown: float

    def __str__(self) -> str:
        return (
            f"trial {self.trial} runs on {self.gpus}: on {self.spread} each iteration would take "
            f"{self.slowdown:.2f} times its share, which is slower"
        )


@dataclass(frozen=True, slots=True)
class TrialSpread(Reason):
    """A trial lies on several machines, since no one machine had room."""

    trial: str
    gpus: Allocation
    slowdown: float

    def __str__(self) -> str:
        return (
            f"trial {self.trial} is spread over {self.gpus}, at a slowdown of {self.slowdown:.2f}; "
            "those that suffer more from it chose first"
        )
