"""Tiresias (NSDI '19): discretised two-dimensional priority queues, promotion, and placement.

Section 3.2 of the paper (2DAS), its pseudocode 1 and 2, and section 3.3 (placement by skew).
A job's attained service is GPUs times time, in GPU-seconds. It starts in queue 1 and is demoted
when its service reaches a queue's threshold; within a queue, jobs go by their start time. A job
that has waited too long begins again in queue 1, as if it had had no service.

Where the paper leaves room, the rule is that of its authors' simulator: a job's start is its last
one, jobs that run come before those that wait, and a demotion happens at the threshold itself.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from themis_ray.core.cluster import Allocation
from themis_ray.core.policies.base import RoundView
from themis_ray.core.policies.placing import Room, Style, nearest
from themis_ray.core.policies.ranked import Key, Ranked
from themis_ray.core.policies.takers import Taker
from themis_ray.errors import ConfigError

# Largest tensor / model bytes, Table 6 of the paper: what its profiler would find.
SKEWS: Mapping[str, float] = {
    "vgg11": 0.773,
    "vgg16": 0.743,
    "vgg19": 0.715,
    "alexnet": 0.610,
    "googlenet": 0.146,
    "resnet50": 0.092,
    "inception3": 0.086,
    "resnet101": 0.053,
    "resnet152": 0.039,
    "inception4": 0.036,
}


@dataclass(frozen=True)
class Tiresias(Ranked):
    """What both variants share.

    Args:
        thresholds: The attained service, in GPU-seconds, at which a job leaves queue 1, 2, ...;
            K is one more than their number. One hour (K = 2) as in the paper's simulations; its
            testbed used 3200. Scale them to the workload: no job of ``tiresias-60.csv`` gets
            far beyond the default.
        promote_knob: PROMOTEKNOB: a job that has waited this many times as long as it ran (since
            its last promotion) is promoted to queue 1. Infinite: never.
        starve_limit_s: STARVELIMIT: so is one that has waited so long.
        pack_limit: PACKLIMIT: a job of greater skew is consolidated, others fill up machines that
            are in use. The paper does not tell its value; the default lies in the gap of its
            Table 6, between 15% and 61%.
        skews: The skew of models whose jobs report none. An unknown model is consolidated, which
            is how the paper's profiler would run it at first.
    """

    thresholds: tuple[float, ...] = (3600.0,)
    promote_knob: float = 8.0
    starve_limit_s: float = math.inf
    pack_limit: float = 0.38
    skews: Mapping[str, float] = field(default_factory=lambda: dict(SKEWS))

    preempts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if any(t <= 0 for t in self.thresholds) or list(self.thresholds) != sorted(
            set(self.thresholds)
        ):
            raise ConfigError(
                f"thresholds {self.thresholds}; use GPU-seconds above 0, each more than the last"
            )
        if not self.promote_knob > 0 or not self.starve_limit_s > 0:
            raise ConfigError(
                f"promote_knob {self.promote_knob}, starve_limit_s {self.starve_limit_s}; "
                "use numbers above 0, infinite for no promotion"
            )

    # -- priority -------------------------------------------------------------------------

    def key(self, taker: Taker, view: RoundView) -> Key:
        """The queue, then the order within it."""
        service = self.service(taker, view)
        queue = self.queue(service)
        return (float(queue), *self.within(queue, service), *_by_start(taker, view))

    @abstractmethod
    def within(self, queue: int, service: float) -> Key:
        """What orders the jobs of a queue before their start times do."""

    def queue(self, service: float) -> int:
        """The queue of a job with an attained service, from 1."""
        return 1 + sum(service >= threshold for threshold in self.thresholds)

    def service(self, taker: Taker, view: RoundView) -> float:
        """GPU-seconds since the last promotion; 0 for a job that is promoted now."""
        if self.starves(taker, view):
            return 0.0
        return taker.job.attained_gpu_s - self._base(taker, view)

    def starves(self, taker: Taker, view: RoundView) -> bool:
        """Whether a job has waited so long that it is promoted."""
        service = taker.job.attained_gpu_s - self._base(taker, view)
        if taker.runs or self.queue(service) == 1:
            return False
        ran_s = service / taker.job.max_gpus
        return taker.job.waited_s >= min(self.starve_limit_s, self.promote_knob * ran_s)

    def note(self, takers: Sequence[Taker], view: RoundView) -> Mapping[str, float]:
        """For each promoted job, the service that it had by then."""
        out = {}
        for taker in takers:
            promoted = self.starves(taker, view)
            base = taker.job.attained_gpu_s if promoted else self._base(taker, view)
            if base:
                out[_name(taker)] = base
        return out

    def _base(self, taker: Taker, view: RoundView) -> float:
        base = view.memory.get(_name(taker), 0.0)
        # A job that began again under the same name has less service than was noted.
        return base if base <= taker.job.attained_gpu_s else 0.0

    # -- placement ------------------------------------------------------------------------

    def style(self, taker: Taker) -> Style:
        """Consolidate a skewed model, spread the others (section 3.3)."""
        skew = taker.job.skew
        if skew is None:
            skew = self.skews.get(taker.job.model.lower(), 1.0)
        return nearest if skew > self.pack_limit or taker.kept else _spread


def _spread(room: Room, count: int, near: Allocation) -> Allocation:
    return room.spread(count)


def _name(taker: Taker) -> str:
    return f"{taker.app.id}/{taker.job.id}"


def _by_start(taker: Taker, view: RoundView) -> Key:
    """Those that run by their last start, then those that wait, the longest first.

    With the order of submission instead, a job that was skipped because it is too large would
    displace running ones as soon as GPUs come free (section 3.2.3).
    """
    ago = taker.job.started_ago_s
    if taker.runs:
        return (0.0, taker.app.joined_s if ago is None else view.now_s - ago)
    if ago is not None:
        return (1.0, view.now_s - ago)
    return (2.0, taker.app.joined_s)
