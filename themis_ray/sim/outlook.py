"""What is left of a simulated app: the live bidder's outlook, with phases to come."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from themis_ray.agent.bidder import Outlook
from themis_ray.core.cluster import Level
from themis_ray.core.fairness import Phase


@dataclass(frozen=True, slots=True)
class SimOutlook(Outlook):
    """An outlook with phases to come, which remembers the times it has worked out.

    Attributes:
        future: Phases after the present one; who survives is unknown, so each job counts as the
            median job (Equation 2).
        median_iter_s: Serial seconds per iteration of the median job.
        belief: The app's times left are so many times what they should be.
    """

    future: Sequence[Phase] = ()
    median_iter_s: float = 1.0
    belief: float = 1.0
    _known: dict[tuple[int, Level], float] = field(default_factory=dict, compare=False)

    def time_left_s(self, gpus: int, level: Level = Level.MACHINE) -> float:
        """Seconds until the last job of the last phase ends on ``gpus`` GPUs."""
        key = (gpus, level)
        known = self._known.get(key)
        if known is None:
            # super() does not work in dataclasses with slots.
            known = Outlook.time_left_s(self, gpus, level)
            if self.future and known < math.inf:
                known += math.fsum(self._phase_s(phase, gpus, level) for phase in self.future)
            known *= self.belief
            self._known[key] = known
        return known

    def _phase_s(self, phase: Phase, gpus: int, level: Level) -> float:
        """As :meth:`Outlook.time_left_s`, for like jobs.

        ``test_future_phases_cost_what_the_live_bidder_says`` holds the two together.
        """
        job_s = phase.iterations * self.median_iter_s
        if gpus < phase.jobs:
            return -(-phase.jobs // gpus) * job_s
        each = min(gpus // phase.jobs, self.trial_max)
        return job_s * self.slowdown(each, level) / each if each > 1 else job_s
