"""Every base scheduler decides as it does without Themis, wherever leases end (on paper)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from ray.tune.schedulers import (
    ASHAScheduler,
    FIFOScheduler,
    HyperBandForBOHB,
    HyperBandScheduler,
    MedianStoppingRule,
)

from tests.paper_tune import PaperThemis, PaperTune, replayed
from themis_ray.searchers.successive_halving import SuccessiveHalving

Base = Callable[[], Any]

BASES: dict[str, Base] = {
    "fifo": FIFOScheduler,
    "asha": lambda: ASHAScheduler(max_t=9, grace_period=1, reduction_factor=3),
    "asha-never-stops-the-last": lambda: ASHAScheduler(
        max_t=8, grace_period=2, reduction_factor=2, stop_last_trials=False
    ),
    "hyperband": lambda: HyperBandScheduler(max_t=9, reduction_factor=3),
    "bohb": lambda: HyperBandForBOHB(max_t=9, reduction_factor=3),
    "median": lambda: MedianStoppingRule(
        time_attr="training_iteration", grace_period=2, min_samples_required=2
    ),
    "median-soft": lambda: MedianStoppingRule(
        time_attr="training_iteration", grace_period=2, min_samples_required=2, hard_stop=False
    ),
    "halving": lambda: SuccessiveHalving(8, 1, eta=2),
    "halving-gangs": lambda: SuccessiveHalving(4, (2, 3, 4), eta=2, gpus=1, max_gpus=4),
}
TRIALS, ITERATIONS = 8, 12


def curve(seed: int) -> Callable[[int, int], float]:
    """Noisy curves that are the same in every run."""
    rng = random.Random(seed)
    slope = {i: rng.uniform(-1, 3) for i in range(TRIALS)}
    noise = {(i, k): rng.gauss(0, 0.5) for i in range(TRIALS) for k in range(1, ITERATIONS + 1)}
    return lambda i, k: slope[i] * k + noise[i, k]


@pytest.mark.parametrize("name", BASES)
def test_the_same_trials_are_stopped_at_each_rung(name: str) -> None:
    """Random lease ends: each decision is the one of a plain run of the same reports."""
    taken = 0
    for seed in range(8):
        scheduler = PaperThemis(BASES[name](), app=f"{name}{seed}")
        themis = PaperTune(scheduler, curve(seed), TRIALS, ITERATIONS, seed, disturb=0.25)
        reached = themis.run()
        assert reached == replayed(BASES[name](), themis, ITERATIONS)
        taken += themis.taken
    assert taken > 20, "too little was disturbed to tell"


@pytest.mark.parametrize("name", ["fifo", "hyperband", "halving", "halving-gangs"])
@pytest.mark.parametrize("at_once", [None, 8])
def test_synchronous_searches_keep_the_same_survivors(name: str, at_once: int | None) -> None:
    """Who survives depends on the curves alone: it is the same as undisturbed, in any order."""
    for seed in range(8):
        alone = PaperTune(BASES[name](), curve(seed), TRIALS, ITERATIONS, seed, at_once=at_once)
        scheduler = PaperThemis(BASES[name](), app=f"{name}{seed}")
        shared = PaperTune(
            scheduler, curve(seed), TRIALS, ITERATIONS, seed + 99, disturb=0.25, at_once=at_once
        )
        assert shared.run() == alone.run()
