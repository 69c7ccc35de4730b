"""``SuccessiveHalving``: a synchronous, gang-aware scheduler for Ray Tune.

``n`` configurations train for some iterations, the best ``n / eta`` of them go on with ``eta``
times the GPUs, and so on until one remains. It works by itself in ``tune.run(scheduler=...)``,
and through ``ThemisScheduler`` on leased GPUs: being a
:class:`~themis_ray.searchers.api.PhaseSearch`, it bids by Equation 2 of THEMIS.
"""

from __future__ import annotations

import logging
import math
import pickle
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from ray.tune.execution.placement_groups import PlacementGroupFactory
from ray.tune.experiment import Trial
from ray.tune.result import DEFAULT_METRIC
from ray.tune.schedulers import FIFOScheduler
from ray.tune.schedulers.trial_scheduler import TrialScheduler

from ..core.valuation import Split
from ..errors import ConfigError
from .adapters.phased import ITERATION, Phases, halving, side_by_side
from .api import AppState, JobInfo, PhaseSearch, TrialInfo, share_out
from .metrics import concurrency_of, score_of

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Bracket:
    """Trials that are compared with each other.

    Attributes:
        size: How many trials it is for.
        members: Ids of its trials that are still in the race, in the order in which they came.
        phase: Where it is; 0 is the first.
        scores: The latest score of each member, the greater the better.
        arrived: Members that have done the present phase.
        full: No more trials will join.
    """

    size: int
    members: list[str] = field(default_factory=list)
    phase: int = 0
    scores: dict[str, float] = field(default_factory=dict)
    arrived: set[str] = field(default_factory=set)
    full: bool = False


