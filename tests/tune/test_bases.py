"""Real Tune runs under each base scheduler, with leases that are taken away in the middle.

Which trials an asynchronous scheduler stops depends on the order in which reports come. So that
order is noted, and a plain scheduler is shown the same reports in the same order: it has to stop
the same trials at the same rungs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ray import tune
from ray.tune.schedulers import ASHAScheduler, MedianStoppingRule, PopulationBasedTraining

from tests.paper_tune import PaperTune, replayed
from tests.rival import Disturbance
from tests.tune.test_scheduler import run, survivors
from tests.tune.trainables import Counting
from themis_ray import ThemisScheduler
from themis_ray.searchers.successive_halving import SuccessiveHalving

Start = Callable[..., dict[str, Any]]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

TRIALS, STEPS = 6, 9
BASES: dict[str, Callable[[], Any]] = {
    "asha": lambda: ASHAScheduler(max_t=STEPS, grace_period=1, reduction_factor=3),
    "median": lambda: MedianStoppingRule(
        time_attr="training_iteration", grace_period=2, min_samples_required=2
    ),
    "halving": lambda: SuccessiveHalving(TRIALS, (2, 3, 4), eta=2),
}


class Order(Disturbance):
    """Notes the order of the reports, while it has a rival take GPUs."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, (3, 7))
        self.reported: list[tuple[int, int]] = []

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: Any, **info: Any
    ) -> None:
        self.reported.append((trial.config["index"], result["training_iteration"]))
        super().on_trial_result(iteration, trials, trial, result, **info)


@pytest.mark.parametrize(
    "name", [pytest.param("median", marks=pytest.mark.long), *sorted(BASES.keys() - {"median"})]
)
def test_the_same_trials_stop_at_each_rung(arbiter: Start, tmp_path: Path, name: str) -> None:
    arbiter(min_bidders=1, grace_s=40)
    order = Order(7)
    scheduler = ThemisScheduler(BASES[name](), app=f"base-{name}")
    trials = run(Counting, tmp_path, TRIALS, STEPS, scheduler=scheduler, callbacks=[order])
    on_paper = PaperTune(BASES[name](), lambda i, k: float(i * k), TRIALS, STEPS)
    on_paper.reported = order.reported
    on_paper.trials = on_paper.coming
    assert survivors(trials) == replayed(BASES[name](), on_paper, STEPS)
    assert [t.num_failures for t in trials] == [0] * TRIALS


@pytest.mark.long
def test_a_population_goes_on_through_the_ends_of_leases(arbiter: Start, tmp_path: Path) -> None:
    arbiter(min_bidders=1, grace_s=40)
    base = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=3,
        hyperparam_mutations={"step_s": [0.1, 0.2]},
    )
    disturbance = Disturbance(3, (4, 9))
    scheduler = ThemisScheduler(base, app="population")
    trials = run(Counting, tmp_path, 4, STEPS, scheduler=scheduler, callbacks=[disturbance])
    # Not by index: a trial that exploits another takes over its whole config.
    assert [t.status for t in trials] == ["TERMINATED"] * 4
    assert [t.last_result["training_iteration"] for t in trials] == [STEPS] * 4
    assert [t.num_failures for t in trials] == [0] * 4


@pytest.mark.long
def test_halving_in_plain_tune_keeps_the_best_on_more_gpus(local_ray: None, tmp_path: Path) -> None:
    """Four trials of one GPU, two of two, one of four; no Themis at all."""
    sizes = Sizes()
    base = SuccessiveHalving(4, (1, 2, 3), eta=2, gpus=1, max_gpus=4)
    trials = run(Counting, tmp_path, 4, 100, scheduler=base, callbacks=[sizes])
    assert survivors(trials) == {0: 1, 1: 1, 2: 3, 3: 6}
    assert sizes.of[3] == [1, 2, 2, 4, 4, 4]


@pytest.mark.parametrize("rigid", [pytest.param(True, marks=pytest.mark.long), False])
def test_halving_under_themis_grows_its_survivors(
    arbiter: Start, tmp_path: Path, rigid: bool
) -> None:
    """Alone on the cluster, an elastic trial has its whole share from the cut on, too."""
    arbiter(lease_s=60, grace_s=40)
    sizes = Leased()
    base = SuccessiveHalving(4, (2, 3, 4), eta=2, gpus=1, max_gpus=4, rigid=rigid)
    scheduler = ThemisScheduler(base, app="halving-grows")
    trials = run(Counting, tmp_path, 4, 100, scheduler=scheduler, callbacks=[sizes])
    assert survivors(trials) == {0: 2, 1: 2, 2: 5, 3: 9}
    assert sizes.of[3] == [1] * 2 + [2] * 3 + [4] * 4


class Sizes(tune.Callback):  # type: ignore[misc]  # ray is untyped
    """Notes how many bundles a trial has at each of its reports."""

    def __init__(self) -> None:
        self.of: dict[int, list[int]] = {}

    def on_trial_result(self, trial: Any, **info: Any) -> None:
        bundles = len(trial.placement_group_factory.bundles)
        self.of.setdefault(trial.config["index"], []).append(bundles)


class Leased(Sizes):
    """The same, of leases."""

    def on_trial_result(self, trial: Any, **info: Any) -> None:
        from themis_ray.tune import metrics

        known = metrics.latest(trial.trial_id)
        assert known is not None
        self.of.setdefault(trial.config["index"], []).append(known.gpus)
