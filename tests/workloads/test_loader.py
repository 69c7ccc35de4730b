"""Batches loaded ahead by processes of their own are those that the training would load itself."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import pytest
import torch
import workload_jobs as jobs
from ray.util.placement_group import PlacementGroup
from workload_jobs import call

from themis_ray.errors import ConfigError, WorkerDiedError
from themis_ray.workloads import ElasticTrainer
from themis_ray.workloads.loader import Loader
from themis_ray.workloads.sampler import ElasticSampler

# torch's advice on a machine with fewer cores.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

SIZE, BATCH = 22, 7


class Noisy(torch.utils.data.Dataset):
    """Each example is its index, the process that loaded it, and a draw of each generator."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> tuple[int, int, float, float, Any]:
        return index, os.getpid(), random.random(), float(np.random.rand()), torch.rand(1)


class Flawed(Noisy):
    def __getitem__(self, index: int) -> tuple[int, int, float, float, Any]:
        raise KeyError(f"no example {index}")


def loader(workers: int, rank: int = 0, world: int = 1, dataset: Any = None) -> Loader:
    sampler = ElasticSampler(SIZE, BATCH, seed=3)
    source = dataset or Noisy()
    return Loader(source, list, sampler, rank, world, 1, workers=workers, pin=False)


def draws(batch: list[Any]) -> list[Any]:
    return [(index, a, b, float(c)) for index, _, a, b, c in batch]


def processes(batch: list[Any]) -> set[int]:
    return {pid for _, pid, *_ in batch}


@pytest.mark.forks
def test_neither_workers_nor_the_start_change_a_batch() -> None:
    """Examples, their order, their augmentations and their weight; over the end of an epoch."""
    expected = [loader(0).batch(step) for step in range(9)]
    for workers in (1, 2):
        ahead = loader(workers)
        torch.rand(5)  # other draws of the process do not matter
        loaded = [ahead.batch(step) for step in range(9)]
        # Back as after a restore, and forward.
        loaded[2:6] = [ahead.batch(step) for step in range(2, 6)]
        loaded[8] = ahead.batch(8)
        for (batch, weight), (same, its_weight) in zip(loaded, expected, strict=True):
            assert draws(batch) == draws(same)
            assert weight == its_weight
            assert os.getpid() not in processes(batch)
        assert len({pid for batch, _ in loaded[:2] for pid in processes(batch)}) == workers
        ahead.close()
    assert all(processes(batch) == {os.getpid()} for batch, _ in expected)
    assert len({draw for batch, _ in expected for draw in draws(batch)}) == 2 * SIZE + BATCH


@pytest.mark.forks
def test_ranks_have_the_parts_of_the_batch_and_draws_of_their_own() -> None:
    parts = [loader(1, rank, 3).batch(2) for rank in range(3)]
    examples = [index for batch, _ in parts for index, *_ in batch]
    assert examples == ElasticSampler(SIZE, BATCH, seed=3).batch(2).tolist()
    assert sum(weight for _, weight in parts) == pytest.approx(1)
    assert len({draw[1:] for batch, _ in parts for draw in draws(batch)}) == BATCH


@pytest.mark.forks
def test_loading_leaves_the_random_streams_of_the_process_alone() -> None:
    for workers in (0, 1):
        loading = loader(workers)
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)
        expected = torch.rand(3).tolist(), random.random(), np.random.rand()
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)
        loading.batch(0)
        assert (torch.rand(3).tolist(), random.random(), np.random.rand()) == expected
        loading.close()


@pytest.mark.forks
def test_an_error_of_the_data_set_is_raised_where_the_batch_is_asked_for() -> None:
    for workers in (0, 1):
        loading = loader(workers, dataset=Flawed())
        for _ in range(2):
            with pytest.raises(KeyError, match="no example"):
                loading.batch(0)
        loading.close()


