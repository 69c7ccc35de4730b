"""Tune's controller on paper: the real schedulers, with trials that exist as numbers only.

A step of :class:`PaperTune` does what a step of Tune's controller does: it asks the scheduler whom
to run, starts those that have GPUs, and has one running trial (drawn from a seed) report once.
Under ``ThemisScheduler`` the leases are real :class:`LeaseView` objects handed to the real AGENT;
they are taken away at random moments.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from ray.tune.execution.placement_groups import PlacementGroupFactory
from ray.tune.experiment import Trial
from ray.tune.schedulers.trial_scheduler import TrialScheduler

from tests.tune.trainables import Counting
from themis_ray.agent.agent import Agent
from themis_ray.core import events as ev
from themis_ray.core.cluster import NOTHING, Allocation
from themis_ray.core.commands import LeasesChanged, LeaseView
from themis_ray.core.explain import Waiting
from themis_ray.tune.lease_request import LeaseRequest
from themis_ray.tune.resources import shape_of
from themis_ray.tune.scheduler import ThemisScheduler

Metric = Callable[[int, int], Any]


class PaperTrial:
    """What schedulers look at of a trial; ``metric(index, iteration)`` is its curve."""

    def __init__(self, index: int, iterations: int) -> None:
        self.index = index
        self.trial_id = f"t{index:02d}"
        self.status = Trial.PENDING
        self.iterations = iterations
        self.stopping_criterion = {"training_iteration": iterations}
        self.placement_group_factory = PlacementGroupFactory([{"CPU": 1, "GPU": 1}])
        self.config: dict[str, Any] = {}
        self.evaluated_params: dict[str, Any] = {}
        self.trainable_name = "paper"
        self.last_result: dict[str, Any] = {}
        self.done = self.saved = 0
        self.checkpoint: Any = None
        self.is_saving = False
        self.experiment_dir_name = "paper"
        manager = SimpleNamespace(checkpoint_config=SimpleNamespace(num_to_keep=None))
        self.run_metadata = SimpleNamespace(checkpoint_manager=manager)
        self.ends: list[int] = []

    def is_finished(self) -> bool:
        return self.status in (Trial.TERMINATED, Trial.ERROR)

    def get_trainable_cls(self) -> type:
        return Counting

    def __repr__(self) -> str:
        return self.trial_id


class PaperSession:
    """A session without an arbiter: whoever holds it grants and takes leases."""

    closed, failure = False, ""
    welcome = SimpleNamespace(policy="paper", grace_s=5.0, unit="GPU", cluster_gpus=8)

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.clock = 0.0

    @contextmanager
    def using(self) -> Iterator[Agent]:
        yield self.agent

    def pump(self) -> None:
        self.sent = self.agent.plan(self.clock)
        assert self.agent.state_of_app(self.clock).r > 0
        for event in self.sent:
            if isinstance(event, ev.BidReceived):
                raise AssertionError(event)

    def why_waiting(self) -> str:
        return "on paper"

    def lease(self, gpus: int, *, notice: bool = False) -> None:
        """Hold so many GPUs from now on; with notice, the trials on others leave when they report.

        Without it they are stopped, and go back to their last checkpoints.
        """
        before = self.agent.held().size
        views = [_view("kept", gpus, final=False)] if gpus else []
        if notice and before > gpus:
            views.append(_view("lost", before - gpus, final=True))
        self.agent.leases_changed(LeasesChanged("paper", tuple(views), Waiting(0)))


def _view(name: str, gpus: int, *, final: bool) -> LeaseView:
    return LeaseView(f"{name}{gpus}", Allocation({"m0": gpus}), NOTHING, 1e12, final)


class PaperThemis(ThemisScheduler):
    """``ThemisScheduler`` whose session is on paper."""

    def _open(self, controller: Any, trial: Any) -> Any:
        if self._session is None:
            limits = self.search.gpus_per_trial() or (
                self.settings.trial_min,
                self.settings.trial_max,
            )
            self._shape = shape_of(trial.placement_group_factory, "GPU", *limits)
            self.settings.trial_min, self.settings.trial_max = limits
            agent = Agent(self.settings, started_s=0.0, cluster_gpus=8)
            agent.use(self.search)
            self._session = PaperSession(agent)
        return self._session


class PaperTune:
    """The controller.

    Args:
        scheduler: A Tune scheduler, plain or ``PaperThemis``.
        metric: ``metric(index, iteration)``; a report lacks it where this returns ``...``.
        trials: How many trials.
        iterations: Where their stop criterion ends them.
        seed: Decides who reports next, and when leases change.
        at_once: Trials that exist before any of them ends (a searcher's concurrency).
    """

    def __init__(
        self,
        scheduler: TrialScheduler,
        metric: Metric,
        trials: int,
        iterations: int,
        seed: int = 0,
        disturb: float = 0.0,
        at_once: int | None = None,
    ) -> None:
        self.scheduler, self.metric = scheduler, metric
        self.rng = random.Random(seed)
        self.disturb = disturb
        self.coming = [PaperTrial(i, iterations) for i in range(trials)]
        self.trials: list[PaperTrial] = []
        self.at_once, self.given_at_once = at_once or trials, at_once
        quiet = SimpleNamespace(on_pause=lambda *_: None, on_unpause=lambda *_: None)
        self.search_alg = SimpleNamespace(
            total_samples=trials,
            is_finished=lambda: not self.coming,
            max_concurrent=at_once or 0,
            searcher=quiet,
        )
        quiet.max_concurrent = at_once or 0
        self.reported: list[tuple[int, int]] = []
        self.taken = 0
        self._staged_trials: set[PaperTrial] = set()
        self._cached_trial_decisions: dict[str, str] = {}
        self._queued_trial_decisions: dict[str, str] = {}
        scheduler.set_search_properties("m", "max", total_num_samples=trials)

    # -- what schedulers call --------------------------------------------------------------------

    def get_trials(self) -> list[PaperTrial]:
        return self.trials

    def get_live_trials(self) -> list[PaperTrial]:
        return [t for t in self.trials if not t.is_finished()]

    def stop_trial(self, trial: PaperTrial) -> None:
        if trial.is_finished():
            return
        if trial.status == Trial.RUNNING:
            self.scheduler.on_trial_complete(self, trial, trial.last_result)
        else:
            self.scheduler.on_trial_remove(self, trial)
        trial.status = Trial.TERMINATED
        trial.ends.append(trial.last_result.get("training_iteration", 0))

    def pause_trial(self, trial: PaperTrial, should_checkpoint: bool = True) -> None:
        assert not should_checkpoint
        trial.status, trial.done = Trial.PAUSED, trial.saved

    # -- the loop ----------------------------------------------------------------------------------

    @property
    def session(self) -> PaperSession | None:
        session = getattr(self.scheduler, "_session", None)
        return session if isinstance(session, PaperSession) else None

    def run(self, steps: int = 5000) -> dict[int, int]:
        """How far each trial came."""
        for _ in range(steps):
            if not self.coming and all(t.is_finished() for t in self.trials):
                return {t.index: t.ends[-1] for t in self.trials}
            self.step()
        states = {t.trial_id: (t.status, t.done) for t in self.trials}
        raise AssertionError(f"the search hangs: {states}")

    def step(self) -> None:
        """One step of the controller."""
        self._add_and_start()
        running = [t for t in self.trials if t.status == Trial.RUNNING]
        if running:
            self.report(self.rng.choice(running))

    def _add_and_start(self) -> None:
        while self.coming and len(self.get_live_trials()) < self.at_once:
            trial = self.coming.pop(0)
            self.trials.append(trial)
            self.scheduler.on_trial_add(self, trial)
        session = self.session
        if session is not None:
            session.clock += 1.0
            self._disturb(session)
        chosen = self.scheduler.choose_trial_to_run(self)
        if chosen is not None and chosen.status == Trial.PAUSED:
            chosen.status = Trial.PENDING
        for trial in self.trials:
            if trial.status == Trial.PENDING:
                self._start(trial)

    def report_of(self, index: int) -> bool:
        """One iteration of a certain trial, as soon as it runs; False when it never does."""
        for _ in range(50):
            for trial in self.trials:
                if trial.index == index and trial.status == Trial.RUNNING:
                    self.report(trial)
                    return True
            self._add_and_start()
        return False

    def _disturb(self, session: PaperSession) -> None:
        held = session.agent.held()
        if session.clock <= 1 or not held:
            session.lease(8)
        elif self.rng.random() < self.disturb:
            fewer = self.rng.randint(0, held.size)
            self.taken += fewer < held.size
            session.lease(fewer, notice=self.rng.random() < 0.6)
        elif self.rng.random() < self.disturb:
            session.lease(8)

    def _start(self, trial: PaperTrial) -> None:
        session = self.session
        if session is None:
            trial.status, trial.done = Trial.RUNNING, trial.saved
            return
        request = trial.placement_group_factory
        assert isinstance(request, LeaseRequest)
        state = session.agent.trials[trial.trial_id]
        if state.group != request.group:
            session.agent.trial_waits(trial.trial_id, request.group)
            session.pump()
        if state.holds:
            trial.status, trial.done = Trial.RUNNING, trial.saved

    def report(self, trial: PaperTrial) -> str:
        """One iteration of a running trial."""
        trial.done += 1
        result: dict[str, Any] = {"training_iteration": trial.done, "time_this_iter_s": 1.0}
        value = self.metric(trial.index, trial.done)
        if value is not ...:
            result["m"] = value
        if trial.done >= trial.iterations:
            trial.last_result = result
            self.reported.append((trial.index, trial.done))
            self.stop_trial(trial)
            return str(TrialScheduler.STOP)
        decision = self.scheduler.on_trial_result(self, trial, result)
        trial.last_result = result
        self.reported.append((trial.index, trial.done))
        if decision == TrialScheduler.PAUSE:
            trial.status, trial.saved = Trial.PAUSED, trial.done
        elif decision == TrialScheduler.STOP:
            self.stop_trial(trial)
        elif trial.done % 2 == 0:
            trial.saved = trial.done
        return str(decision)


def replayed(scheduler: TrialScheduler, like: PaperTune, iterations: int) -> dict[int, int]:
    """How far trials come in a plain run in which the same reports come in the same order."""
    plain = PaperTune(
        scheduler, like.metric, len(like.trials), iterations, at_once=like.given_at_once
    )
    for index, _ in dict.fromkeys(like.reported):
        assert plain.report_of(index), f"trial {index} is not run, {plain.reported[-5:]}"
    plain.step()
    return {t.index: t.ends[-1] if t.ends else -1 for t in plain.trials}
