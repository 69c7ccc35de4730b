"""Metrics that say little or nothing: every search goes on to its end, and nobody else suffers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ray.tune.schedulers import ASHAScheduler, PopulationBasedTraining

from tests.paper_tune import PaperThemis, PaperTune
from tests.tune.test_same_decisions import BASES, ITERATIONS, TRIALS
from tests.tune.test_scheduler import run
from tests.tune.trainables import Counting
from themis_ray import ThemisScheduler
from themis_ray.searchers.curve_stopping import CurveStopping

ALL = {**BASES, "curves": lambda: CurveStopping(max_t=ITERATIONS, grace_period=3, check_interval=1)}
# ``...``: the report does not have it.
KINDS: dict[str, Callable[[int], Any]] = {
    "nan": lambda k: float("nan"),
    "infinite": lambda k: float("inf"),
    "minus infinite": lambda k: float("-inf"),
    "none": lambda k: None,
    "missing": lambda k: ...,
    "now and then": lambda k: float(k) if k % 3 == 0 else ...,
    "text": lambda k: "high",
    "constant": lambda k: 1.0,
    "decreasing": lambda k: -float(k),
    "huge": lambda k: 1e308,
}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("kind", KINDS)
def test_a_search_of_such_trials_only_comes_to_its_end(name: str, kind: str) -> None:
    """With nothing to compare by, wherever leases end."""
    scheduler = PaperThemis(ALL[name](), app=f"{kind}-{name}")
    tune = PaperTune(scheduler, lambda i, k: KINDS[kind](k), TRIALS, ITERATIONS, disturb=0.1)
    assert set(tune.run()) == set(range(TRIALS))


@pytest.mark.parametrize("name", ALL)
def test_trials_that_report_once(name: str) -> None:
    scheduler = PaperThemis(ALL[name](), app=f"once-{name}")
    tune = PaperTune(scheduler, lambda i, k: float(i), TRIALS, 1)
    assert tune.run() == dict.fromkeys(range(TRIALS), 1)


@pytest.mark.parametrize("name", ALL)
def test_a_report_after_the_end_changes_nothing(name: str) -> None:
    scheduler = PaperThemis(ALL[name](), app=f"late-{name}")
    tune = PaperTune(scheduler, lambda i, k: float(i), TRIALS, ITERATIONS)
    reached = tune.run()
    before = scheduler.base.debug_string()
    for trial in tune.trials:
        late = {"training_iteration": trial.done + 1, "m": 1e9}
        assert scheduler.on_trial_result(tune, trial, late) == "STOP"
    assert scheduler.base.debug_string() == before
    assert {t.index: t.ends[-1] for t in tune.trials} == reached


@pytest.mark.parametrize("name", ["halving", "curves"])
def test_a_late_report_to_our_own_schedulers_in_plain_tune(name: str) -> None:
    scheduler = ALL[name]()
    tune = PaperTune(scheduler, lambda i, k: float(i) * k, TRIALS, ITERATIONS)
    tune.run()
    late = {"training_iteration": ITERATIONS, "m": 1e9}
    assert {scheduler.on_trial_result(tune, trial, late) for trial in tune.trials} == {"STOP"}


@pytest.mark.parametrize("name", ALL)
def test_odd_metrics_hurt_nobody_else(name: str) -> None:
    """None, NaN, infinite, missing and constant metrics: the good trial comes through."""

    def odd(index: int, iteration: int) -> Any:
        return {
            0: float("nan"),
            1: float("inf"),
            2: None,
            3: ...,
            4: float(iteration) if iteration % 3 == 0 else ...,
            5: 1.0,
            6: -float(iteration),
        }.get(index, 100.0 + iteration)

    for seed in range(5):
        scheduler = PaperThemis(ALL[name](), app=f"odd-{name}{seed}")
        reached = PaperTune(scheduler, odd, TRIALS, ITERATIONS, seed, disturb=0.1).run()
        assert max(reached.values()) == reached[7]


def test_diverged_trials_are_stopped_like_the_worst(caplog: pytest.LogCaptureFixture) -> None:
    """Plain ASHA lets a trial of NaN go on for ever."""

    def diverging(index: int, iteration: int) -> float:
        return float("nan") if index == 0 and iteration > 1 else float(index)

    scheduler = PaperThemis(
        ASHAScheduler(max_t=27, grace_period=3, reduction_factor=3), app="diverging"
    )
    tune = PaperTune(scheduler, diverging, TRIALS, 27, seed=1)
    reached = tune.run()
    assert reached[0] == 3 or tune.reported.index((0, 3)) < min(
        tune.reported.index((i, 3)) for i in range(1, TRIALS)
    )
    assert caplog.text.count("diverged counts as the worst") == 1


class Odd(Counting):
    """Each trial has an odd metric of its own kind, but for the last."""

    def step(self) -> dict[str, Any]:
        result = super().step()
        kinds = list(KINDS.values())
        if self.config["index"] < len(kinds):
            result["score"] = kinds[self.config["index"]](self.steps)
        else:
            result["score"] = 100.0 + self.steps
        return {key: value for key, value in result.items() if value is not ...}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")
@pytest.mark.filterwarnings("ignore::FutureWarning:ray")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "base",
    [
        ASHAScheduler(max_t=4, grace_period=1, reduction_factor=2),
        PopulationBasedTraining(
            time_attr="training_iteration",
            perturbation_interval=2,
            hyperparam_mutations={"step_s": [0.1, 0.2]},
        ),
    ],
    ids=["asha", "pbt"],
)
def test_they_crash_no_controller(arbiter: Callable[..., Any], tmp_path: Path, base: Any) -> None:
    """All kinds at once, in a real Tune run."""
    arbiter(lease_s=60)
    trials = run(Odd, tmp_path, len(KINDS) + 1, 4, scheduler=ThemisScheduler(base))
    assert {t.status for t in trials} == {"TERMINATED"}
    assert [t.num_failures for t in trials] == [0] * len(trials)
    best = max(t.last_result["training_iteration"] for t in trials)
    assert trials[-1].last_result["training_iteration"] == best == 4
