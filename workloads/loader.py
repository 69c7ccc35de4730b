"""A rank's batches: loaded by the rank itself, or ahead of time by processes of its own."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from . import random_state
from .sampler import ElasticSampler, Shard

_LOOK_S = 0.5
_DATA = 1
"""Sets the seeds of the data apart from those of the model's random streams."""

Request = tuple[int, Shard]
"""A step, and the part of its global batch that is wanted."""


class Loader:
    """The batches of one rank.

    A batch is a matter of the seed, the step, the rank and the number of ranks alone: the
    generators that random augmentations draw from (python's, numpy's, torch's) are seeded anew for
    each. So neither the number of workers nor an interruption changes what is trained on.

    Args:
        dataset: A map-style data set.
        collate: Makes a batch out of a list of examples.
        sampler: Says which examples a step has.
        rank: The rank.
        world: Number of ranks.
        smallest: Fewest examples that the model can compute on.
        workers: Processes that load ahead, two batches each; with 0 a batch is loaded when it is
            asked for.
        pin: Put batches into pinned memory, which a GPU copies from beside its work. With 0
            workers it is not done.
    """

    def __init__(
        self,
        dataset: Any,
        collate: Callable[[list[Any]], Any],
        sampler: ElasticSampler,
        rank: int,
        world: int,
        smallest: int,
        *,
        workers: int,
        pin: bool,
    ) -> None:
        self._source = _Source(dataset, collate, sampler.seed, rank)
        self._sampler = sampler
        self._part = (rank, world, smallest)
        self._workers, self._pin = workers, pin
        self._ahead: Iterator[tuple[Any, float]] | None = None
        self._next = -1

    def batch(self, step: int) -> tuple[Any, float]:
        """The rank's part of a step's global batch, and its share of it."""
        if self._workers == 0:
            with random_state.kept():
                return self._source[step, self._shard(step)]
        # After a restore or a restart another step is due than the one that was loaded ahead.
        if self._ahead is None or step != self._next:
            self.close()
            self._ahead = self._start(step)
        # Until it is here: after an error, there is nothing to go on with.
        self._next = -1
        loaded = next(self._ahead)
        self._next = step + 1
        return loaded

    def close(self) -> None:
        """End the processes."""
        # They end with their iterator.
        self._ahead = None

    def _shard(self, step: int) -> Shard:
        return self._sampler.shard(step, *self._part)

    def _start(self, step: int) -> Iterator[tuple[Any, float]]:
        loader = torch.utils.data.DataLoader(
            self._source,
            batch_size=None,
            sampler=_Steps(step, self._shard),
            num_workers=self._workers,
            collate_fn=_as_it_is,
            pin_memory=self._pin,
            worker_init_fn=_EndWithRank(),
            # Forked: they share the data set's memory, need no imports, and nothing is pickled.
            multiprocessing_context="fork",
            # Of its own: the model's random stream must not depend on how data are loaded.
            generator=torch.Generator(),
        )
        return iter(loader)


class _Source:
    """Makes batches, in whichever process."""

    def __init__(
        self, dataset: Any, collate: Callable[[list[Any]], Any], seed: int, rank: int
    ) -> None:
        self._dataset, self._collate, self._seed, self._rank = dataset, collate, seed, rank

    def __getitem__(self, request: Request) -> tuple[Any, float]:
        step, shard = request
        random_state.reseed(self._seed, self._rank, step, _DATA)
        indices = [int(i) for i in shard.indices]
        several = getattr(self._dataset, "__getitems__", None)
        examples = several(indices) if several else [self._dataset[i] for i in indices]
        return self._collate(examples), shard.weight


class _Steps:
    """The requests of all steps from one on."""

    def __init__(self, first: int, shard: Callable[[int], Shard]) -> None:
        self._first, self._shard = first, shard

    def __iter__(self) -> Iterator[Request]:
        step = self._first
        while True:
            yield step, self._shard(step)
            step += 1


class _EndWithRank:
    """Ends a loading process soon after its rank, however that ended.

    A forked process holds on to the GPU's memory of the one it was forked from, which is somebody
    else's next; by itself a torch worker looks for its parent every five seconds only.
    """

    def __init__(self) -> None:
        self._rank_pid = os.getpid()

    def __call__(self, worker: int) -> None:
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while os.getppid() == self._rank_pid:
            time.sleep(_LOOK_S)
        os._exit(1)


def _as_it_is(loaded: Any) -> Any:
    return loaded
