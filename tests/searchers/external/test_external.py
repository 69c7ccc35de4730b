"""Searches without Tune: they share GPUs, leave when told to, and go on where they were."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import ray

import themis_ray
from tests.ray_process import eventually
from tests.rival import Rival
from themis_ray.agent.external import ExternalApp, ExternalJob
from themis_ray.errors import ConfigError, DuplicateAppError, ProtocolError

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

Start = Callable[..., Any]
EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "optuna_ask_tell.py"


@ray.remote
class Counter:
    """A trainer whose whole state is how many steps it has done."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def step(self) -> int:
        self.steps += 1
        return self.steps


def train(job: ExternalJob, go_on: Callable[[], bool]) -> list[int]:
    """Do a job over as many leases as it takes; returns the steps at which leases ended."""
    saved, ends = 0, []
    while not job.done:
        with job.lease() as lease:
            actor = Counter.options(**lease.options()).remote(saved)
            while not (job.done or lease.should_leave):
                saved = ray.get(actor.step.remote())
                lease.report()
                if not go_on():
                    job.finish()
            ends.append(saved)
    return ends


def held(app: str) -> int:
    """GPUs that an app holds, by the arbiter's word."""
    return sum(a["held"] for a in themis_ray.status()["apps"] if a["id"] == app)


def test_two_apps_take_turns_on_the_gpus(arbiter: Start) -> None:
    arbiter()
    heir_done = threading.Event()

    def first() -> tuple[list[list[int]], list[float]]:
        # Both its jobs run until the other app has been served: one has to leave for it.
        with ExternalApp("first", jobs=2, iterations_per_job=10**9) as app:
            jobs = [app.job("a"), app.job("b")]
            with ThreadPoolExecutor(2) as pool:
                ends = list(pool.map(lambda j: train(j, lambda: not heir_done.is_set()), jobs))
            return ends, [job.iterations_done for job in jobs]

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(first)
        eventually("the first app has both GPUs", lambda: held("first") == 2, 200)
        with ExternalApp("second", jobs=1, iterations_per_job=5) as app:
            job = app.job("only")
            assert train(job, lambda: True)[-1] == 5
            assert job.iterations_done == 5
        heir_done.set()
        ends, done = future.result(250)
    assert sum(len(leases) for leases in ends) > 2, "no lease was taken away"
    # Nothing was lost and nothing was done twice.
    assert [leases[-1] for leases in ends] == done


def test_a_job_that_does_not_leave_goes_on_from_what_it_saved(arbiter: Start) -> None:
    arbiter(lease_s=3.0, grace_s=1.0, min_bidders=1)
    rival = Rival()
    lost = 0
    with ExternalApp("stubborn", jobs=1, iterations_per_job=10**9) as app:
        job = app.job("only")
        while not job.done:
            with job.lease() as lease:
                actor = Counter.options(**lease.options()).remote(0)
                if lost:
                    assert ray.get(actor.step.remote()) == 1
                    job.finish()
                    break
                assert ray.get(actor.step.remote()) == 1
                lease.report()
                lease.saved()
                rival.want(2)
                while True:  # it takes no notice of the lease's end
                    ray.get(actor.step.remote())
                    lease.report()
            assert lease.lost
            assert job.iterations_done == 1
            lost += 1
            rival.want(0)
    rival.close()
    assert lost == 1


def test_an_error_of_the_job_itself_ends_it(arbiter: Start) -> None:
    arbiter()
    with ExternalApp("faulty", jobs=1) as app:
        job = app.job("only")
        with pytest.raises(ZeroDivisionError), job.lease():
            raise ZeroDivisionError
        assert job.done
        with pytest.raises(ProtocolError, match="over"):
            job.lease()


def test_names_sizes_and_order_of_calls_are_checked(arbiter: Start) -> None:
    arbiter()
    with pytest.raises(ProtocolError, match="not open"):
        ExternalApp("early").job("a")
    with pytest.raises(ConfigError, match="the cluster has 2"):
        ExternalApp("large", min_gpus=3, max_gpus=3).open()
    with pytest.raises(ConfigError, match="leave GPU out"):
        ExternalApp("gpu", per_gpu={"GPU": 1})
    with ExternalApp("one") as app:
        assert app.job("a") is app.job("a")
        with pytest.raises(DuplicateAppError, match="one"):
            ExternalApp("one").open()


@pytest.mark.long
def test_the_optuna_example_loses_its_gpus_and_gets_there(arbiter: Start) -> None:
    optuna = pytest.importorskip("optuna")
    spec = importlib.util.spec_from_file_location("optuna_ask_tell", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    arbiter(lease_s=3.0, min_bidders=1)
    rival = Rival()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(example.main, "optuna", trials=4, at_once=2, epochs=3000)
        eventually("it has both GPUs", lambda: held("optuna") == 2, 200)
        rival.want(2)
        rival.wait_held(2, 200)
        rival.want(0)
        study = future.result(250)
    rival.close()
    assert len(study.trials) == 4
    states = {trial.state for trial in study.trials}
    assert states <= {optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED}
    for trial in study.trials:
        # Every epoch was reported, once, whatever became of the GPUs.
        steps = sorted(trial.intermediate_values)
        assert steps == list(range(len(steps)))
        assert trial.intermediate_values[0] > trial.intermediate_values[len(steps) - 1]
