"""What of a trial's reports the wrapped scheduler gets to see.

Tune's own schedulers do not expect metrics that are missing or diverged: one None stops an
experiment with a TypeError, and a trial whose loss is NaN is never stopped. Nor do they expect
the same iteration twice, which happens when a trial goes back to its checkpoint. All of that is
sorted out here, so that they decide as if the run had never been disturbed.
"""

from __future__ import annotations

import logging
import math
from typing import Any

from ray.tune.schedulers import (
    AsyncHyperBandScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
)
from ray.tune.schedulers.trial_scheduler import TrialScheduler

from themis_ray.errors import ConfigError
from themis_ray.searchers.metrics import value_of
from themis_ray.tune.horizon import ITERATION_ATTR

logger = logging.getLogger(__name__)

# Worse than any real metric, and still small enough to take means and percentiles of. What is
# beyond it comes from training that diverged, too.
WORST = 1e30

_COMPARE = (
    AsyncHyperBandScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
)


class Reports:
    """Stands between the reports and one wrapped scheduler.

    Args:
        base: The wrapped scheduler.
        app: The app's name, for messages.
    """

    def __init__(self, base: TrialScheduler, app: str) -> None:
        self.base, self.app = base, app
        self._compares = isinstance(base, _COMPARE)
        # A member of a population takes over another's checkpoint, so its iterations may go back.
        self._once = self._compares and not isinstance(base, PopulationBasedTraining)
        self._seen: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self._told: set[str] = set()

    def check_mode(self) -> None:
        """Refuse a search whose direction is not known, before any GPU is leased.

        Raises:
            ConfigError: The base compares trials, and has no ``mode``.
        """
        if getattr(self.base, "_mode", "") is None:
            name = type(self.base).__name__
            raise ConfigError(
                f"{self.app}: {name} compares trials by a metric, but nothing says whether it is "
                f"to be minimised or maximised; set metric= and mode='min' or mode='max' in "
                f"tune.run (or TuneConfig), or on {name}"
            )

    def added(self, trial_id: str) -> None:
        """A trial is new, or is tried again after a failure."""
        self._seen.pop(trial_id, None)

    def for_base(self, trial_id: str, result: dict[str, Any]) -> dict[str, Any] | None:
        """A report as the base is to see it; None when it is not to see it at all.

        It is the same object whenever nothing had to be changed: some schedulers add to it.
        """
        if not self._compares:
            return result
        iteration = float(result.get(ITERATION_ATTR, 0))
        if self._once and iteration <= self._seen.get(trial_id, -math.inf):
            return None
        time_attr = getattr(self.base, "_time_attr", ITERATION_ATTR)
        value = value_of(result, self.base.metric)
        if value is None or time_attr not in result:
            self._tell_missing(trial_id, result)
            if time_attr not in result or not self._must_see(float(result[time_attr])):
                return None
            value = self._last.get(trial_id, math.nan)
            result = {**result, str(self.base.metric): value}
        self._seen[trial_id], self._last[trial_id] = iteration, value
        if abs(value) <= WORST:  # not so for NaN
            return result
        self._tell(
            "diverged",
            f"{self.app}: trial {trial_id} has {self.base.metric} = "
            f"{result[self.base.metric]}; a trial that diverged counts as the worst",
        )
        worst = -WORST if getattr(self.base, "_mode", "max") == "max" else WORST
        return {**result, str(self.base.metric): worst}

    def _must_see(self, time: float) -> bool:
        """Whether the base needs a report even without the metric: the last value stands in.

        A bracket of HyperBand waits for all of its trials, and ASHA ends a trial at ``max_t``.
        """
        if isinstance(self.base, HyperBandScheduler):
            return True
        return isinstance(self.base, AsyncHyperBandScheduler) and time >= self.base._max_t

    def last_for_base(self, trial_id: str, result: dict[str, Any]) -> dict[str, Any] | None:
        """The same for the result with which a trial ends; None when the base is not to be told."""
        if not self._compares:
            return result
        if value_of(result, self.base.metric) is None:
            if isinstance(self.base, MedianStoppingRule):
                return None  # it would take the mean of what is not there
            return {k: v for k, v in result.items() if k != self.base.metric}
        self._seen.pop(trial_id, None)
        seen = self.for_base(trial_id, result)
        return result if seen is None else seen

    def _tell_missing(self, trial_id: str, result: dict[str, Any]) -> None:
        metric, time_attr = self.base.metric, getattr(self.base, "_time_attr", ITERATION_ATTR)
        name = metric if value_of(result, metric) is None else time_attr
        self._tell(
            f"missing {name}",
            f"{self.app}: trial {trial_id} sent a report without {name!r} (as a number); such "
            f"reports are passed over, or judged by the one before. Report it whenever you can: "
            f"tune.report({{{name!r}: value}})",
        )

    def _tell(self, what: str, message: str) -> None:
        if what not in self._told:
            self._told.add(what)
            logger.warning(message)
