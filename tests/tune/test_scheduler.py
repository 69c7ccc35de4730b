"""``ThemisScheduler`` in real Tune runs, with leases that are taken away in the middle."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ray import tune
from ray.tune.schedulers import ASHAScheduler, HyperBandScheduler
from ray.tune.search import ConcurrencyLimiter, Searcher

import themis_ray
from tests.rival import Disturbance, Rival
from tests.tune.trainables import Counting, Unsaved, counting_function
from themis_ray import ThemisScheduler
from themis_ray.errors import ConfigError, DuplicateAppError

Start = Callable[..., dict[str, Any]]
names = (f"app{n}" for n in itertools.count())

# Ray's own deprecations, which a user of tune.run meets too.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def run(
    trainable: Any, folder: Path, trials: int, steps: int, step_s: float = 0.1, **options: Any
) -> list[Any]:
    """A ``tune.run``; returns its trials in the order of their index."""
    config = {"index": tune.grid_search(list(range(trials))), "steps": steps, "step_s": step_s}
    analysis = tune.run(
        trainable,
        **{
            "config": config,
            "metric": "score",
            "mode": "max",
            "stop": {"training_iteration": steps},
            "resources_per_trial": {"cpu": 0.1, "gpu": 1},
            "storage_path": str(folder),
            "verbose": 0,
            **options,
        },
    )
    return sorted(analysis.trials, key=lambda t: t.config["index"])


def survivors(trials: list[Any]) -> dict[int, int]:
    """How far each trial came: the rung at which it was stopped."""
    assert {t.status for t in trials} == {"TERMINATED"}
    return {t.config["index"]: t.last_result["training_iteration"] for t in trials}


@pytest.mark.slow
@pytest.mark.parametrize("trainable", [Counting, counting_function])
def test_any_trainable_goes_on_where_it_was(arbiter: Start, tmp_path: Path, trainable: Any) -> None:
    arbiter(min_bidders=1)
    disturbance = Disturbance(1)
    scheduler = ThemisScheduler(app=next(names))
    trials = run(trainable, tmp_path, 5, 25, 0.5, scheduler=scheduler, callbacks=[disturbance])
    assert disturbance.taken >= 2
    assert survivors(trials) == dict.fromkeys(range(5), 25)
    assert [t.last_result["steps"] for t in trials] == [25] * 5
    assert [t.num_failures for t in trials] == [0] * 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.long), 1])
def test_hyperband_keeps_the_same_trials_under_leases(
    arbiter: Start, tmp_path: Path, seed: int
) -> None:
    """Synchronous: what survives depends on the metric alone, so it is the same undisturbed."""

    def base() -> HyperBandScheduler:
        return HyperBandScheduler(max_t=9, reduction_factor=3)

    alone = survivors(run(Counting, tmp_path / "a", 6, 9, scheduler=base()))
    arbiter(min_bidders=1)
    disturbance = Disturbance(seed, (4, 9))
    scheduler = ThemisScheduler(base(), app=next(names))
    shared = run(
        Counting, tmp_path / "b", 6, 9, scheduler=scheduler, callbacks=[disturbance], step_s=0.5
    )
    assert disturbance.taken >= 1
    assert survivors(shared) == alone


@pytest.mark.slow
def test_asha_stops_at_rungs_only_and_its_best_trial_comes_through(
    arbiter: Start, tmp_path: Path
) -> None:
    arbiter(min_bidders=1)
    base = ASHAScheduler(max_t=9, grace_period=1, reduction_factor=3)
    scheduler = ThemisScheduler(base, app=next(names))
    trials = run(Counting, tmp_path, 9, 9, scheduler=scheduler, callbacks=[Disturbance(3, (4, 9))])
    reached = survivors(trials)
    assert set(reached.values()) <= {1, 3, 9}
    assert reached[8] == 9


@pytest.mark.slow
def test_tuner_with_limited_concurrency_and_restore(arbiter: Start, tmp_path: Path) -> None:
    arbiter(lease_s=30)
    tuner = tune.Tuner(
        tune.with_resources(Counting, {"cpu": 0.1, "gpu": 1}),
        param_space={"index": tune.grid_search([1, 2, 3, 4, 5])},
        tune_config=tune.TuneConfig(
            metric="score",
            mode="max",
            max_concurrent_trials=2,
            scheduler=ThemisScheduler(app=next(names)),
        ),
        run_config=tune.RunConfig(
            name="exp", storage_path=str(tmp_path), stop={"training_iteration": 4}, verbose=0
        ),
    )
    results = tuner.fit()
    assert [r.metrics["steps"] for r in results] == [4] * 5
    again = tune.Tuner.restore(
        str(tmp_path / "exp"),
        tune.with_resources(Counting, {"cpu": 0.1, "gpu": 1}),
        resume_unfinished=True,
    )
    assert [r.metrics["steps"] for r in again.fit()] == [4] * 5


class Counts(Searcher):  # type: ignore[misc]  # ray is untyped
    """A searcher that suggests one configuration at a time, and wants to hear of each."""

    def __init__(self) -> None:
        super().__init__(metric="score", mode="max")
        self.suggested = 0
        self.completed: list[str] = []

    def suggest(self, trial_id: str) -> dict[str, Any]:
        self.suggested += 1
        return {"index": self.suggested, "steps": 4, "step_s": 0.1}

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        self.completed.append(trial_id)


@pytest.mark.slow
def test_a_searcher_of_ones_own_with_limited_concurrency(arbiter: Start, tmp_path: Path) -> None:
    arbiter(lease_s=60)
    searcher = Counts()
    limited = ConcurrencyLimiter(searcher, max_concurrent=2)
    analysis = tune.run(
        Counting,
        search_alg=limited,
        num_samples=5,
        stop={"training_iteration": 4},
        resources_per_trial={"cpu": 0.1, "gpu": 1},
        scheduler=ThemisScheduler(app=next(names)),
        storage_path=str(tmp_path),
        verbose=0,
    )
    assert [t.last_result["steps"] for t in analysis.trials] == [4] * 5
    assert len(searcher.completed) == 5


@pytest.mark.slow
def test_a_trial_grows_to_what_is_free(arbiter: Start, tmp_path: Path) -> None:
    """One trial, four GPUs, and time enough that a restart pays."""
    arbiter(lease_s=60)
    scheduler = ThemisScheduler(app=next(names), max_gpus_per_trial=4)
    [trial] = run(Bundles, tmp_path, 1, 10, scheduler=scheduler)
    assert trial.last_result["bundles"] == 4


@pytest.mark.slow
def test_a_trial_shrinks_when_its_lease_does(arbiter: Start, tmp_path: Path) -> None:
    """It holds four GPUs; another app takes three, and it goes on with what it has."""
    arbiter(min_bidders=1, lease_s=8)
    rival = Rival()
    scheduler = ThemisScheduler(app=next(names), max_gpus_per_trial=4)
    sizes = Sizes(rival)
    [trial] = run(Bundles, tmp_path, 1, 60, 0.3, scheduler=scheduler, callbacks=[sizes])
    rival.close()
    assert trial.last_result["steps"] == 60
    assert trial.num_failures == 0
    assert sizes.seen[0] == 4
    assert 1 in sizes.seen


class Neighbours(Counting):
    """Reports which group it runs in, and how much of a GPU it has."""

    def step(self) -> dict[str, Any]:
        import ray

        context = ray.get_runtime_context()
        return {
            **super().step(),
            "group": context.get_placement_group_id(),
            "gpu": context.get_assigned_resources().get("GPU", 0.0),
        }


@pytest.mark.slow
def test_four_trials_share_a_gpu(arbiter: Start, tmp_path: Path) -> None:
    """Six trials of a quarter of a GPU never have more than two GPUs; all end undisturbed."""
    arbiter(lease_s=60)
    held = Held()
    scheduler = ThemisScheduler(app=next(names))
    trials = run(
        Neighbours, tmp_path, 6, 6, 0.2, scheduler=scheduler, callbacks=[held],
        resources_per_trial={"cpu": 0.1, "gpu": 0.25},
    )  # fmt: skip
    assert [t.last_result["steps"] for t in trials] == [6] * 6
    assert [t.num_failures for t in trials] == [0] * 6
    assert {t.last_result["gpu"] for t in trials} == {0.25}
    sharers = Counter(t.last_result["group"] for t in trials)
    assert sorted(sharers.values()) in ([2, 4], [3, 3], [1, 1, 4], [6])
    assert 1 <= max(held.seen) <= 2


class Held(tune.Callback):  # type: ignore[misc]  # ray is untyped
    """Notes how many GPUs the arbiter has leased."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_trial_result(self, **info: Any) -> None:
        self.seen.append(sum(app["held"] for app in themis_ray.status()["apps"]))


