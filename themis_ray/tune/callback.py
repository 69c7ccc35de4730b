"""``ThemisMLflowCallback``: r and leases of every trial in MLflow, and in Tune's own results."""

from __future__ import annotations

import atexit
import functools
import logging
import math
import numbers
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ray.tune import Callback
from ray.tune.result import AUTO_RESULT_KEYS, DONE, TRAINING_ITERATION
from ray.tune.utils import flatten_dict

from themis_ray.reporting.mlflow import Tracker, require_mlflow, resolve_tracking_uri
from themis_ray.reporting.mlflow_runs import (
    APP_TAG,
    HISTORY_TAG,
    LEASE_TAG,
    PARENT,
    POLICY_TAG,
    RUN_TAG,
    Points,
    RunSpec,
)
from themis_ray.tune import metrics
from themis_ray.tune.metrics import TrialMetrics

log = logging.getLogger(__name__)

TRAIN_STEP = "train_step"
FINISHED, FAILED, KILLED = "FINISHED", "FAILED", "KILLED"
# What Tune puts into every result by itself; the rest are the user's metrics.
_TUNE_KEYS = frozenset({*AUTO_RESULT_KEYS, DONE, "trial_id", "experiment_tag", "should_checkpoint"})
# Those of ThemisScheduler's metrics that are of the whole app; the parent run has them as well.
_APP_METRICS = frozenset({"themis/r", "themis/t_shared_s", "themis/t_ideal_s"})

Hook = TypeVar("Hook", bound=Callable[..., None])


def _never_raises(hook: Hook) -> Hook:
    """A fault in tracking is logged with its traceback; training goes on."""

    @functools.wraps(hook)
    def guarded(*args: Any, **kwargs: Any) -> None:
        try:
            hook(*args, **kwargs)
        except Exception:
            log.exception("%s failed; training goes on", hook.__qualname__)

    return guarded  # type: ignore[return-value]


