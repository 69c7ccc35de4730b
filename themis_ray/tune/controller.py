"""What of Tune's controller the seam has to know beyond what schedulers are told."""

from __future__ import annotations

import time
from typing import Any

from ray.tune.callback import Callback
from ray.tune.experiment import Trial

from themis_ray.agent.session import Session
from themis_ray.agent.trials import TrialPhase
from themis_ray.tune import metrics, names
from themis_ray.tune.horizon import trials_of


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


def hard_stop(controller: Any, trial: Trial) -> None:
    """Pause a trial without asking it; what a save under way wanted to do next is dropped."""
    inner = bare(controller)
    if trial in inner._staged_trials:
        inner._unstage_trial_with_resources(trial)
    inner.pause_trial(trial, should_checkpoint=False)
    inner._cached_trial_decisions.pop(trial.trial_id, None)
    inner._queued_trial_decisions.pop(trial.trial_id, None)


def follow_statuses(session: Session, controller: Any) -> None:
    """Take over what Tune has done since: trials that have started, and paused ones."""
    if session.agent.settings.sharers > 1:
        manager = bare(controller)._actor_manager._resource_manager
        session.settle_shared(manager._pg_to_request, manager._acquired_pgs)
    with session.using() as agent:
        agent.to_come, agent.concurrency = trials_of(controller)
        now = time.monotonic()
        for trial in controller.get_live_trials():
            state = agent.trials.get(trial.trial_id)
            if state is None:
                continue
            if trial.status == Trial.RUNNING and state.phase is TrialPhase.PLACED:
                state.phase = TrialPhase.RUNNING
            elif trial.status == Trial.PAUSED and state.holds:
                agent.trial_left(trial.trial_id, now, done=False)