def children(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def await_end(found: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(found, timeout=60)
    assert not alive


@pytest.mark.forks
def test_the_processes_end_with_the_loader() -> None:
    before = set(children(os.getpid()))
    loading = loader(2)
    loading.batch(0)
    ours = [child for child in children(os.getpid()) if child not in before]
    assert len(ours) >= 2
    loading.close()
    await_end(ours)


@pytest.mark.forks
def test_a_job_learns_the_same_from_batches_loaded_ahead(tmp_path: Path) -> None:
    """With dropout in the model, and interrupted."""
    rich = {"model": jobs.rich_model, "step_fn": jobs.single_precision}
    with jobs.make_trainer(**rich) as own:
        expected = own.run_losses(8)
    with jobs.make_trainer(**rich, loader_workers=2) as before:
        losses = before.run_losses(3)
        before.save(tmp_path)
        assert before.run_losses(5) == expected[3:]
        before.restore(tmp_path)
        assert before.run_losses(2) == expected[3:5]
    with jobs.make_trainer(**rich, loader_workers=1) as after:
        after.restore(tmp_path)
        assert losses + after.run_losses(5) == expected


def test_several_ranks_load_ahead_and_their_processes_end_with_them(
    lease: Callable[[int], PlacementGroup], tmp_path: Path
) -> None:
    trial = jobs.start_trial(lease(3))
    own = call(trial, jobs.train_with_loaders, 3, 0, str(tmp_path / "own"))
    ahead = call(trial, jobs.train_with_loaders, 3, 2, str(tmp_path / "ahead"))
    assert ahead == own
    # Continued alone: the same data, and so nearly the same losses.
    with jobs.make_trainer(loader_workers=1) as alone:
        alone.restore(tmp_path / "ahead")
        assert alone.run_losses(jobs.STEPS) == pytest.approx(own[1], rel=1e-9)
    # A trial that is killed cannot end its processes itself.
    pid = call(trial, jobs.start_loading)
    ours = children(pid)
    assert ours
    os.kill(pid, signal.SIGKILL)
    await_end(ours)


class Pair(NamedTuple):
    x: Any
    y: Any


class Movable:
    """A batch with a class of its own, as graph libraries have them."""

    def __init__(self, pairs: list[Pair]) -> None:
        self.pair = torch.utils.data.default_collate(pairs)
        self.moved_to: Any = None

    def to(self, device: Any) -> Movable:
        self.moved_to = device
        return self


def test_batches_of_any_shape_are_moved() -> None:
    class Pairs(jobs.Points):
        def __getitem__(self, index: int) -> Pair:
            return Pair(*super().__getitem__(index))

    def loss(model: Any, batch: Any) -> Any:
        pair = batch.pair if isinstance(batch, Movable) else batch
        assert isinstance(pair, Pair)
        assert not isinstance(batch, Movable) or batch.moved_to == torch.device("cpu")
        return torch.nn.functional.cross_entropy(model(pair.x), pair.y)

    found = []
    for collate in (None, Movable):
        with jobs.make_trainer(dataset=Pairs, step_fn=loss, collate_fn=collate) as trainer:
            found.append(trainer.run_losses(2))
    assert found[0] == found[1]


class Stream(torch.utils.data.IterableDataset):
    def __len__(self) -> int:
        return SIZE

    def __iter__(self) -> Iterator[int]:
        return iter(range(SIZE))


def test_what_cannot_be_loaded_is_refused() -> None:
    with pytest.raises(ConfigError, match="map-style"):
        jobs.make_trainer(dataset=Stream)
    with pytest.raises(ConfigError, match="map-style"):
        jobs.make_trainer(dataset=lambda: iter([1]))
    with pytest.raises(ConfigError, match="loader_workers"):
        jobs.make_trainer(loader_workers=-1)


def test_a_closed_trainer_says_so() -> None:
    trainer: ElasticTrainer = jobs.make_trainer()
    trainer.close()
    with pytest.raises(WorkerDiedError, match="the trainer is closed"):
        trainer.run(1)
