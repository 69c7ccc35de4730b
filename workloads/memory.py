"""Checkpoints in a node's memory: a trial that comes back to the node needs no disk.

A small actor on the node owns the payloads, in Ray's object store, so that they outlive the trial
that wrote them. It drops the least recently used ones beyond a bound, and ends with the arbiter.
The storage stays the truth: the manifest is read from there, and a payload from memory must have
the length and the checksum that it names.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import OrderedDict
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ..live.client import ACTOR_NAME, NAMESPACE

_log = logging.getLogger(__name__)

SHARE_OF_STORE = 0.25
_ANSWER_S = 10.0
_LOOK_S = 2.0


class Keeper:
    """The actor that owns a node's payloads.

    Args:
        max_bytes: How much it holds at most.
        guardian: The named actor that it ends with.
    """

    def __init__(self, max_bytes: int, guardian: str) -> None:
        self._max_bytes, self._guardian = max_bytes, guardian
        self._held: OrderedDict[str, tuple[Any, int]] = OrderedDict()
        self._myself = ray.get_runtime_context().current_actor
        threading.Thread(target=self._end_with_guardian, daemon=True).start()

    def put(self, name: str, payload: Any) -> None:
        """Keep a payload, an array of bytes; what was used least recently makes room."""
        size = int(payload.nbytes)
        if size > self._max_bytes:
            return
        self._held.pop(name, None)
        while self._held and size + sum(held for _, held in self._held.values()) > self._max_bytes:
            self._held.popitem(last=False)
        # A copy of its own: the writer's goes with the writer.
        self._held[name] = (ray.put(payload), size)

    def get(self, name: str) -> list[Any]:
        """The reference of a payload in a list, which is empty when it is not there."""
        if name not in self._held:
            return []
        self._held.move_to_end(name)
        return [self._held[name][0]]

    def _end_with_guardian(self) -> None:
        while True:
            time.sleep(_LOOK_S)
            try:
                ray.get_actor(self._guardian, namespace=NAMESPACE)
            except ValueError:
                ray.kill(self._myself)
                return
            except RayError as error:
                # The cluster's head may be restarting.
                _log.info("cannot look for %s: %s", self._guardian, error)


class NodeMemory:
    """A node's keeper as a trial uses it; every failure of it is a miss.

    Args:
        keeper: The actor.
    """

    def __init__(self, keeper: Any) -> None:
        self._keeper = keeper

    def put(self, name: str, payload: Any) -> None:
        """Keep the bytes of a payload; returns when the keeper has them.

        The writer may be killed right after this, as at a lease's end, and its objects with it.
        """
        with contextlib.suppress(RayError):
            kept = self._keeper.put.remote(name, np.frombuffer(payload, dtype=np.uint8))
            ray.get(kept, timeout=_ANSWER_S)

    def ready(self, timeout_s: float) -> None:
        """Wait for the keeper's start, which saving does not wait for long."""
        ray.get(self._keeper.__ray_ready__.remote(), timeout=timeout_s)

    def get(self, name: str) -> Any:
        """The bytes of a payload, mapped and not copied; ``None`` when they are not there."""
        try:
            found = ray.get(self._keeper.get.remote(name), timeout=_ANSWER_S)
            return ray.get(found[0], timeout=_ANSWER_S) if found else None
        except RayError as error:
            _log.info("no answer from this node's memory of checkpoints: %s", error)
            return None


def node_memory(max_bytes: int | None = None, guardian: str = ACTOR_NAME) -> NodeMemory | None:
    """The memory of the node that this process runs on; its keeper is started when need be.

    Args:
        max_bytes: How much the node holds at most, if it holds nothing yet; by default a quarter
            of its object store.
        guardian: The named actor that the keeper ends with; the arbiter by default.

    Returns:
        The memory; ``None`` where neither Ray nor the guardian runs.
    """
    if not ray.is_initialized():
        return None
    try:
        ray.get_actor(guardian, namespace=NAMESPACE)
    except ValueError:
        return None
    node = ray.get_runtime_context().get_node_id()
    keeper = (
        ray.remote(Keeper)
        .options(
            name=f"checkpoints-{node}",
            namespace=NAMESPACE,
            get_if_exists=True,
            lifetime="detached",
            num_cpus=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        )
        .remote(max_bytes or _quarter_of_the_store(node), guardian)
    )
    return NodeMemory(keeper)


def _quarter_of_the_store(node_id: str) -> int:
    sizes = {node["NodeID"]: node["Resources"] for node in ray.nodes()}
    return int(SHARE_OF_STORE * float(sizes[node_id].get("object_store_memory", 0.0)))
