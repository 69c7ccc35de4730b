"""``CurveStopping``: each trial ends where its most optimistic plausible curve lets it end."""

from __future__ import annotations

from collections.abc import Sequence

from ..api import JobInfo, RemainingSearch, share_out
from ..curve_stopping import CurveStopping
from ..curves.rule import Rank
from ..registry import register


@register(CurveStopping)
class CurveStoppingAdapter(RemainingSearch):
    """Tells when each trial will be stopped, be done or end, over-estimated on purpose.

    A trial that may still get there is taken to run to its last iteration, or, if it ends at the
    target, until nine tenths of its sampled futures have reached that; one that is poor ends when
    the checks that it still has are over. Jobs come in the order in which they deserve GPUs:
    promising ones, opportunistic ones, those that the search will still create, poor ones.
    """

    def __init__(self, scheduler: CurveStopping) -> None:
        self.scheduler = scheduler

    def jobs_remaining(self, allocation: Sequence[int]) -> Sequence[JobInfo]:
        """Live trials by rank, with those to come before the poor ones."""
        live = {trial.id: trial for trial in self.app.live}
        front: list[JobInfo] = []
        poor: list[JobInfo] = []
        for trial_id in self.scheduler.ranking(list(live)):
            verdict = self.scheduler.verdict(trial_id)
            job = live[trial_id].job(until=verdict.runs_until)
            (poor if verdict.rank is Rank.POOR else front).append(job)
        to_come = [self.app.typical().job()] * self.app.to_come
        return share_out([*front, *to_come, *poor], allocation, at_most=self.app.concurrency)