class Sizes(tune.Callback):  # type: ignore[misc]  # ray is untyped
    """Notes the sizes of a trial's groups; has a rival want three GPUs early on."""

    def __init__(self, rival: Rival) -> None:
        self.rival, self.seen, self.reports = rival, [], 0

    def on_trial_result(self, result: dict[str, Any], **info: Any) -> None:
        self.reports += 1
        if result["bundles"] not in self.seen:
            self.seen.append(result["bundles"])
        if self.reports == 4:
            self.rival.want(3)


class Bundles(Counting):
    """Reports how many bundles its placement group has."""

    def step(self) -> dict[str, Any]:
        import ray

        return {**super().step(), "bundles": ray.util.get_current_placement_group().bundle_count}


class Leased(Counting):
    """Reports what ``current_lease`` says inside the trial."""

    def step(self) -> dict[str, Any]:
        lease = themis_ray.current_lease()
        assert lease is not None
        return {
            **super().step(),
            "lease": f"{lease.app} {lease.gpus} {lease.unit}",
            "left": lease.seconds_left,
            "save": lease.should_checkpoint(),
        }


class Takes(tune.Callback):  # type: ignore[misc]  # ray is untyped
    """Once, after a number of reports, a rival takes all GPUs and gives them back."""

    def __init__(self, rival: Rival, after: int) -> None:
        self.rival, self.left, self.taken = rival, after, 0

    def on_trial_result(self, **info: Any) -> None:
        self.left -= 1
        if self.left == 0:
            self.rival.want(4)

    def on_step_end(self, **info: Any) -> None:
        if self.rival.held == 4:
            self.taken += 1
            self.rival.want(0)
            self.rival.wait_held(0)


