"""Copies of a job's state in the CPU's memory, and the parts that it can be cut into."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import torch

Path = tuple[str | int, ...]
"""Keys and positions that lead to a tensor in a nested state."""


def snapshot(value: Any, reuse: Any = None) -> Any:
    """Copy a nested state to the CPU.

    Args:
        value: Dicts, lists and tuples of tensors and plain values.
        reuse: An earlier snapshot whose memory may be overwritten, where shapes agree.

    Returns:
        A copy that shares no memory with ``value``.
    """
    if isinstance(value, torch.Tensor):
        return _copy(value.detach(), reuse)
    if isinstance(value, MutableMapping):
        old = reuse if isinstance(reuse, Mapping) else {}
        # A model's state dict carries the versions of its layers as an attribute: keep it.
        made = copy.copy(value)
        made.update({key: snapshot(item, old.get(key)) for key, item in value.items()})
        return made
    if isinstance(value, (list, tuple)):
        same = isinstance(reuse, (list, tuple)) and len(reuse) == len(value)
        old_items: Sequence[Any] = reuse if same else [None] * len(value)
        copies = [snapshot(item, old) for item, old in zip(value, old_items, strict=True)]
        return copies if isinstance(value, list) else tuple(copies)
    return value


def _copy(tensor: Any, reuse: Any) -> Any:
    fits = (
        isinstance(reuse, torch.Tensor)
        and reuse.shape == tensor.shape
        and reuse.dtype == tensor.dtype
        and reuse.device.type == "cpu"
    )
    if not fits:
        # Pinned memory is what a GPU copies into at full speed.
        reuse = torch.empty(
            tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=tensor.is_cuda
        )
    return reuse.copy_(tensor)


def tensors_of(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The tensors of a nested state with their paths, in a fixed order."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from tensors_of(item, (*path, key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from tensors_of(item, (*path, index))


def deal(sizes: Mapping[Path, int], shards: int) -> list[list[Path]]:
    """Deal tensors out to shards of about equal bytes: the largest first, to the lightest.

    The same sizes give the same shards in every process.
    """
    parts: list[list[Path]] = [[] for _ in range(shards)]
    weights = [0] * shards
    for path, size in sorted(sizes.items(), key=lambda item: (-item[1], str(item[0]))):
        lightest = weights.index(min(weights))
        parts[lightest].append(path)
        weights[lightest] += size
    return parts


def without(value: Any, paths: frozenset[Path], path: Path = ()) -> Any:
    """A nested state with ``None`` in place of some tensors."""
    if path in paths:
        return None
    if isinstance(value, MutableMapping):
        made = copy.copy(value)
        made.update({key: without(item, paths, (*path, key)) for key, item in value.items()})
        return made
    if isinstance(value, (list, tuple)):
        return [without(item, paths, (*path, index)) for index, item in enumerate(value)]
    return value


def put_back(value: Any, path: Path, tensor: Any) -> None:
    """Put a tensor in the place that :func:`without` left empty."""
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = tensor