class SuccessiveHalving(FIFOScheduler, PhaseSearch):  # type: ignore[misc]  # ray is untyped
    """Keeps the best ``1 / eta`` of its trials after each phase, until one remains.

    Args:
        n: Configurations that are compared with each other; with more samples, the next ``n`` are
            compared with each other, and so on. All samples of the experiment when None.
        iterations: Training iterations of the first phase, each later one having ``eta`` times as
            many; or the iterations of each phase, as a sequence.
        eta: One in so many goes on to the next phase.
        gpus: GPUs of a trial in the first phase. More than one means so many bundles, each with
            the trial's own resource request.
        max_gpus: The most GPUs of a trial, as its share grows ``eta``-fold from phase to phase;
            ``gpus`` when None.
        rigid: Under ``ThemisScheduler``, a trial does not run on fewer GPUs than that either. Else
            it starts on fewer when no more are to be had at once, and restarts on more when that
            pays within the lease.
        split: How the trials of a phase share GPUs: ``makespan`` finishes the slowest soonest.
        metric: The metric to compare by; also taken from ``tune.run`` and ``TuneConfig``.
        mode: ``min`` or ``max``; the same.

    Raises:
        ConfigError: An argument cannot be used; the message says how to mend it.
    """

    # Tune would hand several results of a trial over at once, beyond the end of its phase.
    _supports_buffered_results = False

    def __init__(
        self,
        n: int | None = None,
        iterations: int | Sequence[int] = 1,
        *,
        eta: int = 2,
        gpus: int = 1,
        max_gpus: int | None = None,
        rigid: bool = False,
        split: Split = "makespan",
        metric: str | None = None,
        mode: str | None = None,
    ) -> None:
        super().__init__()
        self._n, self._iterations, self._eta = n, iterations, eta
        self._gpus, self._max_gpus = gpus, gpus if max_gpus is None else max_gpus
        self._rigid, self._split = rigid, split
        self._metric, self._mode = metric, mode
        self._check()
        self._brackets: list[_Bracket] = []
        self._bracket_of: dict[str, _Bracket] = {}
        self._ready: set[str] = set()
        self._requests: dict[str, PlacementGroupFactory] = {}
        self._cutting = False
        self._num_stopped = 0
        if n is not None:
            self._set_out(n)

    def _check(self) -> None:
        for name, value, least in (
            ("n", self._n, 1),
            ("eta", self._eta, 2),
            ("gpus", self._gpus, 1),
            ("max_gpus", self._max_gpus, self._gpus),
        ):
            if value is not None and (not isinstance(value, int) or value < least):
                raise ConfigError(f"{name} = {value}; use a whole number of {least} or more")
        given = self._iterations
        each = [given] if isinstance(given, int) else list(given)
        if not each or any(not isinstance(x, int) or x < 1 for x in each):
            raise ConfigError(f"iterations = {given}; use whole numbers of 1 or more")
        if self._mode not in (None, "min", "max"):
            raise ConfigError(f"mode = {self._mode!r}; use 'min' or 'max'")
        if self._split not in ("even", "makespan"):
            raise ConfigError(f"split = {self._split!r}; use 'even' or 'makespan'")

    def _set_out(self, n: int) -> None:
        """Fix the phases of ``n`` trials: until which iteration, on how many GPUs."""
        counts = [n]
        while counts[-1] > 1:
            counts.append(max(1, counts[-1] // self._eta))
        given = self._iterations
        each = (
            [given * self._eta**k for k in range(len(counts))]
            if isinstance(given, int)
            else list(given)
        )
        if len(each) != len(counts):
            raise ConfigError(
                f"iterations = {given} is for {len(each)} phases, but {n} trials with eta = "
                f"{self._eta} make {len(counts)}: {' -> '.join(map(str, counts))} trials"
            )
        self._size = n
        self._milestones = list(accumulate(each))
        self._demands = [min(self._gpus * self._eta**k, self._max_gpus) for k in range(len(counts))]

    # -- Tune's side --------------------------------------------------------------------------

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Take over the search's metric, mode and number of samples."""
        if (self._metric and metric) or (self._mode and mode):
            return False
        self._metric = metric or self._metric or DEFAULT_METRIC
        self._mode = mode or self._mode
        if self._mode is None:
            raise ConfigError(
                "SuccessiveHalving does not know whether its metric is to be minimised or "
                "maximised; set mode='min' or mode='max'"
            )
        if self._n is None:
            total = spec.get("total_num_samples")
            if not isinstance(total, int) or not 0 < total < sys.maxsize:
                raise ConfigError(
                    "SuccessiveHalving cannot tell how many trials there will be; give it n"
                )
            self._set_out(total)
        return True

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """A trial joins the bracket that is being filled, or comes back to its own."""
        key = trial.trial_id
        self._requests.setdefault(key, trial.placement_group_factory)
        bracket = self._bracket_of.get(key)
        if bracket is None:
            bracket = self._open_bracket(tune_controller)
            self._bracket_of[key] = bracket
        if key not in bracket.members:
            bracket.members.append(key)
            bracket.full = bracket.full or len(bracket.members) >= bracket.size
        self._ask_for_gpus(trial, bracket)

    def _open_bracket(self, controller: Any) -> _Bracket:
        if self._brackets and not self._brackets[-1].full:
            return self._brackets[-1]
        # Trials that wait for the others still count for a searcher's limit.
        limit = concurrency_of(controller.search_alg)
        self._brackets.append(_Bracket(int(min(self._size, limit))))
        return self._brackets[-1]

    def _ask_for_gpus(self, trial: Trial, bracket: _Bracket) -> None:
        """So many equal bundles: what plain Tune places. Themis puts a lease in its stead."""
        demand = self._demands[bracket.phase]
        request = self._requests[trial.trial_id]
        if demand > 1 and len(request.bundles) == 1:
            bundles = [dict(request.bundles[0])] * demand
            trial.placement_group_factory = PlacementGroupFactory(bundles)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Pause a trial at the end of its phase; the last to come there decides for all."""
        bracket = self._bracket_of.get(trial.trial_id)
        if bracket is None or trial.trial_id not in bracket.members:
            return str(TrialScheduler.STOP)
        self._ready.discard(trial.trial_id)
        self._note(bracket, trial.trial_id, result)
        if trial.trial_id not in bracket.arrived:
            return str(TrialScheduler.CONTINUE)
        cut = self._cut(tune_controller, bracket, reporting=trial.trial_id)
        if not cut:
            return str(TrialScheduler.PAUSE)
        if trial.trial_id not in bracket.members:
            return str(TrialScheduler.STOP)
        if self._demands[bracket.phase] == self._demands[bracket.phase - 1]:
            return str(TrialScheduler.CONTINUE)
        self._ready.add(trial.trial_id)
        return str(TrialScheduler.PAUSE)

    def _note(self, bracket: _Bracket, key: str, result: Mapping[str, Any]) -> None:
        score = score_of(result, self._metric, self._mode)
        if score is not None:
            bracket.scores[key] = score
        if result.get(ITERATION, 0) >= self._milestones[bracket.phase]:
            bracket.arrived.add(key)

    def _cut(self, controller: Any, bracket: _Bracket, reporting: str = "") -> bool:
        """Go on to the next phase, if all members have done this one; whether it did."""
        if self._cutting or not bracket.members or not bracket.arrived.issuperset(bracket.members):
            return False
        if not bracket.full and not controller.search_alg.is_finished():
            return False
        bracket.full = True
        last = bracket.phase == len(self._milestones) - 1
        keep = 0 if last else max(1, len(bracket.members) // self._eta)
        # A trial without a score that can be compared is worse than any with one.
        order = sorted(bracket.members, key=lambda t: -bracket.scores.get(t, -math.inf))
        losers = set(order[keep:])
        bracket.members = [t for t in bracket.members if t not in losers]
        bracket.arrived.clear()
        bracket.phase += not last
        self._num_stopped += len(losers)
        self._ready.update(t for t in bracket.members if t != reporting)
        self._stop(controller, losers - {reporting})
        return True

    def _stop(self, controller: Any, losers: set[str]) -> None:
        """End trials that wait; Tune calls back for each, which is not to cut anew."""
        self._cutting = True
        try:
            for trial in list(controller.get_trials()):
                if trial.trial_id in losers and not trial.is_finished():
                    controller.stop_trial(trial)
        finally:
            self._cutting = False

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """A trial is over."""
        self._leave(trial.trial_id)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """A waiting trial is taken away."""
        self._leave(trial.trial_id)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """A trial failed; if Tune retries it, it comes back to its bracket."""
        self._leave(trial.trial_id)

    def _leave(self, key: str) -> None:
        bracket = self._bracket_of.get(key)
        if bracket is not None and key in bracket.members:
            bracket.members.remove(key)
            bracket.arrived.discard(key)
        self._ready.discard(key)

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """A new trial, or one that has come through a cut."""
        for bracket in self._brackets:
            self._cut(tune_controller, bracket)
        trials = tune_controller.get_trials()
        for trial in trials:
            if trial.status == Trial.PENDING:
                return trial
        for trial in trials:
            if trial.trial_id in self._ready and trial.status == Trial.PAUSED:
                # Choosing it again changes nothing; it leaves the set when it has reported.
                self._ask_for_gpus(trial, self._bracket_of[trial.trial_id])
                return trial
        return None

    def debug_string(self) -> str:
        """Each bracket in a line."""
        lines = [
            f"  phase {b.phase + 1} of {len(self._milestones)}: {len(b.members)} trials until "
            f"iteration {self._milestones[b.phase]}, {len(b.arrived)} are there"
            for b in self._brackets
            if b.members
        ]
        head = f"Using SuccessiveHalving: num_stopped={self._num_stopped}"
        return "\n".join([head, *lines])

    def save(self, checkpoint_path: str) -> None:
        """Save what is known of the brackets."""
        Path(checkpoint_path).write_bytes(pickle.dumps({**self.__dict__, "app": AppState()}))

    def restore(self, checkpoint_path: str) -> None:
        """Take a saved state over."""
        self.__dict__.update(pickle.loads(Path(checkpoint_path).read_bytes()))

    # -- the AGENT's side ---------------------------------------------------------------------

    def num_phases(self) -> int:
        """Phases still to do."""
        return len(self._phases())

    def jobs_in_phase(self, phase: int, allocation: Sequence[int]) -> Sequence[JobInfo]:
        """The trials of a phase, and the GPUs of each."""
        return share_out(
            self._phases()[phase], allocation, self._split, at_most=self.app.concurrency
        )

    def observe(self, app: AppState) -> None:
        """The AGENT tells what is known of the trials."""
        super().observe(app)
        self._known_phases: Phases | None = None

    def _phases(self) -> Phases:
        if getattr(self, "_known_phases", None) is None:
            live = {trial.id: trial for trial in self.app.live}
            to_come = self.app.to_come
            parts: list[Phases] = []
            for bracket in self._brackets:
                trials = [live[key] for key in bracket.members if key in live]
                if not bracket.full:
                    room = min(to_come, bracket.size - len(bracket.members))
                    trials += [self.app.typical()] * room
                    to_come -= room
                parts.append(self._of(trials, bracket))
            while to_come > 0:
                count = min(to_come, self._size)
                parts.append(self._of([self.app.typical()] * count, _Bracket(count)))
                to_come -= count
            self._known_phases = side_by_side(parts)
        assert self._known_phases is not None
        return self._known_phases

    def _of(self, trials: Sequence[TrialInfo], bracket: _Bracket) -> Phases:
        here = bracket.phase
        jobs = [self._job(t, here, t.id in bracket.arrived) for t in trials]
        count, steps = len(jobs), []
        for k in range(here + 1, len(self._milestones)):
            count = max(1, count // self._eta)
            steps.append((count, float(self._milestones[k] - self._milestones[k - 1])))
        phases = halving(jobs, steps)
        return [[self._sized(job, here + k) for job in phase] for k, phase in enumerate(phases)]

    def _job(self, trial: TrialInfo, phase: int, arrived: bool) -> JobInfo:
        job = trial.job(until=self._milestones[phase])
        return replace(job, iterations_remaining=0.0) if arrived else job

    def _sized(self, job: JobInfo, phase: int) -> JobInfo:
        demand = self._demands[phase]
        least = demand if self._rigid else min(job.min_gpus, demand)
        return replace(job, min_gpus=least, max_gpus=demand)

    def gpus_per_trial(self) -> tuple[int, int]:
        """The fewest and the most GPUs of a trial in its life."""
        return (self._gpus if self._rigid else 1, self._max_gpus)
