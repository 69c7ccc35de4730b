"""Which examples each process sees: the same global batches whatever the number of processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import CheckpointError, ConfigError

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Shard:
    """One process's part of one global batch.

    Attributes:
        indices: Examples to run. Never empty, so that every process takes part in the exchange of
            gradients: a process without a part borrows examples and has weight 0.
        weight: Share of the global batch, in [0, 1]. Summed over the processes it is 1, and the sum
            of ``weight * mean loss of the shard`` is the mean loss over the global batch.
    """

    indices: Indices
    weight: float


class ElasticSampler:
    """Epoch-seeded shuffling, cut into global batches, dealt out to any number of processes.

    The batch of a step depends on ``(seed, step)`` alone, so the position is one integer, and
    a job that moves from three GPUs to one goes on with exactly the batches that were due.

    Args:
        size: Examples in the data set.
        global_batch: Examples in one step over all processes. The last batch of an epoch holds
            what is left and may be shorter.
        seed: Seed of the shuffles.
    """

    def __init__(self, size: int, global_batch: int, seed: int = 0) -> None:
        if size < 1:
            raise ConfigError("the data set is empty: there is nothing to train on")
        if global_batch < 1:
            raise ConfigError(f"global_batch must be at least 1, not {global_batch}")
        self.size = size
        self.global_batch = min(global_batch, size)
        self.seed = seed
        self.step = 0
        self._epoch = -1
        self._order: Indices = np.empty(0, dtype=np.int64)

    @property
    def steps_per_epoch(self) -> int:
        """Global batches in one pass over the data."""
        return -(-self.size // self.global_batch)

    def batch(self, step: int) -> Indices:
        """Indices of the global batch of a step, counted from 0 since the job's start."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._order = np.random.default_rng([self.seed, epoch]).permutation(self.size)
            self._epoch = epoch
        start = position * self.global_batch
        return self._order[start : start + self.global_batch]

    def shard(self, step: int, rank: int, world: int, smallest: int = 1) -> Shard:
        """The part of a step's global batch that one of ``world`` processes computes.

        Args:
            step: Step, counted from 0 since the job's start.
            rank: The process, 0 to ``world - 1``.
            world: Number of processes.
            smallest: Fewest examples a process can compute on (batch normalisation needs 2).
        """
        batch = self.batch(step)
        sizes = shard_sizes(len(batch), world, smallest)
        start = sum(sizes[:rank])
        mine = batch[start : start + sizes[rank]]
        weight = sizes[rank] / len(batch)
        if len(mine) == 0:
            mine = batch[:smallest]
        if len(mine) < smallest:
            # Every example is repeated equally often, so the mean over the shard stays the same.
            mine = np.tile(mine, -(-smallest // len(mine)))
        return Shard(mine, weight)

    def state_dict(self) -> dict[str, int]:
        """The position and what it refers to."""
        return {
            "size": self.size,
            "global_batch": self.global_batch,
            "seed": self.seed,
            "step": self.step,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue at a saved position.

        Raises:
            CheckpointError: The position belongs to other data, batches or shuffles.
        """
        for key in ("size", "global_batch", "seed"):
            if state[key] != getattr(self, key):
                raise CheckpointError(
                    f"the checkpoint was made with {key}={state[key]}, this job has "
                    f"{key}={getattr(self, key)}: the order of the data would change. "
                    "Resume with the old value, or start afresh"
                )
        self.step = int(state["step"])


def shard_sizes(batch: int, world: int, smallest: int = 1) -> list[int]:
    """Deal ``batch`` examples out to ``world`` processes as evenly as can be.

    Ranks that would get fewer than ``smallest`` get none, and the first ranks share the rest.
    Rank 0 always has a part: its batch-normalisation statistics are the ones that are kept.
    """
    active = max(1, min(world, batch // smallest))
    share, extra = divmod(batch, active)
    sizes = [share + (rank < extra) for rank in range(active)]
    return sizes + [0] * (world - active)
