"""Notices when the jobs of a simulation only change places, and never get on."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from themis_ray.core.settings import ArbiterConfig
from themis_ray.sim.app import SimApp

# After so many events, besides those of each app, or so many leases, jobs must have done some work.
EVENTS_WITHOUT_WORK = 100_000
EVENTS_OF_EACH_APP = 1_000
LEASES_WITHOUT_WORK = 1000


@dataclass(slots=True)
class Watch:
    """Looks now and then whether more has been done than ever before.

    Attributes:
        arbiter: The times of the arbiter.
        looked_s: When it last looked.
        looked_events: How many events there had been then.
        done_gpu_s: The most work that it has seen done, in GPU-seconds.
        ended_gpu_s: The work of the apps that have ended.
    """

    arbiter: ArbiterConfig
    looked_s: float = 0.0
    looked_events: int = 0
    done_gpu_s: float = -1.0
    ended_gpu_s: float = 0.0

    def too_long(self, now: float) -> bool:
        """Whether it is time to look, by the clock."""
        return now - self.looked_s > LEASES_WITHOUT_WORK * self.arbiter.lease_s

    def most_events(self, apps: int) -> int:
        """With how many events it is time to look, by their number, with so many apps."""
        return self.looked_events + EVENTS_WITHOUT_WORK + EVENTS_OF_EACH_APP * apps

    def begins(self, now: float) -> None:
        """An app has come where there was none: until now there was no work."""
        self.looked_s = now

    def ended(self, app: SimApp, now: float) -> None:
        """An app has ended."""
        self.ended_gpu_s += _done_gpu_s(app, now)

    def gets_on(self, apps: Collection[SimApp], now: float, events: int) -> bool:
        """Whether some work has been done since this was last asked, or there is none to do."""
        done_gpu_s = self.ended_gpu_s + math.fsum(_done_gpu_s(app, now) for app in apps)
        more = done_gpu_s > self.done_gpu_s or not apps
        self.done_gpu_s = max(self.done_gpu_s, done_gpu_s)
        self.looked_s, self.looked_events = now, events
        return more

    def remark(self, apps: Collection[SimApp]) -> str:
        """On jobs that lose their work whenever they have to leave; empty when they do not."""
        slowest_s = max((job.move.checkpoint_s for app in apps for job in app.jobs), default=0.0)
        allowed_s = self.arbiter.notice_s + self.arbiter.grace_s
        if slowest_s <= allowed_s:
            return ""
        return (
            f"; a checkpoint takes {slowest_s:.0f} s, longer than notice and grace "
            f"({allowed_s:.0f} s): lengthen them"
        )


def _done_gpu_s(app: SimApp, now: float) -> float:
    """Work that an app's jobs have done, what is not saved yet included."""
    return math.fsum(
        (job.done + job.pending + job.progress(now)) * job.spec.serial_iter_s for job in app.jobs
    )
