"""Every adapter, by the contract, and where its figures are known by hand."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from ray.tune.execution.placement_groups import PlacementGroupFactory
from ray.tune.schedulers import (
    ASHAScheduler,
    FIFOScheduler,
    HyperBandForBOHB,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
)
from ray.tune.schedulers.pb2 import PB2

from themis_ray.errors import AdapterError, ConfigError
from themis_ray.searchers.adapters.unknown import UnknownAdapter
from themis_ray.searchers.api import (
    AllTrials,
    AppState,
    JobInfo,
    RemainingSearch,
    Search,
    TrialInfo,
    time_left_s,
)
from themis_ray.searchers.registry import _adapters, register, search_for
from themis_ray.searchers.successive_halving import SuccessiveHalving
from themis_ray.testing.adapter_contract import AdapterContract

COMPARE: dict[str, Any] = {"metric": "m", "mode": "max"}


class FakeTrial(SimpleNamespace):
    """As much of a trial as schedulers ask for when it is added."""

    def __hash__(self) -> int:
        return hash(self.trial_id)

    def __eq__(self, other: object) -> bool:
        return self is other


def trial(key: str, status: str = "RUNNING") -> FakeTrial:
    return FakeTrial(
        trial_id=key,
        status=status,
        is_saving=False,
        placement_group_factory=PlacementGroupFactory([{"CPU": 1, "GPU": 1}]),
        is_finished=lambda: False,
    )


class Controller(SimpleNamespace):
    """As much of the controller as schedulers ask for."""

    def __init__(self, scheduler: Any, trials: Sequence[FakeTrial] = ()) -> None:
        super().__init__(scheduler=scheduler, trials=list(trials))
        searcher = SimpleNamespace(on_pause=lambda _: None, on_unpause=lambda _: None)
        self.search_alg = SimpleNamespace(is_finished=lambda: True, searcher=searcher)

    def get_trials(self) -> list[FakeTrial]:
        return list(self.trials)

    get_live_trials = get_trials

    def stop_trial(self, stopped: FakeTrial) -> None:
        if stopped in self.trials:
            self.trials.remove(stopped)
            self.scheduler.on_trial_remove(self, stopped)


class Known(AdapterContract):
    """The scheduler has the trials, and has heard them report up to where they are."""

    scheduler: Callable[[], Any]

    def make(self) -> Search:
        self.made = type(self).scheduler()
        return search_for(self.made)

    def populate(self, search: Search, app: AppState, rng: random.Random) -> AppState:
        controller = Controller(self.made, [trial(t.id) for t in app.trials])
        by_id = {t.trial_id: t for t in controller.trials}
        for known in app.trials:
            self.made.on_trial_add(controller, by_id[known.id])
        ended = {t.id for t in app.trials if not t.live}
        for known in app.trials:
            mine = by_id[known.id]
            for iteration in range(1, int(known.iterations_done) + 1):
                if mine not in controller.trials:
                    break
                result = {
                    "training_iteration": iteration,
                    "time_total_s": 2.0 * iteration,
                    "m": rng.random(),
                }
                decision = self.made.on_trial_result(controller, mine, result)
                if decision != "CONTINUE":
                    mine.status = "PAUSED"
                    ended |= {known.id} if decision == "STOP" else set()
                    break
        for key in ended:
            if by_id[key] in controller.trials:
                controller.stop_trial(by_id[key])
        gone = {t.id for t in app.trials} - {t.trial_id for t in controller.trials}
        trials = tuple(replace(t, live=t.live and t.id not in gone) for t in app.trials)
        return replace(app, trials=trials)


class TestFIFO(Known):
    scheduler = FIFOScheduler


class TestASHA(Known):
    scheduler = staticmethod(lambda: ASHAScheduler(max_t=9, reduction_factor=3, **COMPARE))


class TestASHABrackets(Known):
    scheduler = staticmethod(
        lambda: ASHAScheduler(
            max_t=20, reduction_factor=2, brackets=3, stop_last_trials=False, **COMPARE
        )
    )


class TestASHAInSeconds(Known):
    counts_iterations = False
    scheduler = staticmethod(
        lambda: ASHAScheduler(time_attr="time_total_s", max_t=40, grace_period=4, **COMPARE)
    )


class TestHyperBand(Known):
    scheduler = staticmethod(lambda: HyperBandScheduler(max_t=9, reduction_factor=3, **COMPARE))


class TestHyperBandGoesOn(Known):
    scheduler = staticmethod(lambda: HyperBandScheduler(max_t=9, stop_last_trials=False, **COMPARE))


class TestBOHB(Known):
    scheduler = staticmethod(lambda: HyperBandForBOHB(max_t=9, reduction_factor=3, **COMPARE))


class TestMedian(Known):
    scheduler = staticmethod(
        lambda: MedianStoppingRule(time_attr="training_iteration", grace_period=2, **COMPARE)
    )


class TestUnknown(AdapterContract):
    def make(self) -> Search:
        return UnknownAdapter(object())


class TestSuccessiveHalving(Known):
    scheduler = staticmethod(lambda: SuccessiveHalving(4, 2, gpus=1, max_gpus=4, **COMPARE))


class TestSuccessiveHalvingOfGangs(Known):
    scheduler = staticmethod(
        lambda: SuccessiveHalving(4, (1, 3, 9), gpus=2, max_gpus=4, rigid=True, **COMPARE)
    )


class TestPopulationOfBandits(AdapterContract):
    def make(self) -> Search:
        return search_for(PB2(hyperparam_bounds={"a": [0.0, 1.0]}, **COMPARE))


class TestPopulation(AdapterContract):
    def make(self) -> Search:
        return search_for(PopulationBasedTraining(hyperparam_mutations={"a": [1, 2]}, **COMPARE))


class TestPopulationThatMeets(AdapterContract):
    def make(self) -> Search:
        return search_for(
            PopulationBasedTraining(
                time_attr="training_iteration",
                perturbation_interval=3,
                synch=True,
                hyperparam_mutations={"a": [1, 2]},
                **COMPARE,
            )
        )


# -- which adapter ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheduler", "name"),
    [
        (FIFOScheduler(), "AllTrials"),
        (ASHAScheduler(), "ASHAAdapter"),
        (HyperBandScheduler(), "HyperBandAdapter"),
        (HyperBandForBOHB(), "BOHBAdapter"),
        (MedianStoppingRule(), "MedianAdapter"),
        (PopulationBasedTraining(hyperparam_mutations={"a": [1]}), "PopulationAdapter"),
        (
            PopulationBasedTraining(hyperparam_mutations={"a": [1]}, synch=True),
            "SynchronousPopulationAdapter",
        ),
        (PB2(hyperparam_bounds={"a": [0.0, 1.0]}), "PopulationAdapter"),
        (SuccessiveHalving(4), "SuccessiveHalving"),
    ],
)
def test_adapters_are_picked_by_class(scheduler: Any, name: str) -> None:
    assert type(search_for(scheduler)).__name__ == name
    assert search_for(scheduler).note() == ""


class Mine(FIFOScheduler):  # type: ignore[misc]
    """A scheduler that nobody knows."""


@pytest.fixture
def clean_registry() -> Iterator[None]:
    before = dict(_adapters)
    yield
    _adapters.clear()
    _adapters.update(before)


def test_an_unknown_scheduler_is_one_phase_and_says_so() -> None:
    search = search_for(Mine())
    assert isinstance(search, UnknownAdapter)
    assert "Mine" in search.note()
    assert "register" in search.note()


@pytest.mark.usefixtures("clean_registry")
def test_users_register_their_own() -> None:
    @register(Mine)
    class Adapter(AllTrials):
        pass

    class Derived(Mine):
        pass

    assert isinstance(search_for(Mine()), Adapter)
    assert isinstance(search_for(Derived()), Adapter)
    assert not isinstance(search_for(FIFOScheduler()), Adapter)


@pytest.mark.usefixtures("clean_registry")
def test_an_adapter_that_is_no_search_is_refused() -> None:
    register(Mine)(lambda scheduler: "nonsense")  # type: ignore[arg-type,return-value]
    with pytest.raises(ConfigError, match="PhaseSearch or RemainingSearch"):
        search_for(Mine())


# -- by hand ------------------------------------------------------------------------------------


def app(done: dict[str, float], total: float = 100.0, iter_s: float = 1.0, **rest: Any) -> AppState:
    trials = (TrialInfo(k, d, total, iter_s, 1, 1) for k, d in done.items())
    return AppState(tuple(trials), **rest)


def shape(search: Search) -> list[tuple[int, float]]:
    """``(jobs, work of one)`` of each phase, for phases of equal jobs."""
    out = []
    for phase in range(search.num_phases()):  # type: ignore[attr-defined]
        jobs = search.jobs_in_phase(phase, ())  # type: ignore[attr-defined]
        [work] = {job.work_gpu_s for job in jobs}
        out.append((len(jobs), work))
    return out


def test_asha_before_the_first_report() -> None:
    """Nine trials, a third of which pass each rung at 1, 3 and 9."""
    search = search_for(ASHAScheduler(max_t=27, reduction_factor=3, **COMPARE))
    search.observe(app({f"t{i}": 0.0 for i in range(9)}))
    assert shape(search) == [(9, 1.0), (3, 2.0), (1, 6.0), (1, 18.0)]


def test_asha_counts_trials_to_come() -> None:
    search = search_for(ASHAScheduler(max_t=9, reduction_factor=3, **COMPARE))
    search.observe(app({f"t{i}": 0.0 for i in range(3)}, to_come=6))
    assert shape(search) == [(9, 1.0), (3, 2.0), (1, 6.0)]


def test_asha_once_trials_have_passed() -> None:
    scheduler = ASHAScheduler(max_t=9, reduction_factor=3, **COMPARE)
    controller = Controller(scheduler, [trial(f"t{i}") for i in range(3)])
    for t in controller.trials:
        scheduler.on_trial_add(controller, t)
    # The first passes (there is nothing to compare with), the others are worse and stop.
    decisions = [
        scheduler.on_trial_result(controller, t, {"training_iteration": 1, "m": m})
        for t, m in zip(controller.trials, (3.0, 2.0, 1.0), strict=True)
    ]
    assert decisions == ["CONTINUE", "STOP", "STOP"]
    search = search_for(scheduler)
    trials = (
        TrialInfo("t0", 1.0, 100.0),
        *(TrialInfo(f"t{i}", 1.0, 100.0, live=False) for i in (1, 2)),
    )
    search.observe(AppState(trials))
    assert shape(search) == [(1, 2.0), (1, 6.0)]


def test_asha_in_seconds_is_turned_into_iterations() -> None:
    search = search_for(
        ASHAScheduler(time_attr="time_total_s", max_t=60, grace_period=20, reduction_factor=3,
                      **COMPARE)
    )  # fmt: skip
    half = TrialInfo("t0", 5, 100, 2.0, last_result={"time_total_s": 10.0})
    search.observe(AppState((half,)))
    # 2 s an iteration: until 20 s another 5 iterations, then 20 until 60 s.
    assert shape(search) == [(1, 10.0), (1, 40.0)]


def test_hyperband_brackets_run_side_by_side() -> None:
    scheduler = HyperBandScheduler(max_t=9, reduction_factor=3, **COMPARE)
    controller = Controller(scheduler, [trial(f"t{i}") for i in range(3)])
    for t in controller.trials:
        scheduler.on_trial_add(controller, t)
    search = search_for(scheduler)
    search.observe(app({f"t{i}": 0.0 for i in range(3)}))
    # Its first bracket has three trials that run to the end.
    assert shape(search) == [(3, 9.0)]
    search.observe(app({f"t{i}": 0.0 for i in range(3)}, to_come=5))
    # The next one is for five trials: 3 iterations each, then two of them go on to 9.
    jobs = [sorted(j.work_gpu_s for j in search.jobs_in_phase(p, ())) for p in range(2)]  # type: ignore[attr-defined]
    assert jobs == [[3.0] * 5 + [9.0] * 3, [6.0] * 2]


def test_bohb_fills_the_largest_bracket_first() -> None:
    search = search_for(HyperBandForBOHB(max_t=9, reduction_factor=3, **COMPARE))
    search.observe(app({"t0": 0.0}, to_come=9))
    assert shape(search)[0] == (9, 1.0)


def test_a_population_that_meets_waits_for_its_slowest() -> None:
    search = search_for(
        PopulationBasedTraining(
            time_attr="training_iteration",
            perturbation_interval=4,
            synch=True,
            hyperparam_mutations={"a": [1]},
            **COMPARE,
        )
    )
    trials = (TrialInfo("a", 0, 10, 1.0), TrialInfo("b", 2, 10, 3.0))
    search.observe(AppState(trials))
    # To 4, to 8, to 10: max(4, 6) + max(4, 12) + max(2, 6).
    assert time_left_s(search, (2,)) == pytest.approx(24.0)


def test_trials_put_aside_by_the_soft_median_rule_come_last() -> None:
    rule = MedianStoppingRule(hard_stop=False, **COMPARE)
    rule._stopped_trials.add(trial("a"))
    search = search_for(rule)
    search.observe(app({"a": 1.0, "b": 1.0}))
    assert [job.id for job in search.jobs_remaining((1,)) if job.gpus] == ["b"]  # type: ignore[attr-defined]


# -- what adapters may not answer ---------------------------------------------------------------


class Says(RemainingSearch):
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def jobs_remaining(self, allocation: Sequence[int]) -> Sequence[JobInfo]:
        return self.answer  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (None, "list of JobInfo"),
        ([1], "list of JobInfo"),
        ([JobInfo("t", float("nan"), 1.0)], "t has nan iterations"),
        ([JobInfo("t", 1.0, float("inf"))], "finite"),
        ([JobInfo("t", -1.0, 1.0)], "0 or more"),
        ([JobInfo("t", 1.0, 1.0, 0, 1)], "runs on 0 to 1"),
        ([JobInfo("t", 1.0, 1.0, 1, 2, gpus=(3,))], "given GPUs"),
        ([JobInfo("t", 1.0, 1.0, 1, 8, gpus=(4, 4))], "of an allocation of 4"),
    ],
)
def test_answers_of_no_use_are_refused_with_the_adapter_named(answer: Any, match: str) -> None:
    with pytest.raises(AdapterError, match=f"(?s)Says.*{match}"):
        time_left_s(Says(answer), (4,))
