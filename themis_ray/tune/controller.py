"""What of Tune's controller the seam has to know beyond what schedulers are told."""

from __future__ import annotations

from typing import Any

from ray.tune.callback import Callback
from ray.tune.experiment import Trial
from ray.tune.trainable import Trainable
from ray.tune.trainable.function_trainable import FunctionTrainable

from themis_ray.tune import metrics, names
from themis_ray.tune.session import Session


class CloseAtEnd(Callback):  # type: ignore[misc]  # ray is untyped
    """Ends the session with the experiment; a scheduler is not told of that itself."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """The experiment is over, however it ended."""
        for trial in trials:
            metrics.forget(trial.trial_id)
        self._session.close()
        names.release(self._session.app)


def bare(controller: Any) -> Any:
    """The controller behind the wrapper that schedulers are handed."""
    return vars(controller).get("_tune_controller", controller)


def saves_itself(cls: Any) -> bool:
    """Whether a class trainable has its own ``save_checkpoint``: a pause then loses nothing."""
    if not isinstance(cls, type) or issubclass(cls, FunctionTrainable):
        return False
    return getattr(cls, "save_checkpoint", None) is not Trainable.save_checkpoint


def hard_stop(controller: Any, trial: Trial) -> None:
    """Pause a trial without asking it; what a save under way wanted to do next is dropped."""
    inner = bare(controller)
    if trial in inner._staged_trials:
        inner._unstage_trial_with_resources(trial)
    inner.pause_trial(trial, should_checkpoint=False)
    inner._cached_trial_decisions.pop(trial.trial_id, None)
    inner._queued_trial_decisions.pop(trial.trial_id, None)
