"""Synchronous SGD on as many processes as the lease has bundles: the public trainer."""

from __future__ import annotations

import logging
import secrets
import statistics
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from ..core.slowdown import Signature
from ..errors import CheckpointError, ConfigError
from ..profiling.skew import Skew
from ..profiling.timers import IterationTimer, Timing
from . import rendezvous
from .checkpoint import (
    Memory,
    commit,
    load_checkpoint,
    payload_name,
    save_checkpoint,
    write_payload,
)
from .placement import signature_of
from .rank_actor import write_parts
from .ranks import Parts, Ranks
from .replica import JobSpec
from .saver import Saver
from .storage import Folder, open_folder
from .worker_group import leased_group

_log = logging.getLogger(__name__)


class ElasticTrainer:
    """Trains a model with one process for each bundle of the lease.

    In a Tune trial whose placement group has k bundles, this process is rank 0 and k-1 Ray actors
    in the other bundles are ranks 1 to k-1. Outside a placement group, or with one bundle, this
    process trains alone; Ray need not run. k is fixed for the trainer's life: after a move, a new
    trainer (in the new trial process) restores the checkpoint with the k it finds.

    What does not depend on k: the order of the data, the global batch, and the gradient, which is
    that of the mean loss over the global batch even when the batch does not divide by k. What does:

    * Batch normalisation uses the statistics of each process's part of the batch, as is usual with
      data parallelism; with ``sync_batchnorm`` those of the whole batch (on GPUs). The running
      statistics that are kept are rank 0's. No process then computes on a single example, whose
      variance is zero: it gets at least two or none, and a batch of one is doubled.
    * Random layers (dropout) draw from a stream of each rank.

    With equal k (and machines, versions and ``num_threads``), a run interrupted at a checkpoint
    ends with the same bits as one that was not: on a CPU, with three processes and more if
    ``deterministic``; with ``deterministic`` on GPUs too, as far as their kernels go.

    Args:
        model: A ``torch.nn.Module``, or better a callable that builds one: each process calls it.
        optimizer_fn: Takes the parameters, returns the optimiser, such as
            ``functools.partial(torch.optim.SGD, lr=0.1)``.
        dataset: A map-style data set, or a callable that returns one.
        loss_fn: Takes outputs and targets, returns their mean loss; cross entropy by default. For
            batches other than (inputs, targets) give ``step_fn`` instead.
        global_batch: Examples in one step over all processes.
        step_fn: Takes the model and a batch, returns the mean loss over the batch.
        lr_scheduler_fn: Takes the optimiser, returns a scheduler that is advanced at each step.
        collate_fn: Makes a batch out of a list of examples.
        loader_workers: Processes of each rank that load batches ahead of the training; with 0
            the training loads its own. The examples and their random augmentations do not depend
            on it. Ask for their CPUs in the trial's resources.
        seed: Seeds the weights, the order of the data and the random streams.
        deterministic: Use deterministic kernels and a fixed order of summation; process-wide.
        num_threads: torch threads of each process; by default 1 on a CPU.
        sync_batchnorm: Compute batch statistics over all processes (GPUs only).
        amp: ``bf16`` or ``fp16`` for mixed precision (GPUs only).
        compile: Run the model through ``torch.compile``.
        comm_hook: A DDP communication hook, such as torch's ``fp16_compress_hook``,
            for gradients on their way between processes; plain averaging by default.
        max_processes: Use at most so many bundles.
        start_timeout_s: How long the processes may take to start, in seconds.
        step_timeout_s: How long a step may take before it counts as hung, in seconds.
        pick_port: Returns the port that rank 0 tries to listen on; one that is taken is
            followed by another call. By default the operating system chooses.
        max_restarts: How often the ranks are started again in the same lease after one of them
            died or hung. Training then goes on from the last snapshot in this process's memory,
            which is that of the last :meth:`save`, :meth:`restore` or start. With 0 no memory is
            spent on it, and a lost rank is a WorkerDiedError at once.
        memory: Where to keep checkpoints in this node's memory as well; see
            :func:`~themis_ray.workloads.memory.node_memory`.
    """

    def __init__(
        self,
        model: Any,
        optimizer_fn: Callable[[Iterable[Any]], Any],
        dataset: Any,
        loss_fn: Callable[[Any, Any], Any] | None = None,
        *,
        global_batch: int,
        step_fn: Callable[[Any, Any], Any] | None = None,
        lr_scheduler_fn: Callable[[Any], Any] | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        loader_workers: int = 0,
        seed: int = 0,
        deterministic: bool = False,
        num_threads: int | None = None,
        sync_batchnorm: bool = False,
        amp: str | None = None,
        compile: bool = False,
        comm_hook: Callable[[Any, Any], Any] | None = None,
        max_processes: int | None = None,
        start_timeout_s: float = 180.0,
        step_timeout_s: float = 180.0,
        pick_port: Callable[[], int] = rendezvous.any_free_port,
        max_restarts: int = 3,
        memory: Memory | None = None,
    ) -> None:
        if loss_fn is not None and step_fn is not None:
            raise ConfigError("give loss_fn or step_fn, not both")
        spec = JobSpec(
            model=model,
            optimizer_fn=optimizer_fn,
            dataset=dataset,
            step_fn=step_fn or _StepWithLoss(loss_fn or torch.nn.functional.cross_entropy),
            global_batch=global_batch,
            lr_scheduler_fn=lr_scheduler_fn,
            collate_fn=collate_fn,
            loader_workers=loader_workers,
            seed=seed,
            deterministic=deterministic,
            num_threads=num_threads,
            sync_batchnorm=sync_batchnorm,
            amp=amp,
            compile=compile,
            comm_hook=comm_hook,
        )
        lease = leased_group()
        world = _processes(len(lease.bundle_specs) if lease else 1, global_batch, max_processes)
        self._memory, self._saver = memory, Saver()
        self._ranks = Ranks(
            spec,
            lease,
            world,
            self._saver,
            start_timeout_s=start_timeout_s,
            step_timeout_s=step_timeout_s,
            pick_port=pick_port,
            max_restarts=max_restarts,
        )
        self._replica = self._ranks.replica
        self._placement = signature_of(lease, world)

    @property
    def model(self) -> Any:
        """Rank 0's model, not wrapped."""
        return self._replica.model

    @property
    def optimizer(self) -> Any:
        """Rank 0's optimiser; changed settings reach the other ranks at the start and a restore."""
        return self._replica.optimizer

    @property
    def device(self) -> Any:
        """Where rank 0 computes."""
        return self._replica.device

    @property
    def step(self) -> int:
        """Steps done since the job's start, over all leases."""
        return self._replica.sampler.step

    @property
    def steps_per_epoch(self) -> int:
        """Steps in one pass over the data."""
        return self._replica.sampler.steps_per_epoch

    @property
    def processes(self) -> int:
        """Number of processes, and so of GPUs in use."""
        return self._replica.world

    @property
    def iter_s(self) -> float:
        """Median seconds per step in this process's life, warm-up dropped."""
        return self._replica.timer.seconds

    @property
    def timing(self) -> Timing:
        """Median and spread of the seconds per step in this process's life, warm-up dropped."""
        return self._replica.timer.timing

    def restart_timing(self, window: int = 50) -> None:
        """Forget the steps timed so far, as after a warm-up; the last ``window`` count from now."""
        self._replica.timer = IterationTimer(self.device, warmup=0, window=window)

    @property
    def skew(self) -> Skew:
        """Sizes of the tensors that a step sends, watched on the first steps."""
        return self._replica.skew

    @property
    def placement(self) -> Signature:
        """The processes per machine and how far apart the machines are, as S(G) depends on it."""
        return self._placement

    def run(self, steps: int) -> float:
        """Do some steps.

        Returns:
            The mean over the steps of the loss over the global batch before each step.

        Raises:
            WorkerDiedError: A rank raised an error, or died or hung once more than
                ``max_restarts`` allows. The trainer can only be closed then.
        """
        return statistics.fmean(self.run_losses(steps))

    def run_losses(self, steps: int) -> list[float]:
        """Do some steps and return the loss over the global batch at each; see :meth:`run`."""
        if steps < 1:
            raise ConfigError(f"steps must be at least 1, not {steps}")
        return self._ranks.train(steps)

    def state_dict(self) -> dict[str, Any]:
        """The job's state: model, optimiser, scheduler, position, and each rank's random state."""
        return self._ranks.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state, which may have been saved with another number of processes.

        Raises:
            CheckpointError: The state belongs to another job.
        """
        self._ranks.load_state_dict(state)

    def save(
        self,
        directory: str | Path,
        keep: int = 2,
        *,
        wait: bool = True,
        sharded: bool = False,
        filesystem: Any = None,
    ) -> None:
        """Write a checkpoint.

        Args:
            directory: Folder of the checkpoints: a path, or a URI of pyarrow or fsspec.
            keep: How many whole checkpoints to leave in the folder.
            wait: Return when it is stored. Otherwise return once the state is copied in memory,
                and write while training goes on; see :meth:`flush`.
            sharded: Have each rank write its part. It pays where the storage is faster than one
                process; every node must see ``directory``.
            filesystem: A pyarrow or fsspec file system that ``directory`` is a path in.

        Raises:
            CheckpointError: This one (or, without ``wait``, an earlier one) cannot be written.
        """
        whole = partial(
            save_checkpoint, directory, step=self.step, keep=keep,
            filesystem=filesystem, memory=self._memory,
        )  # fmt: skip
        if wait and not self._ranks.keep_snapshots:
            # One process and nothing to go back to: write it as it is, without a copy.
            self.flush()
            whole(state=self.state_dict())
            return
        state = self._saver.take(self.state_dict())
        write = partial(whole, state=state)
        parts = self._ranks.hold_parts(state, self._saver.slot) if sharded else None
        if parts is not None:
            folder = open_folder(directory, filesystem)
            write = partial(self._write_parts, parts, folder, self.step, keep, write)
        self._saver.write(write)
        if wait:
            self.flush()

    def flush(self) -> None:
        """Wait until every checkpoint is stored.

        Raises:
            CheckpointError: One could not be written.
        """
        self._saver.flush()

    def restore(self, directory: str | Path, *, filesystem: Any = None) -> int:
        """Continue from the newest whole checkpoint of a folder; returns its step."""
        loaded = load_checkpoint(directory, filesystem=filesystem, memory=self._memory)
        self.load_state_dict(loaded.state)
        return loaded.step

    def close(self) -> None:
        """Wait until all checkpoints are stored and end the other ranks. Ends the trainer's use."""
        self._ranks.close("the trainer is closed")

    def __enter__(self) -> ElasticTrainer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _write_parts(
        self, parts: Parts, folder: Folder, step: int, keep: int, whole: Callable[[], Path]
    ) -> Path:
        """Write this rank's part and have the others write theirs, then the manifest."""
        token = secrets.token_hex(4)
        name = payload_name(step, token)
        sums = write_payload(folder, name, parts.mine, self._memory)
        try:
            others = write_parts(parts.holders, parts.slot, folder, step, token)
        except CheckpointError as error:
            _log.warning("%s; rank 0 writes all of it", error)
            return whole()
        return commit(folder, step, {name: sums, **others}, keep)


class _StepWithLoss:
    """The usual step: run the inputs, compare with the targets."""

    def __init__(self, loss_fn: Callable[[Any, Any], Any]) -> None:
        self._loss_fn = loss_fn

    def __call__(self, model: Any, batch: Any) -> Any:
        inputs, targets = batch
        return self._loss_fn(model(inputs), targets)


def _processes(bundles: int, global_batch: int, most: int | None) -> int:
    """More processes than examples in a batch would only wait."""
    if most is not None and most < 1:
        raise ConfigError(f"max_processes must be at least 1, not {most}")
    return max(1, min(bundles, global_batch, most or bundles))
