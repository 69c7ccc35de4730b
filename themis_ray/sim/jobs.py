"""Apps and jobs as a trace lists them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from themis_ray.errors import InvalidInputError

Tuner = Literal["single", "successive_halving", "curve_stopping"]
TUNERS: tuple[Tuner, ...] = ("single", "successive_halving", "curve_stopping")


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of an app.

    Attributes:
        id: Its name within the app.
        model: The key of its placement profile.
        max_gpus: The most GPUs it can use, d in Equation 1.
        iterations: Iterations it runs if nothing stops it early.
        serial_iter_s: Seconds of one iteration on one GPU.
        min_gpus: The fewest GPUs it can run on; a rigid gang has ``min_gpus == max_gpus``.
        final_loss: The loss its learning curve tends to; None when the trace does not say.
        decay: How fast the curve falls, per iteration; None when the trace does not say.
    """

    id: str
    model: str
    max_gpus: int
    iterations: float
    serial_iter_s: float
    min_gpus: int = 1
    final_loss: float | None = None
    decay: float | None = None

    def __post_init__(self) -> None:
        for name in ("iterations", "serial_iter_s"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise InvalidInputError(f"{name} is {value}; use a number above 0")
        if self.min_gpus < 1 or self.max_gpus < 1:
            raise InvalidInputError("a job needs 1 GPU or more")
        if self.min_gpus > self.max_gpus:
            raise InvalidInputError(
                f"min_gpus is {self.min_gpus}, which is more than max_gpus, {self.max_gpus}"
            )

    @property
    def work_gpu_s(self) -> float:
        """GPU-seconds of all its iterations, without any slowdown."""
        return self.iterations * self.serial_iter_s


@dataclass(frozen=True, slots=True)
class TraceApp:
    """One app: the jobs of one user that are tuned together.

    Attributes:
        id: Its name.
        arrival_s: When it arrives, in seconds from the start of the trace.
        tuner: What stops jobs early.
        jobs: Its jobs, at least one.
        weight: Its share relative to the others.
    """

    id: str
    arrival_s: float
    tuner: Tuner
    jobs: tuple[TraceJob, ...]
    weight: float = 1.0

    @property
    def work_gpu_s(self) -> float:
        """GPU-seconds if nothing is stopped early."""
        return math.fsum(job.work_gpu_s for job in self.jobs)

    @property
    def max_gpus(self) -> int:
        """The most GPUs that all its jobs together can use."""
        return sum(job.max_gpus for job in self.jobs)


@dataclass(frozen=True, slots=True)
class Trace:
    """A workload: apps in the order of their arrival.

    Attributes:
        name: Where it is from, for messages and titles.
        apps: The apps.
    """

    name: str
    apps: tuple[TraceApp, ...]

    @property
    def jobs(self) -> int:
        """How many jobs there are in all."""
        return sum(len(app.jobs) for app in self.apps)

    @classmethod
    def of(cls, name: str, apps: Mapping[str, TraceApp] | list[TraceApp]) -> Trace:
        """A trace of apps in any order; those that arrive together keep theirs."""
        listed = list(apps.values()) if isinstance(apps, Mapping) else apps
        return cls(name, tuple(sorted(listed, key=lambda app: app.arrival_s)))
