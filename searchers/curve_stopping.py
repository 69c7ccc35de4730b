"""``CurveStopping``: a Tune scheduler that stops trials whose curves will not get there."""

from __future__ import annotations

import logging
import math
import pickle
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.result import DEFAULT_METRIC
from ray.tune.schedulers.trial_scheduler import TrialScheduler

from ..errors import ConfigError
from .curves.fitting import MODES, number
from .curves.rule import Rank, RuleOptions, StoppingRule, Verdict

logger = logging.getLogger(__name__)


class CurveStopping(TrialScheduler):  # type: ignore[misc]  # ray is untyped
    """Forecasts each trial's learning curve, and stops a trial that has no chance left.

    Every ``check_interval`` iterations a trial's curve is fitted with several families of shapes
    (:mod:`themis_ray.searchers.curves`), and the probability is worked out that some report up to
    its last iteration reaches ``target``, or, without a target, beats the best of the other
    trials. A trial below ``threshold`` at ``patience`` checks in a row is stopped. The others are
    promising, opportunistic or poor, and get GPUs in that order.

    A trial is never stopped for what is not known: one with fewer than three finite reports, or
    whose metric has not changed at all, runs on. So does every trial when the metric or ``mode``
    is missing; one warning says so.

    Args:
        time_attr: What counts iterations in a result.
        metric: The metric; Tune's own when None.
        mode: ``min`` or ``max``; Tune's own when None.
        max_t: A trial's last iteration, if its stop criterion does not end it sooner.
        target: Stop trials that will not reach this value; those that have reached it are done.
        threshold: The chance below which a trial is poor.
        promising: The chance from which on it is promising.
        patience: Checks in a row that have to find it poor.
        grace_period: Iterations before the first check; a tenth of ``max_t``, at least 4, when
            None.
        check_interval: Iterations between checks; a twentieth of ``max_t`` when None.
        limits: The least and the greatest value that the metric can have, such as ``(0, 1)``;
            None for an end that is not known.
        end_at_target: Stop a trial, as done, when it has reached the target.
        seed: Of the forecasts: the same reports in the same order give the same decisions.

    Raises:
        ConfigError: An argument cannot be used; the message says how to mend it.
    """

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: float = 100,
        *,
        target: float | None = None,
        threshold: float = 0.05,
        promising: float = 0.5,
        patience: int = 2,
        grace_period: int | None = None,
        check_interval: int | None = None,
        limits: tuple[float | None, float | None] = (None, None),
        end_at_target: bool = True,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if mode is not None and mode not in MODES:
            raise ConfigError(f"mode = {mode!r}; use 'min' for a loss, 'max' for an accuracy")
        if not 0 < max_t < math.inf:
            raise ConfigError(f"max_t = {max_t}; use the iterations of a full trial, 1 or more")
        self._time_attr = time_attr
        self._metric = metric
        self._mode = mode
        self._max_t = float(max_t)
        self._given = (grace_period, check_interval)
        grace, interval = self._pace(self._max_t)
        self._options = RuleOptions(
            mode=mode or "min",
            max_t=self._max_t,
            target=target,
            threshold=threshold,
            promising=promising,
            patience=patience,
            limits=limits,
            end_at_target=end_at_target,
            seed=seed,
            grace_period=grace,
            check_interval=interval,
        )
        self._rule: StoppingRule | None = None
        self._stopped: dict[str, str] = {}
        self._warned: set[str] = set()

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Take over the metric and mode of the search; False when they are given twice."""
        if (self._metric and metric) or (self._mode and mode):
            return False
        self._metric = self._metric or metric or DEFAULT_METRIC
        self._mode = self._mode or mode
        return True

    @property
    def _name(self) -> str:
        return self._metric or str(DEFAULT_METRIC)

    # -- what the AGENT asks ------------------------------------------------------------------

    def verdict(self, trial_id: str) -> Verdict:
        """The latest judgement of a trial: its chance, its rank, and when it will end."""
        if self._rule is None:
            return Verdict(None, Rank.OPPORTUNISTIC, False, self._max_t, "not judged yet")
        return self._rule.verdict(trial_id)

    def ranking(self, trial_ids: list[str]) -> list[str]:
        """Trials in the order in which they are to have GPUs."""
        return list(trial_ids) if self._rule is None else self._rule.ranking(trial_ids)

    @property
    def stopped(self) -> Mapping[str, str]:
        """Why each of the trials that were stopped was."""
        return self._stopped

    # -- hooks --------------------------------------------------------------------------------

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """A trial is new, or comes back."""
        if self._rule is None:
            self._rule = self._make_rule(trial)
        if self._rule is not None:
            self._rule.add(trial.trial_id)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Judge a trial at its report."""
        if trial.trial_id in self._stopped:
            return str(TrialScheduler.STOP)
        at = number(result.get(self._time_attr))
        if at is None:
            self._warn_once(
                "time",
                f"results have no number {self._time_attr!r}, so no trial is judged; set "
                "CurveStopping(time_attr=...) to what counts iterations",
            )
            return str(TrialScheduler.CONTINUE)
        if at >= self._max_t:
            return str(TrialScheduler.STOP)  # it has run to its end
        self._check_metric(result)
        if self._rule is None:
            return str(TrialScheduler.CONTINUE)
        verdict = self._rule.report(trial.trial_id, at, result.get(self._name))
        if not verdict.stop:
            return str(TrialScheduler.CONTINUE)
        self._stopped[trial.trial_id] = verdict.why
        self._rule.end(trial.trial_id)
        logger.info("stopped %s at iteration %g: %s", trial, at, verdict.why)
        return str(TrialScheduler.STOP)

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """A trial is over; its last result counts for the others."""
        if self._rule is not None and trial.trial_id not in self._stopped:
            self._rule.add(trial.trial_id)
            self._rule.note_last(
                trial.trial_id, result.get(self._time_attr), result.get(self._name)
            )
            self._rule.end(trial.trial_id)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """A trial failed; Tune adds it again when it is to be retried."""

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """A waiting trial is taken away."""
        if self._rule is not None:
            self._rule.end(trial.trial_id)

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """The most promising trial that waits."""
        waiting = {
            trial.trial_id: trial
            for trial in tune_controller.get_trials()
            if trial.status in (Trial.PENDING, Trial.PAUSED)
        }
        order = self.ranking(list(waiting))
        return waiting[order[0]] if order else None

    def debug_string(self) -> str:
        """How many trials were stopped, and how the others stand."""
        ranks = self._rule.count_ranks() if self._rule is not None else {}
        words = ", ".join(f"{count} {rank.value}" for rank, count in ranks.items() if count)
        return f"CurveStopping: {len(self._stopped)} stopped{', ' if words else ''}{words}"

    def save(self, checkpoint_path: str) -> None:
        """Save the curves and what was decided."""
        Path(checkpoint_path).write_bytes(pickle.dumps(self.__dict__))

    def restore(self, checkpoint_path: str) -> None:
        """Go on from what :meth:`save` wrote."""
        self.__dict__.update(pickle.loads(Path(checkpoint_path).read_bytes()))

    # -- parts --------------------------------------------------------------------------------

    def _pace(self, max_t: float) -> tuple[int, int]:
        """Grace period and check interval."""
        grace, interval = self._given
        return (
            max(4, math.ceil(max_t / 10)) if grace is None else grace,
            max(1, int(max_t // 20)) if interval is None else interval,
        )

    def _make_rule(self, trial: Trial) -> StoppingRule | None:
        if self._mode is None:
            self._warn_once(
                "mode",
                "no mode, so no trial is stopped early; pass mode='min' or mode='max' to "
                "tune.run, TuneConfig or CurveStopping",
            )
            return None
        stop = getattr(trial, "stopping_criterion", None)
        end = number(stop.get(self._time_attr)) if isinstance(stop, Mapping) else None
        if end is not None and end > 0:
            self._max_t = min(self._max_t, end)
        grace, interval = self._pace(self._max_t)
        return StoppingRule(
            replace(
                self._options,
                mode=self._mode,
                max_t=self._max_t,
                grace_period=grace,
                check_interval=interval,
            )
        )

    def _check_metric(self, result: Mapping[str, Any]) -> None:
        if self._name not in result:
            self._warn_once(
                "missing",
                f"results have no metric {self._name!r} (they have "
                f"{', '.join(sorted(map(str, result)))}); trials without it are not stopped",
            )
        elif number(result[self._name]) is None:
            self._warn_once(
                "not finite",
                f"the metric {self._name!r} is {result[self._name]!r} in some results; "
                "such results are passed over, and say nothing against a trial",
            )

    def _warn_once(self, kind: str, message: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            logger.warning("CurveStopping: %s", message)
