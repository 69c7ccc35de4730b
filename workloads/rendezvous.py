"""How the processes of a job find each other, and what they tell each other at the start."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import socket
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ..errors import ConfigError, ThemisError

_log = logging.getLogger(__name__)

_BIND_ATTEMPTS = 20
_SIOCGIFADDR = 0x8915


def any_free_port() -> int:
    """Let the system choose while it binds: no other job can slip in between."""
    return 0


def open_store(
    host: str, pick_port: Callable[[], int] = any_free_port, timeout_s: float = 60.0
) -> Any:
    """Open rank 0's store, which the other ranks connect to.

    A port that is taken is no error: another one is picked.

    Args:
        host: Address of this node, as the other nodes know it.
        pick_port: Returns the port to try next; 0 means any free one.
        timeout_s: How long an operation on the store may take, in seconds.
    """
    failure: Exception | None = None
    for _ in range(_BIND_ATTEMPTS):
        port = pick_port()
        try:
            return dist.TCPStore(
                host,
                port,
                is_master=True,
                wait_for_workers=False,
                timeout=timedelta(seconds=timeout_s),
            )
        except (dist.DistError, OSError) as error:
            _log.info("port %d is taken, picking another one", port)
            failure = error
    raise ThemisError(
        f"no free port on {host} in {_BIND_ATTEMPTS} attempts; allow more ports, or end what holds "
        f"them ({failure})"
    ) from failure


def connect_store(host: str, port: int, timeout_s: float) -> Any:
    """Connect another rank to rank 0's store."""
    return dist.TCPStore(host, port, is_master=False, timeout=timedelta(seconds=timeout_s))


def use_interface_of(address: str) -> None:
    """Make gloo listen where the other nodes can reach this one.

    By default it takes the address that the host's own name has, which on many Linux systems is a
    loopback address. A choice the user has made in ``GLOO_SOCKET_IFNAME`` is respected.
    """
    for _, name in socket.if_nameindex():
        if _address_of(name) == address:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
            return


def _address_of(interface: str) -> str | None:
    """IPv4 address of a network interface, on Linux."""
    request = struct.pack("256s", interface.encode()[:15])
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        return socket.inet_ntoa(fcntl.ioctl(probe, _SIOCGIFADDR, request)[20:24])
    return None


def join(store: Any, rank: int, world: int, device: Any, timeout_s: float) -> None:
    """Form the process group: NCCL between GPUs, gloo otherwise.

    Args:
        store: The store of :func:`open_store` or :func:`connect_store`.
        rank: This process.
        world: Number of processes.
        device: Where this process computes.
        timeout_s: After how many seconds a collective operation fails.
    """
    if dist.is_initialized():
        raise ConfigError(
            "torch.distributed is already initialised in this process: the elastic trainer forms "
            "its own group; call torch.distributed.destroy_process_group() before"
        )
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=dist.PrefixStore("themis_ray", store),
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=timeout_s),
    )


def leave() -> None:
    """Leave the process group at once, without waiting for the others: they may be dead."""
    if not dist.is_initialized():
        return
    # An orderly NCCL shutdown waits for outstanding operations, which never end without peers.
    with contextlib.suppress(Exception):
        if dist.get_backend() == "nccl":
            dist.distributed_c10d._abort_process_group()
    with contextlib.suppress(Exception):
        if dist.is_initialized():
            dist.destroy_process_group()


def abort() -> None:
    """Break off a collective operation that another thread of this process is blocked in."""
    # gloo needs no help: its sockets close when the peers are killed.
    with contextlib.suppress(Exception):
        if dist.is_initialized() and dist.get_backend() == "nccl":
            dist.distributed_c10d._abort_process_group()


def broadcast_tensors(tensors: Iterable[Any]) -> None:
    """Overwrite tensors with rank 0's, in place; every rank calls this at once."""
    for tensor in tensors:
        dist.broadcast(tensor, src=0)


@dataclass(frozen=True)
class _Slot:
    """Stands for a tensor of a nested value while the rest is sent."""

    index: int
    shape: tuple[int, ...]
    dtype: Any
    on_cpu: bool


def broadcast(value: Any, device: Any) -> Any:
    """Send a nested value from rank 0 to all; tensors go as they are, not pickled.

    Every rank calls this at once; all but rank 0 pass ``None``.
    """
    tensors: list[Any] = []
    box = [_take_tensors(value, tensors)]
    dist.broadcast_object_list(box, src=0, device=device)
    slots = sorted(_slots(box[0]), key=lambda slot: slot.index)
    sends = dist.get_rank() == 0
    received = []
    for slot in slots:
        tensor = (
            tensors[slot.index].to(device).contiguous()
            if sends
            else torch.empty(slot.shape, dtype=slot.dtype, device=device)
        )
        dist.broadcast(tensor, src=0)
        received.append(tensor.cpu() if slot.on_cpu else tensor)
    return value if sends else _put_tensors(box[0], received)


def _take_tensors(value: Any, tensors: list[Any]) -> Any:
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        on_cpu = value.device.type == "cpu"
        return _Slot(len(tensors) - 1, tuple(value.shape), value.dtype, on_cpu)
    if isinstance(value, dict):
        return {key: _take_tensors(item, tensors) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_take_tensors(item, tensors) for item in value)
    return value


def _slots(value: Any) -> list[_Slot]:
    if isinstance(value, _Slot):
        return [value]
    items = value.values() if isinstance(value, dict) else value
    nested = isinstance(value, (dict, list, tuple))
    return [slot for item in items for slot in _slots(item)] if nested else []


def _put_tensors(value: Any, tensors: list[Any]) -> Any:
    if isinstance(value, _Slot):
        return tensors[value.index]
    if isinstance(value, dict):
        return {key: _put_tensors(item, tensors) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_put_tensors(item, tensors) for item in value)
    return value
