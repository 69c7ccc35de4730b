"""Tensor-size skew, read off a job by watching what it sends.

Tiresias (NSDI '19, section 3.3) tells how a job suffers from being spread by the sizes of its
messages, and gets those by watching rather than by asking. Here a DDP communication hook sees
the gradients of the first iterations on their way out. A job of one process sends nothing: there
the sizes of its parameters stand for those of its gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

# An iteration sends what every other one sends: Tiresias too looks at a few only.
ITERATIONS = 3


@dataclass(frozen=True, slots=True)
class Skew:
    """The sizes of what a job sends in an iteration.

    Attributes:
        largest_bytes: The largest tensor.
        total_bytes: All tensors.
        tensors: How many there are.
        exchanged: Whether they were seen on their way between processes, or are the parameters'.
    """

    largest_bytes: int
    total_bytes: int
    tensors: int
    exchanged: bool

    @classmethod
    def of(cls, sizes_bytes: Iterable[int], *, exchanged: bool) -> Skew:
        """Sum up the tensors of one iteration."""
        sizes = list(sizes_bytes)
        return cls(max(sizes, default=0), sum(sizes), len(sizes), exchanged)

    @property
    def share(self) -> float:
        """The largest tensor's share of the bytes, 0 to 1; 0 for a job without parameters."""
        return self.largest_bytes / self.total_bytes if self.total_bytes else 0.0


def of_parameters(parameters: Iterable[Any]) -> Skew:
    """The skew of a model's trainable parameters, ``torch.nn.Parameter`` each."""
    sizes = (p.numel() * p.element_size() for p in parameters if p.requires_grad)
    return Skew.of(sizes, exchanged=False)


class ExchangeWatch:
    """Notes the sizes of the gradients that DDP exchanges, and leaves them as they are.

    ::

        watch = ExchangeWatch()
        ddp.register_comm_hook(None, watch.hook())

    DDP packs small gradients together into buckets; the watch looks at the tensors inside.

    Args:
        exchange: The communication hook that does the work; by default, one that averages over all
            processes.
    """

    def __init__(self, exchange: Callable[[Any, Any], Any] | None = None) -> None:
        self._exchange = exchange
        self._seen = 0
        self._sizes: list[int] = []
        self._skew: Skew | None = None

    @property
    def skew(self) -> Skew | None:
        """Of the last whole iteration seen; None before the first."""
        return self._skew

    def hook(self) -> Callable[[Any, Any], Any]:
        """The communication hook: takes a state and a bucket, returns a future of the average."""
        exchange = self._exchange or _averaging()

        def themis_exchange_watch(state: Any, bucket: Any) -> Any:
            if self._seen < ITERATIONS:
                self._look(bucket)
            return exchange(state, bucket)

        # DDP compares a hook's annotations with its own types.
        themis_exchange_watch.__annotations__ = {}
        return themis_exchange_watch

    def _look(self, bucket: Any) -> None:
        self._sizes.extend(g.numel() * g.element_size() for g in bucket.gradients())
        if bucket.is_last():
            self._skew = Skew.of(self._sizes, exchanged=True)
            self._sizes, self._seen = [], self._seen + 1


def _averaging() -> Callable[[Any, Any], Any]:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    hook: Callable[[Any, Any], Any] = allreduce_hook
    return hook
