"""The process of one rank other than 0: an actor in a bundle of the lease."""

from __future__ import annotations

import os
from typing import Any

import ray
import torch
from ray.exceptions import RayError

from ..errors import CheckpointError
from . import rendezvous
from .checkpoint import Sums, payload_name, write_payload
from .random_state import State
from .replica import JobSpec, Replica
from .snapshot import snapshot, tensors_of
from .storage import Folder


def own_device() -> Any:
    """The GPU that this process was given, else the CPU.

    A Ray worker without a GPU of its own sees every GPU of the machine, and must leave them alone.
    """
    if _gpu_assigned() and torch.cuda.is_available():
        return torch.device("cuda", 0)
    return torch.device("cpu")


def _gpu_assigned() -> bool:
    if not ray.is_initialized():
        return True
    context = ray.get_runtime_context()
    if context.get_actor_id() is None and context.get_task_id() is None:
        return True
    return bool(ray.get_gpu_ids())


class RankActor:
    """The process of one rank other than 0."""

    def __init__(self) -> None:
        self._parts: dict[int, Any] = {}

    def prepare(self, spec: JobSpec, rank: int, world: int) -> tuple[int, str]:
        """Import, build the replica, and say which process on which node this is."""
        self._replica = Replica(spec, rank, world, own_device())
        return os.getpid(), ray.get_runtime_context().get_node_id()

    def join(self, host: str, port: int, start_timeout_s: float, step_timeout_s: float) -> None:
        """Enter the process group."""
        replica = self._replica
        rendezvous.use_interface_of(ray.util.get_node_ip_address())
        store = rendezvous.connect_store(host, port, start_timeout_s)
        rendezvous.join(store, replica.rank, replica.world, replica.device, step_timeout_s)

    def attach(self, random_states: list[State]) -> None:
        """Take rank 0's state, together with all ranks."""
        replica = self._replica
        replica.attach()
        mine = random_states[replica.rank] if replica.rank < len(random_states) else None
        replica.continue_streams(mine)

    def train(self, steps: int) -> tuple[list[float], State]:
        """Do some steps, together with all ranks; return losses and the new random state."""
        losses = self._replica.train(steps)
        return losses, self._replica.streams.state

    def hold_part(self, slot: int) -> None:
        """Copy this rank's part of the state into the CPU's memory, before training goes on."""
        replica = self._replica
        tensors = dict(tensors_of(replica.state_dict()))
        mine = [[list(path), tensors[path]] for path in replica.shards()[replica.rank]]
        self._parts[slot] = snapshot(mine, self._parts.get(slot))

    @ray.method(concurrency_group="checkpoint")  # type: ignore[untyped-decorator]  # ray is untyped
    def write_part(self, slot: int, folder: Folder, name: str) -> Sums:
        """Write a part that is held, beside the training; returns its length and CRC-32."""
        return write_payload(folder, name, self._parts[slot])


def write_parts(
    holders: dict[int, Any], slot: int, folder: Folder, step: int, token: str
) -> dict[str, Sums]:
    """Have ranks write the parts that they hold.

    Args:
        holders: What :meth:`WorkerGroup.hold_parts` returned.
        slot: What it was given.
        folder: Where to write.
        step: Training steps in the checkpoint.
        token: Tells this save from others of the step.

    Returns:
        Each payload's length and CRC-32.

    Raises:
        CheckpointError: A part was not written.
    """
    names = {rank: payload_name(step, token, rank) for rank in holders}
    refs = [actor.write_part.remote(slot, folder, names[rank]) for rank, actor in holders.items()]
    try:
        sums = ray.get(refs)
    except RayError as error:
        raise CheckpointError(f"a rank did not write its part of step {step}: {error}") from error
    return dict(zip(names.values(), sums, strict=True))
