"""``ThemisScheduler``: any Tune scheduler, on GPUs leased from the ARBITER."""

from __future__ import annotations

import logging
import math
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler
from ray.tune.schedulers.trial_scheduler import TrialScheduler

from themis_ray.agent.agent import Agent, AgentSettings
from themis_ray.agent.session import Session
from themis_ray.agent.shape import TrialShape, check_cluster, check_range
from themis_ray.agent.trials import TrialPhase
from themis_ray.core.fairness import Ideal
from themis_ray.errors import ConfigError
from themis_ray.live import client as live
from themis_ray.profiling.profile_file import load_profiles
from themis_ray.searchers.registry import search_for
from themis_ray.tune import metrics, names, train_guard
from themis_ray.tune.checkpoints import loses_nothing, saved_now
from themis_ray.tune.controller import CloseAtEnd, bare, follow_statuses, hard_stop
from themis_ray.tune.horizon import ITERATION_ATTR, iterations_of, trials_of
from themis_ray.tune.lease_request import LeaseRequest
from themis_ray.tune.measured import measured_in, model_of
from themis_ray.tune.reports import Reports
from themis_ray.tune.resources import shape_of
from themis_ray.tune.telling import Teller

logger = logging.getLogger(__name__)


class ThemisScheduler(TrialScheduler):  # type: ignore[misc]  # ray is untyped
    """Runs a Tune experiment on GPUs that it shares with other experiments, fairly.

    Pass it as ``scheduler=`` to ``tune.run`` or ``TuneConfig``. Which trials go on and which stop
    is decided by ``base``; which of them have GPUs, by the arbiter's leases.

    Args:
        base: The scheduler to wrap; FIFO when None.
        app: The app's name, unique on the cluster; made up when None.
        weight: Twice the weight is twice the fair share.
        min_gpus_per_trial: The fewest GPUs a trial runs on.
        max_gpus_per_trial: The most. With ``min = max`` a trial is a rigid gang. Each GPU is a
            bundle of the trial's placement group with the trial's own resource request.
        iterations_per_trial: Iterations of a trial, when neither the stop criterion nor the
            wrapped scheduler's ``max_t`` tells.
        preempt_without_checkpoint: Take GPUs from trials that save no checkpoint too; they start
            again from nothing.
        ideal: Which T_id r is measured against, ``"paper"`` or ``"exclusive"``.
        profiles: A file of ``themis profile``: S(G) of the models that trials name in
            ``config["model"]``, until they have measured their own.
        **arbiter: Options for the arbiter, if none runs yet and one is started here; see
            :class:`themis_ray.config.ArbiterOptions`.

    Raises:
        ConfigError: An argument cannot be used; the message says how to mend it.
    """

    def __init__(
        self,
        base: TrialScheduler | None = None,
        *,
        app: str | None = None,
        weight: float = 1.0,
        min_gpus_per_trial: int = 1,
        max_gpus_per_trial: int = 1,
        iterations_per_trial: int | None = None,
        preempt_without_checkpoint: bool = False,
        ideal: Ideal = "paper",
        profiles: str | Path | None = None,
        **arbiter: Any,
    ) -> None:
        super().__init__()
        check_range(min_gpus_per_trial, max_gpus_per_trial)
        if isinstance(base, ThemisScheduler):
            raise ConfigError("ThemisScheduler(ThemisScheduler(...)): wrap a scheduler once only")
        if not 0 < weight < math.inf:
            raise ConfigError(f"weight = {weight}; use a number above 0")
        self.base = base or FIFOScheduler()
        self.app = app or f"app-{uuid.uuid4().hex[:6]}"
        self.search = search_for(self.base)
        self._reports = Reports(self.base, self.app)
        self.settings = AgentSettings(
            app=self.app,
            weight=weight,
            trial_min=int(min_gpus_per_trial),
            trial_max=int(max_gpus_per_trial),
            ideal=ideal,
            preempt_without_checkpoint=preempt_without_checkpoint,
        )
        self.iterations_per_trial = iterations_per_trial
        self._profiles = load_profiles(profiles) if profiles is not None else None
        self._arbiter_options = arbiter
        self._session: Session | None = None
        self._shape: TrialShape | None = None
        # Why a trial is paused: True when its lease ended, False when the base decided so.
        self._paused_by_lease: dict[str, bool] = {}
        self._teller = Teller(self.app)

    # -- what Tune reads ------------------------------------------------------------------

    @property
    def metric(self) -> str | None:
        """The wrapped scheduler's metric."""
        return self.base.metric  # type: ignore[no-any-return]

    @property
    def supports_buffered_results(self) -> bool:
        """Results are wanted one by one: a lease may end with any of them."""
        return False

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Pass the search's metric and mode on to the wrapped scheduler."""
        accepted = bool(self.base.set_search_properties(metric, mode, **spec))
        if accepted:
            self._reports.check_mode()
        return accepted

    def __getstate__(self) -> dict[str, Any]:
        """Without the session: a restored scheduler opens its own."""
        return {**self.__dict__, "_session": None, "_teller": Teller(self.app)}

    # -- the session ----------------------------------------------------------------------

    @property
    def session(self) -> Session | None:
        """The app's session with the arbiter, while the experiment runs."""
        return self._session

    def _open(self, controller: Any, trial: Trial) -> Session:
        """Find or start the arbiter and register, when the first trial is added."""
        if self._session is not None and not self._session.closed:
            return self._session
        if getattr(bare(controller), "_reuse_actors", False):
            raise ConfigError(
                "reuse_actors=True moves a trial's GPUs to another trial behind the arbiter's "
                "back; leave it out when you use ThemisScheduler"
            )
        # Tune would end the experiment at a report without the metric; Reports deals with that.
        os.environ.setdefault("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")
        train_guard.refuse_in_trials()
        started = live.start(**self._arbiter_options)
        limits = self.search.gpus_per_trial() or (self.settings.trial_min, self.settings.trial_max)
        self._shape = shape_of(trial.placement_group_factory, started["unit"], *limits)
        self.settings.trial_min = self._shape.smallest
        self.settings.trial_max = self._shape.largest
        agent = Agent(self.settings, started_s=time.monotonic())
        if self._profiles is not None:
            agent.slowdowns.update(self._profiles.tables())
        agent.use(self.search)
        self.settings.sharers = self._shape.sharers
        if self.search.note():
            self._teller.once("search", f"{self.app}: {self.search.note()}")
        extra = {k: v for k, v in self._shape.bundle.items() if k != "GPU"}
        session = Session(agent, extra)
        welcome = session.open()
        try:
            check_cluster(self._shape, welcome.unit, welcome.cluster_gpus)
        except ConfigError:
            session.close("its trials are larger than the cluster")
            raise
        self._session = session
        bare(controller)._callbacks._callbacks.append(CloseAtEnd(session))
        if welcome.unit == "CPU":
            logger.warning("%s: the cluster has no GPU, so CPUs are leased", self.app)
        return session

    # -- hooks ----------------------------------------------------------------------------

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """A trial is new, restored, or to be retried: it waits for a lease."""
        if trial.is_finished():
            self.base.on_trial_add(tune_controller, trial)
            return
        session = self._open(tune_controller, trial)
        names.claim(trial, self.app)
        self._reports.added(trial.trial_id)
        total, source = iterations_of(trial, self.base, self.iterations_per_trial)
        if source == "assumed":
            self._teller.once(
                "horizon",
                f"{self.app}: nothing tells how many iterations a trial has, so {total:.0f} "
                "are assumed; set stop={'training_iteration': N}, or "
                "ThemisScheduler(iterations_per_trial=N)",
            )
        with self._deciding():
            agent = session.agent
            state = agent.add_trial(trial.trial_id, total, model_of(trial, agent.shared))
            state.iterations_done = float((trial.last_result or {}).get(ITERATION_ATTR, 0))
            agent.to_come, agent.concurrency = trials_of(tune_controller)
            self.base.on_trial_add(tune_controller, trial)
        # After the base, which may have a request of its own for plain Tune.
        self._ask_for_lease(trial)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """The base decides on the trial; a lease that ends pauses one that may go on."""
        session = self._session
        if session is None or session.closed:
            return self._decide(tune_controller, trial, result)
        state = session.agent.trials.get(trial.trial_id)
        if state is None or not state.live:
            return str(TrialScheduler.STOP)  # a report that was under way when it was stopped
        leave = self._note_result(session, trial, result)
        force = self.settings.preempt_without_checkpoint
        with self._deciding():
            decision = self._decide(tune_controller, trial, result)
        self._publish(session, trial)
        if decision == TrialScheduler.PAUSE:
            self._paused_by_lease[trial.trial_id] = False
        elif decision == TrialScheduler.CONTINUE and leave and saved_now(trial, result, force):
            self._paused_by_lease[trial.trial_id] = True
            decision = TrialScheduler.PAUSE
        if decision == TrialScheduler.PAUSE:
            with session.using() as agent:
                agent.trial_leaves(trial.trial_id)
        return decision

    def _decide(self, controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        seen = self._reports.for_base(trial.trial_id, result)
        if seen is None:
            return str(TrialScheduler.CONTINUE)
        decision = self.base.on_trial_result(controller, trial, seen)
        for name in seen.keys() - result.keys():
            result[name] = seen[name]  # what the base has added, for the searcher
        return str(decision)

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """A trial is over."""
        session = self._session
        if session is None or session.closed or trial.trial_id not in session.agent.trials:
            self._complete(tune_controller, trial, result)
            return
        with self._deciding():
            agent = session.agent
            self._complete(tune_controller, trial, result)
            # Tune does not hand the last report to a scheduler when a stop criterion is met.
            state = agent.trials[trial.trial_id]
            state.iterations_done = float(result.get(ITERATION_ATTR, 0))
            agent.to_come, agent.concurrency = trials_of(tune_controller)
            state.phase = TrialPhase.DONE
        self._publish(session, trial)
        self._gone(trial)

    def _complete(self, controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        seen = self._reports.last_for_base(trial.trial_id, result)
        if seen is not None:
            self.base.on_trial_complete(controller, trial, seen)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """A waiting or paused trial is taken away."""
        with self._deciding():
            self.base.on_trial_remove(tune_controller, trial)
        self._gone(trial)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """A trial failed; Tune adds it again when it is to be retried."""
        with self._deciding():
            self.base.on_trial_error(tune_controller, trial)
        self._gone(trial)

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Called in each step of the controller: keep leases and trials in line.

        A trial whose lease ended comes before what the base would choose: it is not for the base
        to resume it.
        """
        session = self._session
        if session is None or session.closed:
            return self.base.choose_trial_to_run(tune_controller)
        if session.failure:
            raise ConfigError(f"{self.app} lost its place at the arbiter: {session.failure}")
        follow_statuses(session, tune_controller)
        session.pump()
        self._stop_overdue(session, tune_controller)
        self._teller.why_waiting(session)
        if session.agent.forecast.trouble:
            self._teller.once("adapter", f"{self.app}: {session.agent.forecast.trouble}")
        for trial in tune_controller.get_trials():
            if trial.status == Trial.PAUSED and self._paused_by_lease.get(trial.trial_id):
                self._ask_for_lease(trial)
                return trial
        with session.using():
            chosen = self.base.choose_trial_to_run(tune_controller)
        if chosen is not None and chosen.status == Trial.PAUSED:
            self._ask_for_lease(chosen)
        return chosen

    @contextmanager
    def _deciding(self) -> Iterator[None]:
        """While the base changes its mind, nobody asks what it thinks: bids are made elsewhere."""
        session = self._session
        if session is None:
            yield
            return
        with session.using() as agent:
            yield
            agent.changed()

    def debug_string(self) -> str:
        """The base's line, and one with r, the GPUs held and the time left on the lease."""
        line = self.base.debug_string()
        session = self._session
        if session is None or session.closed:
            return f"{line}\nThemis: {self.app} holds no lease"
        with session.using() as agent:
            now = time.monotonic()
            report, held = agent.state_of_app(now), agent.held().size
            ends = agent.next_expiry_s()
            waiting = sum(t.phase is TrialPhase.WAITING for t in agent.trials.values())
            remarks = agent.remarks()
        r = f"{report.r:.2f}" if math.isfinite(report.r) else "not known yet"
        lease = f"lease ends in {max(0.0, ends - now):.0f} s" if ends is not None else "no lease"
        unit = session.welcome.unit if session.welcome else "GPU"
        return (
            f"{line}\nThemis: {self.app}: r = {r}, {held} {unit}s held, {lease}, "
            f"{waiting} trials wait for one" + "".join(f"\n  {remark}" for remark in remarks)
        )

    def save(self, checkpoint_path: str) -> None:
        """Save the wrapped scheduler."""
        self.base.save(checkpoint_path)

    def restore(self, checkpoint_path: str) -> None:
        """Restore the wrapped scheduler."""
        self.base.restore(checkpoint_path)

    # -- parts of the hooks -----------------------------------------------------------------

    def _ask_for_lease(self, trial: Trial) -> None:
        """Give a trial a fresh request: Tune asks the arbiter with it when it stages the trial."""
        assert self._shape is not None
        self._paused_by_lease.pop(trial.trial_id, None)
        trial.placement_group_factory = LeaseRequest(self.app, self._shape.request, trial.trial_id)

    def _note_result(self, session: Session, trial: Trial, result: dict[str, Any]) -> bool:
        iteration = float(result.get(ITERATION_ATTR, 0))
        with session.using() as agent:
            state = agent.trials[trial.trial_id]
            if result.get("should_checkpoint"):
                state.checkpointed = iteration
            state.preemptible = self.settings.preempt_without_checkpoint or loses_nothing(
                trial, state.checkpointed
            )
            state.last_result = result
            if not state.preemptible:
                self._teller.once(
                    "checkpoint",
                    f"{self.app}: trials of {trial.trainable_name} save no checkpoint, so they "
                    "keep their GPUs when a lease ends, which is unfair to other apps. Save one "
                    "(tune.report(..., checkpoint=...), or save_checkpoint in a class), or set "
                    "ThemisScheduler(preempt_without_checkpoint=True)",
                )
            return agent.trial_ran(
                trial.trial_id,
                time.monotonic(),
                iteration,
                result.get("time_this_iter_s"),
                **measured_in(result),
            )

    def _publish(self, session: Session, trial: Trial) -> None:
        """Make a trial's newest r and lease known to callbacks and loggers."""
        policy = session.welcome.policy if session.welcome else ""
        with session.using() as agent:
            known = metrics.of_trial(agent, trial.trial_id, policy, time.monotonic())
        metrics.publish(trial.trial_id, known)

    def _gone(self, trial: Trial) -> None:
        if self._session is not None and not self._session.closed:
            with self._session.using() as agent:
                agent.trial_left(trial.trial_id, time.monotonic(), done=True)
            self._session.pump()

    def _stop_overdue(self, session: Session, controller: Any) -> None:
        """Stop what has not paused by the end of its lease; it goes back to its checkpoint."""
        now = time.monotonic()
        grace_s = session.welcome.grace_s if session.welcome else 0.0
        with session.using() as agent:
            overdue = {i: agent.trials[i].leave_by_s or 0.0 for i in agent.overdue(now)}
        for trial in list(controller.get_live_trials()):
            deadline = overdue.get(trial.trial_id)
            if deadline is None or trial.status not in (Trial.RUNNING, Trial.PENDING):
                continue
            if trial.is_saving and now < deadline + 0.8 * grace_s:
                continue  # its save is under way: let it end
            hard_stop(controller, trial)
            # One that the base has paused stays paused by the base.
            self._paused_by_lease.setdefault(trial.trial_id, True)
            with session.using() as agent:
                agent.trial_left(trial.trial_id, now, done=False)
            logger.info("%s: stopped %s at the end of its lease", self.app, trial)