class ThemisMLflowCallback(Callback):  # type: ignore[misc]
    """Logs an experiment to MLflow: a parent run for the app, a child run for each trial.

    A trial that is paused and resumed goes on in its own run, and so does everything when the
    driver is started again with the same experiment name. The metrics ``themis/r``,
    ``themis/trial_r``, ``themis/gpus``, ``themis/placement_score``, ``themis/t_shared_s``,
    ``themis/t_ideal_s`` and ``themis/leases`` come from ``ThemisScheduler``; they are also put
    into the trial's result, so that Tune's loggers and ``ResultGrid`` have them. Everything is
    written in the background: a slow or dead server never holds up training.

    The step is ``result["train_step"]`` when the trial reports one, else Tune's
    ``training_iteration``; on the parent, whose values come from all trials, it is the sum over
    the trials, so that the newest value always has the greatest step.

    Args:
        tracking_uri: MLflow's tracking URI. Without one, ``MLFLOW_TRACKING_URI``, and without
            that the file ``mlflow.db`` in the working directory. It is made absolute here.
        experiment_name: The MLflow experiment.
        app: The app's name; without one, the name given to ``ThemisScheduler``, and without
            that scheduler the name of the Tune experiment.
        tags: Further tags for all runs.
        flush_timeout_s: How long to wait for MLflow at the end of the experiment, in seconds.

    Raises:
        MissingExtraError: MLflow is not installed.
        ConfigError: The tracking URI is a folder, or names no file.
    """

    def __init__(
        self,
        tracking_uri: str | None = None,
        experiment_name: str = "themis",
        app: str | None = None,
        tags: Mapping[str, str] | None = None,
        flush_timeout_s: float = 30.0,
    ) -> None:
        require_mlflow()
        self.tracking_uri = resolve_tracking_uri(tracking_uri)
        self.experiment_name = experiment_name
        self.app = app
        self.tags = {key: str(value) for key, value in (tags or {}).items()}
        self.flush_timeout_s = flush_timeout_s
        self._reset()

    def _reset(self) -> None:
        self._tracker: Tracker | None = None
        # Trials of this process: those started, the lease last told of each whose run is open,
        # the status of each that is over, and the figures last logged of each.
        self._started: set[str] = set()
        self._lease: dict[str, str] = {}
        self._ended: dict[str, str] = {}
        self._logged: dict[str, TrialMetrics] = {}
        self._app_step = 0

    # -- Tune's hooks -------------------------------------------------------------------------

    @_never_raises
    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Open the trial's run, when it is known already which app it belongs to."""
        self._started.add(trial.trial_id)
        self._ended.pop(trial.trial_id, None)
        known = metrics.latest(trial.trial_id)
        if self.app is not None or known is not None:
            self._open(trial, known)

    @_never_raises
    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """Log a report."""
        users = user_metrics(result)
        known = metrics.latest(trial.trial_id)
        ours = themis_metrics(known) if known else {}
        # In place: Tune's own loggers come after this callback and read the same dict.
        result.update(ours)
        self._open(trial, known)
        self._log(trials, trial, training_step(result), known, {**users, **ours})

    @_never_raises
    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Close the trial's run as finished."""
        self._end(trials, trial, FINISHED)

    @_never_raises
    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Close the trial's run as failed."""
        self._end(trials, trial, FAILED)

    @_never_raises
    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        """Write what is left and close the parent; waits up to ``flush_timeout_s``."""
        self._finish({trial.trial_id: str(trial.status) for trial in trials})

    def get_state(self) -> dict[str, Any] | None:
        """What a restored experiment needs: runs are found again by their tags."""
        return {"app_step": self._app_step}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take over the state of an earlier driver."""
        self._app_step = int(state.get("app_step", 0))

    def __getstate__(self) -> dict[str, Any]:
        settings = ("tracking_uri", "experiment_name", "app", "tags", "flush_timeout_s")
        return {name: getattr(self, name) for name in settings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    # -- behind them --------------------------------------------------------------------------

    def _open(self, trial: Any, known: TrialMetrics | None) -> Tracker:
        """The tracker, with the parent's and the trial's run opened."""
        experiment = str(trial.experiment_dir_name)
        app = self.app or (known.app if known else experiment)
        if self._tracker is None:
            self._tracker = Tracker(self.tracking_uri, self.experiment_name)
            # When the driver stops without ending the experiment, its runs are not left open.
            atexit.register(self._finish, {})
            parent_tags = {**self.tags, APP_TAG: app, RUN_TAG: experiment}
            self._tracker.open(RunSpec(PARENT, app, parent_tags))
        if trial.trial_id not in self._lease:
            self._lease[trial.trial_id] = ""
            tags = {**self.tags, APP_TAG: app}
            params = trial_params(trial.config)
            self._tracker.open(RunSpec(trial.trial_id, str(trial), tags, params))
        return self._tracker

    def _log(
        self,
        trials: list[Any],
        trial: Any,
        step: int,
        known: TrialMetrics | None,
        values: Mapping[str, float],
    ) -> None:
        """Log values of a trial, and those of the app that came with them."""
        tracker = self._open(trial, known)
        now_ms = time.time_ns() // 1_000_000
        tags: dict[str, str] = {}
        if known:
            if self._lease[trial.trial_id] != known.lease:
                history = " > ".join(known.history)
                tags = {LEASE_TAG: known.lease, HISTORY_TAG: history, POLICY_TAG: known.policy}
            self._lease[trial.trial_id] = known.lease
            self._logged[trial.trial_id] = known
        tracker.add(Points(trial.trial_id, values, step, now_ms, tags))
        if known:
            self._app_step = max(self._app_step, app_step(trials, trial, step))
            of_app = {name: value for name, value in values.items() if name in _APP_METRICS}
            tracker.add(Points(PARENT, of_app, self._app_step, now_ms, {POLICY_TAG: known.policy}))

    def _end(self, trials: list[Any], trial: Any, status: str) -> None:
        if trial.trial_id not in self._started:
            # It never ran, so it gets no run; one of an earlier driver is closed at the end.
            return
        known = metrics.latest(trial.trial_id)
        tracker = self._open(trial, known)
        if known and known != self._logged.get(trial.trial_id):
            # Tune keeps a trial's last report from its scheduler when a stop criterion is met, so
            # that the figures for it come only now, and with the last trial those of the app.
            step = training_step(trial.last_result or {})
            self._log(trials, trial, step, known, themis_metrics(known))
        self._ended[trial.trial_id] = status
        # A trial that runs again (a retry, a restored driver) opens its run again.
        self._lease.pop(trial.trial_id, None)
        tracker.end(trial.trial_id, status)

    def _finish(self, tune_statuses: Mapping[str, str]) -> None:
        tracker, self._tracker = self._tracker, None
        atexit.unregister(self._finish)
        if tracker is None:
            return
        ended, started = dict(self._ended), set(self._started)
        verdict = functools.partial(run_status, ended, started, tune_statuses)
        tracker.finish(verdict, self.flush_timeout_s)
        self._reset()


def run_status(
    ended: Mapping[str, str], started: set[str], tune_statuses: Mapping[str, str], key: str
) -> str:
    """How a run that is still open at the end of an experiment is to be closed.

    Args:
        ended: The status of the trials that this driver saw ending.
        started: Trials that this driver saw running and not ending.
        tune_statuses: Tune's status of every trial. It calls an interrupted trial TERMINATED too,
            so for those in ``started`` it says nothing.
        key: The run's key.
    """
    if key != PARENT:
        if key in ended:
            return ended[key]
        if key in started:
            return KILLED
        # It ended under an earlier driver, or is left from one that is not restored.
        return {"TERMINATED": FINISHED, "ERROR": FAILED}.get(tune_statuses.get(key, ""), KILLED)
    children = {run_status(ended, started, tune_statuses, k) for k in {*tune_statuses, *started}}
    if not tune_statuses:
        return KILLED
    return KILLED if KILLED in children else FAILED if FAILED in children else FINISHED


def themis_metrics(known: TrialMetrics) -> dict[str, float]:
    """The metrics of ``ThemisScheduler``; figures that are not known or infinite are left out."""
    values = {
        "themis/r": known.r,
        "themis/trial_r": known.trial_r,
        "themis/gpus": known.gpus,
        "themis/placement_score": known.placement_score,
        "themis/t_shared_s": known.t_shared_s,
        "themis/t_ideal_s": known.t_ideal_s,
        "themis/leases": known.leases,
    }
    return {k: float(v) for k, v in values.items() if v is not None and math.isfinite(v)}


def user_metrics(result: Mapping[str, Any]) -> dict[str, float]:
    """The numbers that the user's trainable reports."""
    own = {key: value for key, value in result.items() if key not in _TUNE_KEYS}
    return {
        key: float(value)
        for key, value in flatten_dict(own).items()
        if isinstance(value, numbers.Real)
    }


def trial_params(config: Mapping[str, Any]) -> dict[str, str]:
    """A trial's configuration as text."""
    return {key: str(value) for key, value in flatten_dict(dict(config)).items()}


def training_step(result: Mapping[str, Any]) -> int:
    """The training step of a report."""
    own = result.get(TRAIN_STEP)
    if isinstance(own, numbers.Real) and math.isfinite(own):
        return int(float(own))
    return int(result.get(TRAINING_ITERATION, 0))


def app_step(trials: list[Any], trial: Any, step: int) -> int:
    """The steps of all trials together, with ``trial`` at ``step``."""
    return step + sum(training_step(t.last_result or {}) for t in trials if t is not trial)
