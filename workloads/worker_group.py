"""Ranks 1 to k-1: Ray actors in the other bundles of the lease, and the watch over them.

A rank that dies or hangs leaves the others waiting in a collective operation, for ever by default.
Here a thread of rank 0 watches the calls that the other ranks are in. When one fails, or when
nothing moves for too long, it kills all of them and breaks off rank 0's own operation, so that the
step ends with a WorkerDiedError instead of a hang.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray
import torch.distributed as dist
from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

from ..errors import WorkerDiedError
from . import rendezvous
from .rank_actor import RankActor
from .replica import JobSpec

_POLL_S = 0.25
_CONFIRM_S = 5.0
"""How long to wait for Ray to say which rank died once a connection broke, in seconds."""


def leased_group() -> PlacementGroup | None:
    """The placement group this process runs in, if any. Never starts Ray."""
    if not ray.is_initialized():
        return None
    return ray.util.get_current_placement_group()


@dataclass(frozen=True)
class _Failure:
    """How a rank failed, and whether by loss of its process (or hang) rather than by an error."""

    reason: str
    by_loss: bool


@dataclass
class _Worker:
    """A rank as rank 0 knows it; ``pid`` is 0 until it has answered."""

    rank: int
    actor: Any
    ready: Any
    pid: int = 0
    node_id: str = ""

    def kill(self, hard: bool) -> None:
        """End the process, without waiting for its death."""
        if not ray.is_initialized():
            return
        with contextlib.suppress(RayError, ValueError):
            ray.kill(self.actor, no_restart=True)
        # Ray asks the process first, and a stopped or hung one does not answer. A healthy one is
        # left to Ray, which otherwise warns the user of a worker that crashed.
        if hard and self.pid:
            if self.node_id == ray.get_runtime_context().get_node_id():
                _kill_process(self.pid)
            else:
                _kill_on(self.node_id, self.pid)
        self.pid = 0


def _kill_process(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _kill_on(node_id: str, pid: int) -> None:
    """End a process of another node, outside the lease's bundles; does not wait."""
    there = NodeAffinitySchedulingStrategy(node_id, soft=False)
    with contextlib.suppress(RayError, ValueError):
        kill = ray.remote(num_cpus=0, max_retries=0)(_kill_process)
        kill.options(scheduling_strategy=there).remote(pid)


class WorkerGroup:
    """The other ranks, seen from rank 0.

    Args:
        spec: The job.
        lease: The placement group whose bundles 1 to ``world - 1`` hold the ranks.
        world: Number of processes, rank 0 included.
        start_timeout_s: How long the processes may take to start and find each other, in seconds.
        step_timeout_s: How long a step may take before it counts as hung, in seconds.

    Attributes:
        worth_a_restart: After a WorkerDiedError: whether a process was lost or hung, rather than
            having raised an error that it would raise again.
    """

    def __init__(
        self,
        spec: JobSpec,
        lease: PlacementGroup,
        world: int,
        *,
        start_timeout_s: float,
        step_timeout_s: float,
    ) -> None:
        self.world = world
        self.worth_a_restart = False
        self.start_timeout_s, self._step_timeout_s = start_timeout_s, step_timeout_s
        shipped = ray.put(spec)
        bundles = lease.bundle_specs
        self._workers = [
            _start_worker(shipped, lease, bundles[rank], rank, world) for rank in range(1, world)
        ]

    def form(self, device: Any, pick_port: Callable[[], int]) -> None:
        """Wait for the processes and make them a process group, with this one as rank 0."""
        answers = self._collect([w.ready for w in self._workers], self.start_timeout_s, "start")
        for worker, (pid, node_id) in zip(self._workers, answers, strict=True):
            worker.pid, worker.node_id = pid, node_id
        start_s, step_s = self.start_timeout_s, self._step_timeout_s
        host = ray.util.get_node_ip_address()
        rendezvous.use_interface_of(host)
        self._store = rendezvous.open_store(host, pick_port, start_s)

        def join_here(beat: Callable[[], None]) -> None:
            # Longer than the watch's limit, so that a hang is named by the watch, not by gloo.
            rendezvous.join(self._store, 0, self.world, device, 2 * step_s)

        arguments = (host, self._store.port, start_s, 2 * step_s)
        self.alongside("join", arguments, join_here, limit_s=start_s)

    def alongside(
        self,
        method: str,
        arguments: tuple[Any, ...],
        local: Callable[[Callable[[], None]], Any],
        limit_s: float | None = None,
    ) -> tuple[Any, list[Any]]:
        """Run a method on the other ranks while this process runs ``local``.

        Args:
            method: Method of :class:`RankActor`.
            arguments: Its arguments.
            local: Rank 0's part; calls its argument whenever it has got on.
            limit_s: Longest silence in seconds; the step timeout by default.

        Returns:
            What ``local`` returned, and what the other ranks returned, by rank.

        Raises:
            WorkerDiedError: A rank died, failed or hung. All the other ranks are dead by now.
        """
        limit = limit_s or self._step_timeout_s
        refs = [getattr(worker.actor, method).remote(*arguments) for worker in self._workers]
        watch = _Watch(refs, limit, self._break_off)
        watch.start()
        try:
            mine = local(watch.beat)
        except BaseException as error:
            failure = _why_broken(error, watch.failure, refs)
            self.close(hard=True)
            if failure is None:
                raise
            raise self._died(failure) from error
        finally:
            watch.end()
        return mine, self._collect(refs, limit, method)

    def close(self, hard: bool = False) -> None:
        """End every process of the group but this one, and leave the group. Does not wait.

        Args:
            hard: The processes may hang, so do not rely on their help.
        """
        for worker in self._workers:
            worker.kill(hard)
        self._workers = []
        rendezvous.leave()

    def _collect(self, refs: list[Any], limit_s: float, doing: str) -> list[Any]:
        try:
            answers: list[Any] = ray.get(refs, timeout=limit_s)
        except GetTimeoutError as error:
            self.close(hard=True)
            reason = f"a rank did not finish its {doing} within {limit_s:g} s"
            # A start that takes too long has no resources: its node is gone.
            raise self._died(_Failure(reason, doing != "start")) from error
        except RayError as error:
            failure = _failure(refs) or _Failure(str(error), True)
            self.close(hard=True)
            raise self._died(failure) from error
        return answers

    def _died(self, failure: _Failure) -> WorkerDiedError:
        self.worth_a_restart = failure.by_loss
        return WorkerDiedError(
            f"{failure.reason}, so the step was broken off and all ranks but 0 were ended; "
            "continue from the last checkpoint"
        )

    def hold_parts(self, slot: int) -> dict[int, Any]:
        """Have every rank copy its part of the state, see :meth:`RankActor.hold_part`.

        Returns:
            The actor of each rank, for :func:`write_parts`.
        """
        refs = [worker.actor.hold_part.remote(slot) for worker in self._workers]
        self._collect(refs, self._step_timeout_s, "copy of the state")
        return {worker.rank: worker.actor for worker in self._workers}

    def _break_off(self) -> None:
        """Called by the watch's thread while this process may be blocked in a collective."""
        for worker in self._workers:
            worker.kill(hard=True)
        rendezvous.abort()


