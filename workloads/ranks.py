"""All ranks of a job as one: started, formed when first needed, started again after a loss."""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ray.util.placement_group import PlacementGroup

from ..errors import CheckpointError, ConfigError, WorkerDiedError
from .random_state import State
from .rank_actor import own_device
from .replica import JobSpec, Replica
from .saver import Saver
from .snapshot import without
from .worker_group import WorkerGroup

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Parts:
    """A snapshot of which each rank holds its part.

    Attributes:
        mine: Rank 0's part, with ``None`` for the tensors of the others.
        slot: Where the others hold theirs.
        holders: The actor of each other rank.
    """

    mine: Any
    slot: int
    holders: dict[int, Any]


class Ranks:
    """Rank 0's replica in this process, and the other ranks in the other bundles of the lease.

    A rank that is lost is started again in the same lease, from the newest snapshot of ``saver``,
    as often as ``max_restarts`` allows. Any other error leaves the ranks at different steps: they
    cannot be used after it, see :meth:`check`.

    Args:
        spec: The job.
        lease: The placement group whose first ``world`` bundles hold the ranks.
        world: Number of processes, this one included. With 1, Ray need not run.
        saver: Has the snapshots of the job, and the writes of them that are under way.
        start_timeout_s: How long the processes may take to start, in seconds.
        step_timeout_s: How long a step may take before it counts as hung, in seconds.
        pick_port: Returns the port that rank 0 tries to listen on.
        max_restarts: How often the other ranks are started again.

    Attributes:
        replica: Rank 0's.
        world: Number of processes.
    """

    def __init__(
        self,
        spec: JobSpec,
        lease: PlacementGroup | None,
        world: int,
        saver: Saver,
        *,
        start_timeout_s: float,
        step_timeout_s: float,
        pick_port: Callable[[], int],
        max_restarts: int,
    ) -> None:
        if max_restarts < 0:
            raise ConfigError(f"max_restarts must be 0 or greater, not {max_restarts}")
        self.world = world
        self._saver, self._pick_port = saver, pick_port
        self._restarts_left = self._max_restarts = max_restarts
        self._broken: str | None = None
        self._group: WorkerGroup | None = None
        self._formed = self._attached = False
        self._random_states: list[State] = []
        if lease is not None and world > 1:
            self._start_group = partial(
                WorkerGroup, spec, lease, world,
                start_timeout_s=start_timeout_s, step_timeout_s=step_timeout_s,
            )  # fmt: skip
            # Started first: they import torch while this process builds its model.
            self._group = self._start_group()
        self.replica: Replica
        try:
            self.replica = Replica(spec, 0, world, own_device())
        except BaseException:
            self.close("it could not be built")
            raise

    def check(self) -> None:
        """Whether the ranks can be used.

        Raises:
            WorkerDiedError: They cannot, since an error or :meth:`close`.
        """
        if self._broken is not None:
            raise WorkerDiedError(
                f"this trainer cannot go on ({self._broken}): make a new one and restore "
                "the last checkpoint"
            )

    def train(self, steps: int) -> list[float]:
        """Do some steps with all ranks; returns the loss over the global batch at each.

        Raises:
            WorkerDiedError: A rank raised an error, or one was lost for good.
        """
        self.check()
        if self._group is None:
            return self.replica.train(steps)
        target = self.replica.sampler.step + steps
        while True:
            try:
                # After a restart these are more steps than were asked for: some are done again.
                return self._train_together(target - self.replica.sampler.step)[-steps:]
            except WorkerDiedError as error:
                reason = str(error)
            # Outside the handler: the error's traceback keeps the broken group's objects alive.
            self._restart(reason)

    def state_dict(self) -> dict[str, Any]:
        """The job's state: model, optimiser, scheduler, position, and each rank's random state."""
        self.check()
        states = [self.replica.streams.state, *self._random_states]
        return {**self.replica.state_dict(), "random": states}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state, which may have been saved with another number of processes.

        Raises:
            CheckpointError: The state belongs to another job.
        """
        self.check()
        self._take_up(state)
        # Of another history: not what a restart may go back to.
        self._saver.newest = None

    @property
    def keep_snapshots(self) -> bool:
        """Whether a state to go back to is kept in memory."""
        return self._group is not None and self._max_restarts > 0

    def hold_parts(self, state: Mapping[str, Any], slot: int) -> Parts | None:
        """Have each rank keep a copy of its part of the state, to be written beside the training.

        Args:
            state: A snapshot of the state as it is now.
            slot: Where to keep the copies; those that are there already are overwritten.

        Returns:
            The parts; ``None`` when the other ranks have no state yet.
        """
        if self._group is None or not self._attached:
            return None
        holders = self._group.hold_parts(slot)
        theirs = frozenset(path for part in self.replica.shards()[1:] for path in part)
        return Parts(without(state, theirs), slot, holders)

    def close(self, reason: str) -> None:
        """Wait until all snapshots are written, and end the other ranks.

        Args:
            reason: Why the ranks cannot be used from now on.
        """
        self._broken = self._broken or reason
        try:
            self._saver.close()
        except CheckpointError as error:
            _log.warning("%s", error)
        if self._group is not None:
            self._group.close()
            self._group = None
        # Not there yet when it could not be built.
        if hasattr(self, "replica"):
            self.replica.close()

    def _take_up(self, state: Mapping[str, Any]) -> None:
        self.replica.load_state_dict(state)
        if "random" not in state:
            raise CheckpointError("the checkpoint is not one of this job: it has no random states")
        saved = list(state["random"])
        self.replica.continue_streams(saved[0])
        self._random_states = saved[1 : self.world]
        self._attached = False

    def _train_together(self, steps: int) -> list[float]:
        self._connect()
        mine, others = self._together("train", (steps,), lambda b: self.replica.train(steps, b))
        self._random_states = [state for _, state in others]
        parts = [mine, *(losses for losses, _ in others)]
        return [sum(step) for step in zip(*parts, strict=True)]

    def _connect(self) -> None:
        """Form the process group at the first step; give the ranks a restored state."""
        assert self._group is not None
        if not self._formed:
            with self._giving_up_on_error():
                self._group.form(self.replica.device, self._pick_port)
            self._formed = True
        if not self._attached:
            states = [self.replica.streams.state, *self._random_states]
            limit_s = self._group.start_timeout_s
            self._together("attach", (states,), lambda _: self.replica.attach(), limit_s)
            self._attached = True
            if self.keep_snapshots and self._saver.newest is None:
                self._saver.take(self.state_dict())

    def _restart(self, reason: str) -> None:
        """Start the ranks again in the same lease, from the newest snapshot."""
        assert self._group is not None
        if not self._group.worth_a_restart or self._restarts_left == 0:
            before = self._max_restarts - self._restarts_left
            text = f"{reason} ({before} restarts before)" if before else reason
            self.close(text)
            raise WorkerDiedError(text)
        self._restarts_left -= 1
        self._formed = self._attached = False
        self.replica.detach()
        newest = self._saver.newest
        if newest is not None:
            # A copy: optimisers go on in the tensors that they are given.
            self._take_up(copy.deepcopy(newest))
        _log.warning(
            "%s: starting the ranks again in the same lease, from step %d (%d restarts left)",
            reason, self.replica.sampler.step, self._restarts_left,
        )  # fmt: skip
        self._group = self._start_group()

    def _together(
        self,
        method: str,
        arguments: tuple[Any, ...],
        local: Callable[[Callable[[], None]], Any],
        limit_s: float | None = None,
    ) -> tuple[Any, list[Any]]:
        assert self._group is not None
        # On an error the ranks may have stopped at different steps.
        with self._giving_up_on_error():
            return self._group.alongside(method, arguments, local, limit_s)

    @contextlib.contextmanager
    def _giving_up_on_error(self) -> Iterator[None]:
        """Only a lost rank leaves something to go on with; see :meth:`_restart`."""
        try:
            yield
        except WorkerDiedError:
            raise
        except BaseException as error:
            self.close(str(error) or type(error).__name__)
            raise
