"""What every adapter has to do, as a test suite: derive from it and say how to make one.

::

    from themis_ray.testing.adapter_contract import AdapterContract

    class TestMyAdapter(AdapterContract):
        def make(self):
            return MyAdapter(MyScheduler(max_t=9))

The adapter is shown random apps (trials that are new, half done, ended; trials to come; gangs and
elastic trials) whose trials its scheduler may never have heard of. Override :meth:`populate` to
have the scheduler know them, in a state that fits. Plain ``assert`` and ``test_`` methods: pytest
collects them; no plug-in is needed.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from themis_ray.core.cluster import Level
from themis_ray.core.slowdown import SlowdownTable
from themis_ray.searchers.api import (
    AppState,
    JobInfo,
    PhaseSearch,
    RemainingSearch,
    Search,
    TrialInfo,
    checked,
    time_left_s,
)


def random_app(rng: random.Random) -> AppState:
    """An app of up to eight trials at various stages, elastic ones or gangs."""
    least = rng.choice([1, 1, 1, 2])
    most = least * rng.choice([1, 1, 2, 4])
    table = SlowdownTable()
    total = float(rng.randint(1, 30))
    trials = []
    for i in range(rng.randint(0, 8)):
        done = float(rng.choice([0, 0, rng.randint(0, int(total))]))
        live = rng.random() < 0.7
        result = {"training_iteration": done, "time_total_s": done * 2.0} if done else {}
        trials.append(
            TrialInfo(
                f"t{i}",
                done,
                total,
                rng.uniform(0.1, 100),
                least,
                most,
                live,
                live and rng.random() < 0.5,
                table,
                result,
            )
        )
    to_come = rng.choice([0, 0, rng.randint(0, 9)])
    concurrency = rng.choice([math.inf, math.inf, float(rng.randint(1, 4))])
    return AppState(tuple(trials), to_come, concurrency)


class AdapterContract:
    """The contract; say how to :meth:`make` an adapter in a subclass.

    Class attributes:
        scenarios: How many random apps are tried.
        over_when_no_trial_is_left: It has nothing left when no trial lives and none is to come.
        counts_iterations: It ends trials after so many iterations, and not so many seconds.
    """

    scenarios: ClassVar[int] = 60
    over_when_no_trial_is_left: ClassVar[bool] = True
    counts_iterations: ClassVar[bool] = True

    def make(self) -> Search:
        """A fresh adapter."""
        raise NotImplementedError

    def populate(self, search: Search, app: AppState, rng: random.Random) -> AppState:
        """Have the scheduler behind an adapter know an app's trials; returns the app to show it."""
        return app

    def _seen(self) -> Iterator[tuple[Search, AppState, random.Random]]:
        for seed in range(self.scenarios):
            rng = random.Random(seed)
            search = self.make()
            app = self.populate(search, random_app(rng), rng)
            search.observe(app)
            yield search, app, rng

    def _answers(self, search: Search, allocation: Sequence[int]) -> list[Sequence[JobInfo]]:
        if isinstance(search, PhaseSearch):
            phases = search.num_phases()
            return [search.jobs_in_phase(phase, allocation) for phase in range(phases)]
        assert isinstance(search, RemainingSearch), "derive it from PhaseSearch or RemainingSearch"
        return [search.jobs_remaining(allocation)]

    def test_answers_can_be_used(self) -> None:
        """Lists of jobs with figures in range, for any allocation, none at all included."""
        for search, _, rng in self._seen():
            for allocation in ((), (1,), (4,), (2, 1), (1, 1, 1), (8, 8), (rng.randint(1, 64),)):
                for jobs in self._answers(search, allocation):
                    checked(search, jobs, allocation)

    def test_jobs_share_no_gpu(self) -> None:
        """Together they have no more than the allocation, and no part is larger than a machine."""
        for search, _, _ in self._seen():
            for allocation in ((3,), (2, 2), (4, 1, 1)):
                for jobs in self._answers(search, allocation):
                    assert sum(sum(job.gpus) for job in jobs) <= sum(allocation)
                    assert all(max(job.gpus) <= max(allocation) for job in jobs if job.gpus)

    def test_the_current_jobs_are_real_ones(self) -> None:
        """No trial is listed twice, none that has ended, none that does not exist."""
        for search, app, _ in self._seen():
            live = {trial.id for trial in app.live}
            answers = self._answers(search, (8,))
            named = [job.id for job in answers[0] if job.id] if answers else []
            assert len(named) == len(set(named))
            assert set(named) <= live

    def test_jobs_keep_to_the_sizes_of_their_trials(self) -> None:
        """Unless the search itself decides on sizes."""
        for search, app, _ in self._seen():
            if search.gpus_per_trial() is not None:
                continue
            sizes = {(trial.min_gpus, trial.max_gpus) for trial in app.trials} or {(1, 1)}
            for jobs in self._answers(search, (8,)):
                assert {(job.min_gpus, job.max_gpus) for job in jobs} <= sizes

    def test_more_gpus_never_hurt(self) -> None:
        """Beyond rounding by list scheduling, time left falls as GPUs are added."""
        for search, _, _ in self._seen():
            times = [time_left_s(search, (n,)) for n in (1, 2, 4, 8, 16, 32, 64)]
            for fewer, more in itertools.pairwise(times):
                # Graham's anomalies: taking turns on more GPUs may be a little worse.
                assert more <= fewer * 1.34 + 1e-6, times
            assert times[-1] <= times[0] * (1 + 1e-9) + 1e-6, times

    def test_distance_never_helps(self) -> None:
        """GPUs apart are no faster than GPUs together."""
        for search, _, _ in self._seen():
            together = time_left_s(search, (4,))
            apart = time_left_s(search, (1, 1, 1, 1), Level.CLUSTER)
            assert apart >= together * (1 - 1e-9)

    def test_slower_iterations_take_longer(self) -> None:
        """Time grows with the seconds of an iteration."""
        if not self.counts_iterations:
            return
        for search, app, _ in self._seen():
            before = time_left_s(search, (4,))
            if not math.isfinite(before):
                continue
            slow = tuple(
                replace(
                    trial,
                    serial_iter_s=trial.serial_iter_s * 3,
                    last_result={
                        key: value * 3 if key.startswith("time_") else value
                        for key, value in trial.last_result.items()
                    },
                )
                for trial in app.trials
            )
            search.observe(replace(app, trials=slow))
            after = time_left_s(search, (4,))
            assert after >= before * (1 - 1e-9)

    def test_trials_to_come_are_work_left(self) -> None:
        """A search that still makes trials is not over, and has no less to do than without."""
        for search, app, _ in self._seen():
            if not app.trials:
                continue
            # Iterations, and not seconds: a new trial may change who the median job is.
            search.observe(replace(app, to_come=0))
            without = _iterations(self._answers(search, ()))
            search.observe(replace(app, to_come=5))
            whole = _iterations(self._answers(search, ()))
            assert whole > 0
            assert whole >= without * (1 - 1e-9)

    def test_a_search_without_trials_is_over(self) -> None:
        """When none lives and none is to come, nothing is left to do."""
        if not self.over_when_no_trial_is_left:
            return
        for search, app, _ in self._seen():
            ended = tuple(replace(trial, live=False, running=False) for trial in app.trials)
            search.observe(replace(app, trials=ended, to_come=0))
            assert time_left_s(search, (1,)) == 0.0

    def test_asking_changes_nothing(self) -> None:
        """The same question twice has the same answer."""
        for search, _, _ in self._seen():
            for allocation in ((4,), (2, 1)):
                first = [list(jobs) for jobs in self._answers(search, allocation)]
                again = [list(jobs) for jobs in self._answers(search, allocation)]
                assert first == again


def _iterations(phases: list[Sequence[JobInfo]]) -> float:
    return math.fsum(job.iterations_remaining for jobs in phases for job in jobs)