class _Watch(threading.Thread):
    """Watches over calls in flight and over rank 0's own progress."""

    def __init__(self, refs: list[Any], limit_s: float, break_off: Callable[[], None]) -> None:
        super().__init__(name="themis-rank-watch", daemon=True)
        self.failure: _Failure | None = None
        self._refs, self._limit_s, self._break_off = refs, limit_s, break_off
        self._ended = threading.Event()
        self._last = time.monotonic()

    def beat(self) -> None:
        self._last = time.monotonic()

    def end(self) -> None:
        self._ended.set()

    def run(self) -> None:
        pending = list(self._refs)
        while not self._ended.is_set():
            if pending:
                _, pending = ray.wait(pending, num_returns=len(pending), timeout=_POLL_S)
            else:
                self._ended.wait(_POLL_S)
            failure = _failure(self._refs)
            if failure is None and time.monotonic() - self._last > self._limit_s:
                failure = _Failure(f"no step was finished within {self._limit_s:g} s", True)
            if failure is not None and not self._ended.is_set():
                self.failure = failure
                self._break_off()
                return


def _start_worker(
    shipped: Any, lease: PlacementGroup, bundle: dict[str, float], rank: int, world: int
) -> _Worker:
    """Start the process of a rank in its bundle, all of whose resources are its own."""
    resources = dict(bundle)
    options: dict[str, Any] = {
        "num_cpus": resources.pop("CPU", 0),
        "num_gpus": resources.pop("GPU", 0),
        "memory": resources.pop("memory", None),
        "resources": resources,
        "max_restarts": 0,
        "scheduling_strategy": PlacementGroupSchedulingStrategy(
            placement_group=lease, placement_group_bundle_index=rank
        ),
    }
    actor = ray.remote(concurrency_groups={"checkpoint": 1})(RankActor).options(**options).remote()
    return _Worker(rank, actor, actor.prepare.remote(shipped, rank, world))


def _failure(refs: list[Any]) -> _Failure | None:
    """Say which of the calls has failed so far and how; ``None`` if none has."""
    done, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
    raised = None
    for ref in done:
        rank = refs.index(ref) + 1
        try:
            ray.get(ref)
        except RayActorError:
            return _Failure(f"the process of rank {rank} died", True)
        except RayTaskError as error:
            # Another rank may have died, which this one felt first.
            lost = _is_communication(error.cause)
            raised = raised or _Failure(f"rank {rank} raised {error.cause!r}", lost)
        except RayError as error:
            return _Failure(f"rank {rank} was lost: {error}", True)
    return raised


def _why_broken(error: BaseException, watched: _Failure | None, refs: list[Any]) -> _Failure | None:
    """Why rank 0's part failed, if the other ranks are the reason; ``None`` for its own error."""
    if not isinstance(error, (RuntimeError, RayError)):
        return None
    if watched is not None:
        return watched
    if not _is_communication(error):
        return None
    # A broken connection is noticed before Ray knows of the death: ask for a while.
    deadline = time.monotonic() + _CONFIRM_S
    while time.monotonic() < deadline:
        failure = _failure(refs)
        if failure is not None:
            return failure
        ray.wait(refs, num_returns=len(refs), timeout=_POLL_S)
    return _Failure(f"contact with the other ranks was lost: {error}", True)


def _is_communication(error: Any) -> bool:
    if isinstance(error, (dist.DistError, RayError)):
        return True
    text = str(error).lower()
    return any(word in text for word in ("gloo", "nccl", "connection"))
