from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from themis_ray.errors import CheckpointError, ConfigError
from themis_ray.workloads import ElasticSampler
from themis_ray.workloads.sampler import shard_sizes

SIZE, BATCH = 22, 7


@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_the_shards_of_a_step_are_its_global_batch(world: int) -> None:
    sampler = ElasticSampler(SIZE, BATCH, seed=1)
    alone = ElasticSampler(SIZE, BATCH, seed=1)
    for step in range(3 * sampler.steps_per_epoch):
        shards = [sampler.shard(step, rank, world) for rank in range(world)]
        dealt = np.concatenate([shard.indices for shard in shards if shard.weight > 0])
        assert dealt.tolist() == alone.batch(step).tolist()
        assert sum(shard.weight for shard in shards) == pytest.approx(1)
        assert all(len(shard.indices) > 0 for shard in shards)


def test_an_epoch_is_every_example_once_and_the_next_one_another_order() -> None:
    sampler = ElasticSampler(SIZE, BATCH)
    assert sampler.steps_per_epoch == 4
    epochs = [
        [int(i) for step in range(4 * e, 4 * e + 4) for i in sampler.batch(step)] for e in (0, 1)
    ]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(SIZE))
    assert epochs[0] != epochs[1]
    assert len(sampler.batch(3)) == 1


@pytest.mark.parametrize("world", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("smallest", [1, 2])
def test_the_weighted_gradient_is_that_of_the_mean_over_the_global_batch(
    world: int, smallest: int
) -> None:
    rng = np.random.default_rng(0)
    per_example = rng.normal(size=(SIZE, 5))
    sampler = ElasticSampler(SIZE, BATCH)
    for step in range(sampler.steps_per_epoch):
        shards = [sampler.shard(step, rank, world, smallest) for rank in range(world)]
        summed = sum(s.weight * per_example[s.indices].mean(axis=0) for s in shards)
        assert summed == pytest.approx(per_example[sampler.batch(step)].mean(axis=0))
        assert all(len(shard.indices) >= smallest for shard in shards)


@pytest.mark.parametrize("world", [2, 3, 4, 7])
def test_the_model_s_gradient_is_that_of_one_process(world: int) -> None:
    """In double precision, for every step of two epochs; the last batch of each is shorter."""
    generator = torch.Generator().manual_seed(1)
    data = torch.randn(SIZE, 4, generator=generator, dtype=torch.float64)
    labels = torch.arange(SIZE) % 3
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)
    ).double()

    def gradient(indices: Any) -> Any:
        model.zero_grad()
        torch.nn.functional.cross_entropy(model(data[indices]), labels[indices]).backward()
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    sampler = ElasticSampler(SIZE, BATCH, seed=4)
    for step in range(2 * sampler.steps_per_epoch):
        shards = [sampler.shard(step, rank, world) for rank in range(world)]
        # What the ranks do: scale the loss by weight * world, then average over the world.
        exchanged = sum(gradient(s.indices) * (s.weight * world) for s in shards) / world
        alone = gradient(sampler.batch(step))
        assert torch.allclose(exchanged, alone, rtol=1e-12, atol=1e-14)


def test_shards_are_even_and_never_smaller_than_asked() -> None:
    assert shard_sizes(8, 3) == [3, 3, 2]
    assert shard_sizes(2, 3) == [1, 1, 0]
    assert shard_sizes(5, 4, smallest=2) == [3, 2, 0, 0]
    assert shard_sizes(1, 2, smallest=2) == [1, 0]


def test_the_position_continues_with_any_number_of_processes() -> None:
    sampler = ElasticSampler(SIZE, BATCH, seed=2)
    sampler.step = 9
    other = ElasticSampler(SIZE, BATCH, seed=2)
    other.load_state_dict(sampler.state_dict())
    assert other.step == 9


@pytest.mark.parametrize(
    ("key", "sampler"),
    [
        ("size", ElasticSampler(SIZE + 1, BATCH)),
        ("global_batch", ElasticSampler(SIZE, BATCH + 1)),
        ("seed", ElasticSampler(SIZE, BATCH, seed=1)),
    ],
)
def test_a_position_in_another_order_is_refused(key: str, sampler: ElasticSampler) -> None:
    with pytest.raises(CheckpointError, match=key):
        sampler.load_state_dict(ElasticSampler(SIZE, BATCH).state_dict())


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(ConfigError, match="empty"):
        ElasticSampler(0, 4)
    with pytest.raises(ConfigError, match="global_batch"):
        ElasticSampler(4, 0)
