"""How good the estimates are: finish times that were predicted, against those that came."""

from __future__ import annotations

import logging
import math
import statistics
from dataclasses import dataclass, field

from themis_ray.agent.trials import TrialState

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Prediction:
    """When a trial was expected to finish.

    Attributes:
        made_s: When that was said.
        finish_s: When it would finish, if it kept its GPUs.
        lease: Which of its leases it had.
    """

    made_s: float
    finish_s: float
    lease: int


@dataclass(slots=True)
class PredictionErrors:
    """Predictions made at the first timed report on a set of GPUs, judged when the trial ends.

    A trial that is stopped early tells nothing of the iteration times, so it is counted apart.

    Attributes:
        relative: ``(predicted - real) / real`` of the time to go, for each trial that ran to its
            end; positive when it came sooner than predicted.
        stopped: Trials that ended before they were expected to.
    """

    relative: list[float] = field(default_factory=list)
    stopped: int = 0
    _made: dict[str, Prediction] = field(default_factory=dict)

    def note(self, trial: TrialState, finish_s: float, now: float) -> None:
        """Keep a prediction, if it is the first of this lease."""
        made = self._made.get(trial.id)
        if math.isfinite(finish_s) and (made is None or made.lease != trial.leases):
            self._made[trial.id] = Prediction(now, finish_s, trial.leases)

    def finished(self, trial: TrialState, now: float) -> None:
        """A trial has ended: log how it was and how it was expected."""
        made = self._made.pop(trial.id, None)
        if made is None:
            return
        if trial.iterations_done < trial.iterations_total:
            self.stopped += 1
            logger.info(
                "trial %s ended at iteration %g; it was expected to run to %g",
                trial.id,
                trial.iterations_done,
                trial.iterations_total,
            )
            return
        predicted, real = made.finish_s - made.made_s, now - made.made_s
        if real > 0 and predicted > 0:
            self.relative.append((predicted - real) / real)
        logger.info(
            "trial %s finished after %.1f s; %.1f s were predicted on its last GPUs",
            trial.id,
            real,
            predicted,
        )

    def __str__(self) -> str:
        early = f"{_trials(self.stopped)} ended earlier than expected" if self.stopped else ""
        if not self.relative:
            return early
        off = [abs(error) for error in self.relative]
        text = (
            f"predicted finish times were off by {statistics.median(off):.0%} (median of "
            f"{_trials(len(off))}, at worst {max(off):.0%})"
        )
        return f"{text}; {early}" if early else text


def _trials(count: int) -> str:
    return "1 trial" if count == 1 else f"{count} trials"
