"""``MedianStoppingRule``: trials end one by one; nobody knows which will be stopped."""

from __future__ import annotations

from collections.abc import Sequence

from ray.tune.schedulers import MedianStoppingRule

from ..api import AllTrials, JobInfo, share_out
from ..registry import register


@register(MedianStoppingRule)
class MedianAdapter(AllTrials):
    """Every trial that still runs is taken to run to its end: over-estimated on purpose.

    With ``hard_stop=False`` the rule's losers are paused and go on when the others have ended:
    they come last.
    """

    def jobs_remaining(self, allocation: Sequence[int]) -> Sequence[JobInfo]:
        """Live trials, those to come, then those that were put aside."""
        aside = {trial.trial_id for trial in self.scheduler._stopped_trials}
        jobs = sorted(self.app.jobs(), key=lambda job: job.id in aside)
        return share_out(jobs, allocation, at_most=self.app.concurrency)
