"""``CurveStopping``: what it stops, which trials it runs first, what it makes of bad input."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.tune.experiment import Trial
from ray.tune.schedulers.trial_scheduler import TrialScheduler

from themis_ray.errors import ConfigError
from themis_ray.searchers.api import AppState, TrialInfo
from themis_ray.searchers.curve_stopping import CurveStopping
from themis_ray.searchers.curves.rule import Rank
from themis_ray.searchers.registry import search_for
from themis_ray.testing.adapter_contract import AdapterContract

STOP, GO_ON = TrialScheduler.STOP, TrialScheduler.CONTINUE


def trial(name: str, status: str = Trial.RUNNING, stop: Any = None) -> Any:
    return SimpleNamespace(trial_id=name, status=status, stopping_criterion=stop or {})


class Search:
    """A search whose trials report made-up accuracies, side by side."""

    def __init__(self, scheduler: CurveStopping, count: int, **options: Any) -> None:
        self.scheduler = scheduler
        self.trials = [trial(f"t{i}", **options) for i in range(count)]
        self.ended: dict[str, int] = {}
        for one in self.trials:
            scheduler.on_trial_add(self, one)

    def get_trials(self) -> list[Any]:
        return self.trials

    def report(self, which: int, iteration: Any, metric: Any) -> str:
        result = {"training_iteration": iteration, "acc": metric}
        return self.scheduler.on_trial_result(self, self.trials[which], result)

    def run(self, curves: Any, last: int, first: int = 1) -> None:
        for t in range(first, last + 1):
            for i, curve in enumerate(curves):
                if f"t{i}" not in self.ended and self.report(i, t, curve(t)) == STOP:
                    self.ended[f"t{i}"] = t


def wiggle(t: int) -> float:
    return 0.004 * math.sin(7.0 * t)


def rising(top: float, rate: float) -> Any:
    return lambda t: top * (1 - math.exp(-rate * t)) + wiggle(t)


def made(**options: Any) -> CurveStopping:
    return CurveStopping(**{"metric": "acc", "mode": "max", "max_t": 60, **options})


def test_a_hopeless_trial_is_stopped_and_the_best_is_not() -> None:
    search = Search(made(limits=(0, 1)), 3)
    search.run([rising(0.9, 0.15), rising(0.3, 0.3), rising(0.85, 0.1)], 59)
    assert "t0" not in search.ended
    assert search.ended["t1"] < 45
    assert "beat the best trial" in search.scheduler.stopped["t1"]
    assert search.report(0, 60, 0.9) == STOP  # its last iteration
    # One that reports after it was stopped is told to stop again, and nothing else happens.
    before = search.scheduler.verdict("t1")
    assert search.report(1, 58, 0.99) == STOP
    assert search.scheduler.verdict("t1") == before


def test_a_target_ends_those_that_reach_it_and_those_that_will_not() -> None:
    search = Search(made(target=0.6), 2)
    search.run([rising(0.9, 0.08), rising(0.3, 0.3)], 40)
    assert 10 < search.ended["t0"] < 20
    assert search.scheduler.stopped["t0"] == "it has reached the target 0.6"
    assert search.scheduler.verdict("t0").chance == 1.0
    assert "reach 0.6" in search.scheduler.stopped["t1"]
    assert search.report(0, 41, 0.9) == STOP
    kept = Search(made(target=0.6, end_at_target=False), 1)
    kept.run([rising(0.9, 0.08)], 59)
    assert not kept.ended


def test_the_patience_is_kept() -> None:
    ends = {}
    for patience in (1, 3):
        search = Search(made(target=0.9, patience=patience, check_interval=2), 1)
        search.run([rising(0.3, 0.3)], 59)
        ends[patience] = search.ended["t0"]
    assert ends[3] >= ends[1] + 4


def test_a_smaller_loss_is_better_with_mode_min() -> None:
    search = Search(made(mode="min", target=0.05), 2)
    search.run([lambda t: 1.0 / t + wiggle(t), lambda t: 0.9 + 0.1 / t + wiggle(t)], 50)
    assert "reached" in search.scheduler.stopped["t0"]
    assert "reach 0.05" in search.scheduler.stopped["t1"]


def test_trials_wait_by_rank() -> None:
    scheduler = made(threshold=0.2, promising=0.6, patience=100, grace_period=4, max_t=100)
    search = Search(scheduler, 4)
    search.run([rising(0.3, 0.3), rising(0.9, 0.15), rising(0.7, 0.05)], 30)
    ranks = {i: scheduler.verdict(f"t{i}").rank for i in range(4)}
    assert ranks[1] is Rank.PROMISING
    assert ranks[0] is Rank.POOR
    assert ranks[3] is Rank.OPPORTUNISTIC  # nothing is known of it
    order = scheduler.ranking(["t0", "t1", "t2", "t3"])
    assert order[0] == "t1"
    assert order[-1] == "t0"
    for one in search.trials:
        one.status = Trial.PAUSED
    assert scheduler.choose_trial_to_run(search).trial_id == "t1"
    search.trials[1].status = Trial.RUNNING
    assert scheduler.choose_trial_to_run(search).trial_id == order[1]
    for one in search.trials:
        one.status = Trial.TERMINATED
    assert scheduler.choose_trial_to_run(search) is None
    assert "1 poor" in scheduler.debug_string()


def test_the_stop_criterion_ends_a_trial_sooner_than_max_t() -> None:
    search = Search(made(max_t=1000), 1, stop={"training_iteration": 30})
    assert search.report(0, 30, 0.5) == STOP
    assert search.scheduler.verdict("t0").runs_until == 30


@pytest.mark.parametrize(
    "metric", [math.nan, math.inf, -math.inf, None, "0.5", 0.5, [1], 10**400, True]
)
def test_metrics_that_tell_nothing_never_stop_a_trial(
    metric: Any, caplog: pytest.LogCaptureFixture
) -> None:
    search = Search(made(target=0.9), 2)
    with caplog.at_level(logging.WARNING):
        search.run([lambda t: metric, rising(0.9, 0.02)], 59)
    assert "t0" not in search.ended
    assert search.scheduler.verdict("t0").chance is None
    assert "not known" in search.scheduler.verdict("t0").why
    assert len(caplog.records) == (metric != 0.5)  # one warning, not one a report


def test_a_nan_now_and_then_does_no_harm() -> None:
    search = Search(made(target=0.9), 1)
    search.run([lambda t: math.nan if t % 3 == 0 else rising(0.3, 0.3)(t)], 59)
    assert "reach 0.9" in search.scheduler.stopped["t0"]


def test_a_metric_that_gets_worse_is_stopped_without_a_fuss() -> None:
    search = Search(made(target=0.9), 1)
    search.run([lambda t: 0.5 - 0.005 * t], 59)
    assert search.ended["t0"] < 59


def test_a_single_report_and_none_are_not_judged() -> None:
    scheduler = made(grace_period=1, check_interval=1)
    search = Search(scheduler, 2)
    assert search.report(0, 1, 0.1) == GO_ON
    assert scheduler.verdict("t0").chance is None
    assert scheduler.verdict("t1").why == "not judged yet"
    assert scheduler.verdict("never heard of").runs_until == 60


def test_missing_things_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        search = Search(made(mode=None), 2)
        for t in range(1, 40):
            assert search.report(0, t, 0.1) == GO_ON
    assert [r.message for r in caplog.records] == [
        "CurveStopping: no mode, so no trial is stopped early; pass mode='min' or mode='max' to "
        "tune.run, TuneConfig or CurveStopping"
    ]
    assert search.scheduler.choose_trial_to_run(search) is None
    assert search.report(0, 60, 0.1) == STOP
    caplog.clear()
    search = Search(made(), 1)
    for t in range(1, 40):
        search.scheduler.on_trial_result(search, search.trials[0], {"training_iteration": t})
        search.scheduler.on_trial_result(search, search.trials[0], {"acc": t})
    assert len(caplog.records) == 2
    assert "no metric 'acc'" in caplog.records[0].message
    assert "no number 'training_iteration'" in caplog.records[1].message


def test_metric_and_mode_come_from_tune_or_from_the_user_not_from_both() -> None:
    scheduler = CurveStopping()
    assert scheduler.set_search_properties("acc", "max")
    assert scheduler.metric == "acc"
    assert not scheduler.set_search_properties("acc", None)
    assert not scheduler.set_search_properties(None, "max")
    assert CurveStopping().set_search_properties(None, "min")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"mode": "best"}, "use 'min'"),
        ({"max_t": math.inf}, "max_t"),
        ({"max_t": 0}, "max_t"),
        ({"threshold": 0.7}, "threshold"),
        ({"threshold": -0.1}, "threshold"),
        ({"patience": 0}, "patience"),
        ({"grace_period": 0}, "grace_period"),
        ({"check_interval": 0}, "check_interval"),
        ({"target": math.nan}, "target"),
        ({"limits": (1, 0)}, "limits"),
    ],
)
def test_options_are_checked(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        made(**options)


def test_it_goes_on_from_what_was_saved(tmp_path: Path) -> None:
    curves = [rising(0.9, 0.15), rising(0.3, 0.3), rising(0.5, 0.1)]
    whole = Search(made(), 3)
    whole.run(curves, 59)
    half = Search(made(), 3)
    half.run(curves, 7)
    half.scheduler.save(str(tmp_path / "state"))
    half.scheduler = made(max_t=5)
    half.scheduler.restore(str(tmp_path / "state"))
    half.run(curves, 59, first=8)
    assert half.ended == whole.ended
    assert half.scheduler.stopped == whole.scheduler.stopped


def test_a_trial_that_went_back_to_its_checkpoint_is_judged_alike() -> None:
    curve = rising(0.3, 0.3)
    search = Search(made(target=0.9, patience=50), 1)
    search.run([curve], 30)
    search.run([curve], 40, first=20)  # iterations 20 to 30 again
    twice = search.scheduler.verdict("t0")
    plain = Search(made(target=0.9, patience=50), 1)
    plain.run([curve], 40)
    assert twice.chance is not None
    assert twice.chance == pytest.approx(plain.scheduler.verdict("t0").chance, abs=0.05)


class TestAdapter(AdapterContract):
    def make(self) -> Any:
        return search_for(made())


def test_the_agent_is_told_when_trials_end_and_which_come_first() -> None:
    scheduler = made(target=0.8, patience=10**6, max_t=100, threshold=0.1)
    search = Search(scheduler, 3)
    search.run([rising(0.3, 0.3), rising(0.95, 0.05), rising(0.9, 0.03)], 25)
    adapter: Any = search_for(scheduler)
    adapter.observe(
        AppState(tuple(TrialInfo(f"t{i}", 25.0, 100.0, 2.0) for i in range(3)), to_come=2)
    )
    jobs = adapter.jobs_remaining((1, 1))
    assert [job.id for job in jobs][-1] == "t0"  # poor: after those to come
    assert [job.id for job in jobs].count("") == 2
    by_id = {job.id: job for job in jobs}
    # t1 really reaches 0.8 at iteration 37: the estimate may be late, not early.
    assert 12 <= by_id["t1"].iterations_remaining <= 75
    assert by_id["t2"].iterations_remaining <= 75
    assert sum(sum(job.gpus) for job in jobs) == 2
    assert not by_id["t0"].gpus


def test_a_poor_trial_ends_with_its_next_checks() -> None:
    scheduler = made(target=0.9, patience=3, check_interval=4, grace_period=40, max_t=100)
    search = Search(scheduler, 1)
    search.run([rising(0.3, 0.3)], 42)
    verdict = scheduler.verdict("t0")
    assert verdict.rank is Rank.POOR
    assert verdict.runs_until == 48  # checks at 40, 44 and 48
    search.run([rising(0.3, 0.3)], 60, first=43)
    assert search.ended["t0"] == 48
