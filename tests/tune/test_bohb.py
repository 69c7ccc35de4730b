"""``HyperBandForBOHB`` in real Tune runs, with leases that are taken away in the middle.

It calls its searcher back when it pauses a trial and goes on with it, so it works with searchers
that know these calls: ``TuneBOHB``, whose packages are not among our extras, and the one below.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ray import tune
from ray.tune.schedulers import HyperBandForBOHB
from ray.tune.search import Searcher

from tests.rival import Disturbance
from tests.tune.test_scheduler import survivors
from tests.tune.trainables import Counting
from themis_ray import ThemisScheduler

Start = Callable[..., dict[str, Any]]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

# The first bracket is full (4 trials of 1 iteration, 2 of 2, 1 of 4); the second has 2 trials of 3,
# which both go on.
TRIALS, STEPS = 6, 4


class InOrder(Searcher):  # type: ignore[misc]  # ray is untyped
    """Suggests index 0, 1, 2, ... and keeps the books that BOHB keeps."""

    def __init__(self) -> None:
        super().__init__(metric="score", mode="max")
        self.suggested = 0
        self.running: set[str] = set()
        self.paused = 0
        self.budgets: Counter[int] = Counter()

    def suggest(self, trial_id: str) -> dict[str, Any]:
        self.suggested += 1
        self.running.add(trial_id)
        return {"index": self.suggested - 1, "step_s": 0.8}

    def on_pause(self, trial_id: str) -> None:
        self.running.remove(trial_id)
        self.paused += 1

    def on_unpause(self, trial_id: str) -> None:
        assert trial_id not in self.running
        self.running.add(trial_id)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        if "budget" in result.get("hyperband_info", {}):
            self.budgets[result["hyperband_info"]["budget"]] += 1

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        assert not error
        self.running.discard(trial_id)


def run(folder: Path, searcher: Searcher, **options: Any) -> list[Any]:
    """A ``tune.run``; returns its trials in the order in which they were suggested."""
    analysis = tune.run(
        Counting,
        num_samples=TRIALS,
        search_alg=searcher,
        stop={"training_iteration": STEPS},
        resources_per_trial={"cpu": 0.1, "gpu": 1},
        storage_path=str(folder),
        verbose=0,
        **options,
    )
    return list(analysis.trials)


def bohb(**options: Any) -> HyperBandForBOHB:
    return HyperBandForBOHB(max_t=STEPS, reduction_factor=2, **options)


@pytest.mark.long
def test_the_trials_that_survive_are_those_with_the_best_scores(
    arbiter: Start, tmp_path: Path
) -> None:
    arbiter(min_bidders=1, grace_s=40)
    searcher, disturbance = InOrder(), Disturbance(5, (2, 4))
    scheduler = ThemisScheduler(bohb(metric="score", mode="max"), app="bohb")
    trials = run(tmp_path, searcher, scheduler=scheduler, callbacks=[disturbance])
    assert disturbance.taken >= 1
    assert survivors(trials) == {0: 1, 1: 1, 2: 2, 3: 4, 4: 4, 5: 4}
    assert [t.num_failures for t in trials] == [0] * TRIALS
    # To the searcher, a pause at a rung is one (but for the last to come there, who decides for
    # all if the bracket is full), and the end of a lease is not.
    assert (searcher.running, searcher.paused) == (set(), 3 + 1 + 2)
    assert set(searcher.budgets) == {1, 2}


def test_with_its_own_searcher(arbiter: Start, tmp_path: Path) -> None:
    pytest.importorskip("hpbandster")
    pytest.importorskip("ConfigSpace")
    from ray.tune.search.bohb import TuneBOHB

    arbiter(min_bidders=1, grace_s=40)
    disturbance = Disturbance(6, (2, 4))
    searcher = TuneBOHB(seed=1)
    trials = run(
        tmp_path, searcher, scheduler=ThemisScheduler(bohb(), app="tune-bohb"),
        callbacks=[disturbance], metric="score", mode="max",
        config={"index": tune.uniform(0.0, 1.0), "step_s": tune.uniform(0.7, 0.8)},
    )  # fmt: skip
    assert disturbance.taken >= 1
    assert [t.num_failures for t in trials] == [0] * TRIALS
    ends = [t.last_result["training_iteration"] for t in trials]
    assert (sorted(ends[:4]), ends[4:]) == ([1, 1, 2, 4], [4, 4])
    best = max(trials[:4], key=lambda t: t.config["index"])
    assert best.last_result["training_iteration"] == 4
    # Its models are made of what trials reached at the rungs, but for who was stopped by the last
    # report there; Tune ends a trial at the stop criterion without a word to the scheduler.
    assert {b: len(c) for b, c in searcher.bohber.configs.items()} in (
        {1: a, 2: b} for a in (3, 4) for b in (3, 4)
    )
