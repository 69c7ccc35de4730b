"""What a trial's own loop learns of its lease, and how soon."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ray import tune

import themis_ray
from tests.rival import Rival
from tests.tune.trainables import endless_epochs
from themis_ray import ThemisScheduler
from themis_ray.errors import ConfigError
from themis_ray.lease import _ask

Start = Callable[..., dict[str, Any]]

pytestmark = [
    # Tune's own use of its own and Ray's deprecated calls; nothing of ours.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

CALLS = 10_000


def price_of_a_look(config: dict[str, Any]) -> None:
    """How many looks at the lease cost as much as one question to the arbiter."""
    assert themis_ray.current_lease() is not None
    begin = time.perf_counter()
    for _ in range(CALLS):
        lease = themis_ray.current_lease()
        assert lease is not None
        lease.should_checkpoint()
    looked_s = (time.perf_counter() - begin) / CALLS
    begin = time.perf_counter()
    for _ in range(20):
        _ask()
    asked_s = (time.perf_counter() - begin) / 20
    tune.report({"ratio": asked_s / looked_s, "look_us": 1e6 * looked_s})


def nested_trainer(config: dict[str, Any]) -> None:
    """A Ray Train job inside a trial, as people write it for plain Tune."""
    from ray.train import ScalingConfig
    from ray.train.torch import TorchTrainer

    try:
        TorchTrainer(lambda: None, scaling_config=ScalingConfig(num_workers=2, use_gpu=True)).fit()
    except ConfigError as error:
        tune.report({"refused": str(error)})


class TakesAll(tune.Callback):  # type: ignore[misc]  # ray is untyped
    """A rival wants every GPU from the first trial's start on, and gives them back at once."""

    def __init__(self, rival: Rival) -> None:
        self.rival, self.taken = rival, 0

    def on_trial_start(self, **info: Any) -> None:
        if not self.taken and not self.rival.wants:
            self.rival.want(4)

    def on_step_end(self, **info: Any) -> None:
        if self.rival.wants and self.rival.held == 4:
            self.taken += 1
            self.rival.want(0)


def run(trainable: Any, folder: Path, app: str, **options: Any) -> Any:
    analysis = tune.run(
        trainable,
        scheduler=ThemisScheduler(app=app, iterations_per_trial=100),
        resources_per_trial={"cpu": 0.1, "gpu": 1},
        storage_path=str(folder),
        verbose=0,
        **options,
    )
    return analysis.trials[0].last_result


@pytest.mark.slow
def test_a_loop_with_endless_epochs_saves_when_notice_is_given(
    arbiter: Start, tmp_path: Path
) -> None:
    # Notice comes long after the trial's process has started, which takes some 4 s of its lease.
    arbiter(lease_s=15, notice_s=2, grace_s=20, min_bidders=1)
    rival = Rival("taker")
    takes = TakesAll(rival)
    last = run(endless_epochs, tmp_path, "epochs", callbacks=[takes])
    rival.close()
    assert takes.taken == 1
    assert last["resumed_with"] == "saved in time, False before"


@pytest.mark.slow
def test_a_look_at_the_lease_is_far_cheaper_than_a_question(arbiter: Start, tmp_path: Path) -> None:
    arbiter(lease_s=60)
    last = run(price_of_a_look, tmp_path, "price")
    print(f"a look costs {last['look_us']:.2f} us, 1/{last['ratio']:.0f} of a question")
    assert last["ratio"] > 20


@pytest.mark.slow
def test_a_ray_train_job_in_a_lease_is_refused(arbiter: Start, tmp_path: Path) -> None:
    arbiter(lease_s=120)
    last = run(nested_trainer, tmp_path, "nested")
    assert "outside the trial's lease of 1 GPUs" in last["refused"]
    assert "ElasticTrainer" in last["refused"]