@pytest.mark.slow
def test_a_trial_in_a_long_step_is_stopped_at_the_end_of_its_lease(
    arbiter: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It goes back to its checkpoint; that is no failure, and at most a step is done again."""
    caplog.set_level("INFO")
    # Of a long step, few reports fall into a short notice: there a trial would leave by itself.
    arbiter(lease_s=9, notice_s=0.5, grace_s=8, min_bidders=1)
    rival = Rival()
    takes = Takes(rival, after=3)
    config = {"index": tune.grid_search([1, 2]), "steps": 4, "step_s": 7.0}
    scheduler = ThemisScheduler(app=next(names))
    trials = run(
        counting_function, tmp_path, 2, 4, scheduler=scheduler, callbacks=[takes], config=config
    )
    rival.close()
    assert takes.taken == 1
    assert [t.last_result["steps"] for t in trials] == [4, 4]
    assert [t.num_failures for t in trials] == [0, 0]
    assert "at the end of its lease" in caplog.text


@pytest.mark.slow
def test_a_trial_knows_its_lease(arbiter: Start, tmp_path: Path) -> None:
    arbiter(lease_s=60)
    app = next(names)
    [trial] = run(Leased, tmp_path, 1, 3, scheduler=ThemisScheduler(app=app))
    assert trial.last_result["lease"] == f"{app} 1 GPU"
    assert 30 < trial.last_result["left"] <= 60
    assert trial.last_result["save"] is False


@pytest.mark.slow
def test_preempting_without_a_checkpoint_is_a_choice(
    arbiter: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A class without ``save_checkpoint`` keeps its GPUs, and its user is told once."""
    arbiter(lease_s=3, notice_s=1, min_bidders=1)
    rival = Rival(wants=2)
    trials = run(Unsaved, tmp_path, 2, 30, scheduler=ThemisScheduler(app=next(names)))
    rival.close()
    assert [t.last_result["steps"] for t in trials] == [30, 30]
    assert caplog.text.count("save no checkpoint") == 1


class TestBadInput:
    """Each mistake is told where the user can mend it; the arbiter goes on serving."""

    def expect(self, error: type[Exception], match: str, folder: Path, **options: Any) -> None:
        app = next(names)
        scheduler = options.pop("scheduler", None) or ThemisScheduler(
            app=app, **options.pop("themis", {})
        )
        with pytest.raises(error, match=match):
            run(Counting, folder, 1, 1, scheduler=scheduler, **options)
        assert app not in {a["id"] for a in themis_ray.status()["apps"]}

    def test_it(self, arbiter: Start, tmp_path: Path) -> None:
        arbiter()
        self.expect(
            ConfigError, "fractional GPUs", tmp_path, resources_per_trial={"cpu": 0.1, "gpu": 1.5}
        )
        self.expect(
            ConfigError, "the cluster has 4 GPUs", tmp_path, themis={"max_gpus_per_trial": 9}
        )
        self.expect(ConfigError, "lower min_gpus_per_trial", tmp_path,
                    themis={"min_gpus_per_trial": 9, "max_gpus_per_trial": 9})  # fmt: skip
        self.expect(ConfigError, "reuse_actors", tmp_path, reuse_actors=True)
        rival = Rival("taken")
        self.expect(DuplicateAppError, "taken", tmp_path, scheduler=ThemisScheduler(app="taken"))
        rival.close()

    @pytest.mark.parametrize(
        ("arguments", "match"),
        [
            ({"weight": 0}, "weight"),
            ({"weight": float("nan")}, "weight"),
            ({"min_gpus_per_trial": 0}, "min_gpus_per_trial"),
            ({"max_gpus_per_trial": 1.5}, "fractional"),
            ({"base": ThemisScheduler()}, "once"),
        ],
    )
    def test_arguments(self, arguments: dict[str, Any], match: str) -> None:
        with pytest.raises(ConfigError, match=match):
            ThemisScheduler(**arguments)
