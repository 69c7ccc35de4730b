"""One process's copy of a job: model, optimiser, its part of each batch, and the step itself."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from ..errors import CheckpointError, ConfigError
from ..profiling.skew import ExchangeWatch, Skew, of_parameters
from ..profiling.timers import IterationTimer
from . import random_state, rendezvous
from .loader import Loader
from .random_state import RandomStreams
from .sampler import ElasticSampler
from .snapshot import Path, deal, tensors_of

_WORTH_A_SHARD_BYTES = 1 << 10

AMP_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class JobSpec:
    """All that a process needs to build its replica; shipped to the other ranks by Ray.

    Attributes:
        model: A ``torch.nn.Module``, or a callable that builds one.
        optimizer_fn: Takes the parameters, returns the optimiser.
        dataset: A map-style data set, or a callable that returns one.
        step_fn: Takes the model and a batch, returns the mean loss over the batch.
        global_batch: Examples in one step over all processes.
        lr_scheduler_fn: Takes the optimiser, returns a scheduler that is advanced at every step.
        collate_fn: Makes a batch out of a list of examples.
        loader_workers: Processes of each rank that load batches ahead; 0 for none.
        seed: Seeds the weights, the order of the data and the random streams.
        deterministic: Use deterministic kernels and a fixed order of summation, even if slower.
        num_threads: torch threads of each process; ``None`` means 1 on a CPU.
        sync_batchnorm: Compute batch statistics over all GPUs (GPUs only).
        amp: ``bf16`` or ``fp16`` for mixed precision (GPUs only), ``None`` for full precision.
        compile: Run the model through ``torch.compile``.
        comm_hook: A DDP communication hook for the gradients; ``None`` averages them.
    """

    model: Any
    optimizer_fn: Callable[[Iterable[Any]], Any]
    dataset: Any
    step_fn: Callable[[Any, Any], Any]
    global_batch: int
    lr_scheduler_fn: Callable[[Any], Any] | None = None
    collate_fn: Callable[[list[Any]], Any] | None = None
    loader_workers: int = 0
    seed: int = 0
    deterministic: bool = False
    num_threads: int | None = None
    sync_batchnorm: bool = False
    amp: str | None = None
    compile: bool = False
    comm_hook: Callable[[Any, Any], Any] | None = None

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ConfigError(f"seed must be 0 or greater, not {self.seed}")
        if self.amp is not None and self.amp not in AMP_TYPES:
            raise ConfigError(f"amp must be None, 'bf16' or 'fp16', not {self.amp!r}")
        if self.loader_workers < 0:
            raise ConfigError(f"loader_workers must be 0 or greater, not {self.loader_workers}")
        if self.num_threads is not None and self.num_threads < 1:
            raise ConfigError(f"num_threads must be at least 1, not {self.num_threads}")


class Replica:
    """A rank of a job.

    Args:
        spec: The job.
        rank: This process, 0 to ``world - 1``. Rank 0's state is the job's state.
        world: Number of processes.
        device: Where to compute.
    """

    def __init__(self, spec: JobSpec, rank: int, world: int, device: Any) -> None:
        _configure_process(spec, device)
        self.spec, self.rank, self.world, self.device = spec, rank, world, device
        self.streams = RandomStreams(spec.seed, rank)
        with self.streams.active():
            self.model = _build_model(spec, device)
            self.optimizer = spec.optimizer_fn(self.model.parameters())
        make_scheduler = spec.lr_scheduler_fn
        self.scheduler = make_scheduler(self.optimizer) if make_scheduler else None
        on_gpu = device.type == "cuda"
        self._amp = AMP_TYPES[spec.amp] if spec.amp and on_gpu else None
        self._scaler = self._new_scaler()
        dataset = _load(spec.dataset)
        self.sampler = ElasticSampler(len(dataset), spec.global_batch, spec.seed)
        self._loader = Loader(
            dataset,
            spec.collate_fn or torch.utils.data.default_collate,
            self.sampler,
            rank,
            world,
            smallest=2 if _has_local_batch_norm(self.model) else 1,
            workers=spec.loader_workers,
            pin=on_gpu,
        )
        self.timer = IterationTimer(device)
        self._watch = ExchangeWatch(spec.comm_hook)
        self._runner = self._bare_runner()

    def _bare_runner(self) -> Any:
        return torch.compile(self.model) if self.spec.compile else self.model

    def _new_scaler(self) -> Any:
        return torch.amp.GradScaler(self.device.type, enabled=self._amp is torch.float16)

    def detach(self) -> None:
        """Forget a process group that broke; the state is whatever it was broken in."""
        self._runner = self._bare_runner()
        self._scaler = self._new_scaler()
        self.optimizer.zero_grad(set_to_none=True)
        # The old wrapper's hooks on the gradients go with it, and it is in a reference cycle.
        gc.collect()

    def close(self) -> None:
        """End the processes that load data."""
        self._loader.close()

    def attach(self) -> None:
        """Take rank 0's weights and optimiser state; every rank calls this at once."""
        if isinstance(self._runner, DistributedDataParallel):
            rendezvous.broadcast_tensors(self.model.state_dict().values())
        else:
            self._runner = self._wrap()
        shared = rendezvous.broadcast(self._progress() if self.rank == 0 else None, self.device)
        if self.rank != 0:
            self._load_progress(shared)

    def _wrap(self) -> Any:
        """Make the model exchange gradients; takes over rank 0's weights."""
        wrapped = DistributedDataParallel(
            self._runner,
            device_ids=[self.device] if self.device.type == "cuda" else None,
            # Without this, DDP regroups its buckets after the first step, and with three ranks and
            # more the order in which numbers are added changes: a resumed run would differ
            # from an uninterrupted one in the last bits.
            find_unused_parameters=self.spec.deterministic and self.world > 2,
        )
        wrapped.register_comm_hook(None, self._watch.hook())
        return wrapped

    @property
    def skew(self) -> Skew:
        """Sizes of the gradients as seen on their way; of the parameters before that."""
        return self._watch.skew or of_parameters(self.model.parameters())

    def train(self, steps: int, beat: Callable[[], None] = lambda: None) -> list[float]:
        """Do some steps.

        Args:
            steps: How many.
            beat: Called after each step; shows whoever watches that this rank is alive.

        Returns:
            This rank's weighted loss at each step; summed over the ranks, the mean loss
            over the global batch before the step.
        """
        self._runner.train()
        losses: list[Any] = []
        with self.streams.active():
            for _ in range(steps):
                self.timer.start()
                losses.append(self._step())
                self.timer.stop()
                beat()
        # Only now: reading a number waits for the GPU.
        return [float(loss) for loss in losses]

    def _step(self) -> Any:
        loaded, weight = self._loader.batch(self.sampler.step)
        batch = _to(loaded, self.device)
        self.optimizer.zero_grad(set_to_none=True)
        with self._precision():
            loss = self.spec.step_fn(self._runner, batch)
        # DDP averages over ranks; the factor turns that into the mean over the global batch.
        self._scaler.scale(loss * (weight * self.world)).backward()
        self._scaler.step(self.optimizer)
        self._scaler.update()
        if self.scheduler is not None:
            self.scheduler.step()
        self.sampler.step += 1
        return loss.detach() * weight

    def _precision(self) -> Any:
        if self._amp is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self._amp)

    def _progress(self) -> dict[str, Any]:
        """What the optimiser side of a job consists of."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict() if self.scheduler else None,
            "scaler": self._scaler.state_dict(),
            "sampler": self.sampler.state_dict(),
        }

    def _load_progress(self, state: Mapping[str, Any]) -> None:
        self.sampler.load_state_dict(state["sampler"])
        self.optimizer.load_state_dict(state["optimizer"])
        if (state["scheduler"] is None) != (self.scheduler is None):
            raise CheckpointError("the checkpoint and the job differ in having an lr_scheduler_fn")
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        if self._scaler.is_enabled() and state["scaler"]:
            self._scaler.load_state_dict(state["scaler"])

    def state_dict(self) -> dict[str, Any]:
        """Model, optimiser, scheduler, scaler and position (not the random states)."""
        return {"model": self.model.state_dict(), **self._progress()}

    def shards(self) -> list[list[Path]]:
        """Which tensors of the state each rank writes, when each writes its part.

        All ranks hold equal parameters and optimiser states. Buffers may differ, and rank 0's are
        the job's: they stay in its part, like everything small.
        """
        equal = {name for name, _ in self.model.named_parameters()}
        sizes = {
            path: tensor.nbytes
            for path, tensor in tensors_of(self.state_dict())
            if tensor.nbytes >= _WORTH_A_SHARD_BYTES
            and (path[0] == "optimizer" or (path[0] == "model" and path[1] in equal))
        }
        return deal(sizes, self.world)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state.

        Raises:
            CheckpointError: The state belongs to another model, optimiser or data order.
        """
        try:
            self._load_progress(state)
            self.model.load_state_dict(state["model"])
        except (KeyError, RuntimeError, ValueError) as error:
            raise CheckpointError(f"the checkpoint is not one of this job: {error}") from error

    def continue_streams(self, saved: Mapping[str, Any] | None) -> None:
        """Take up saved random streams, or fresh ones for a rank that did not exist before."""
        step = self.sampler.step
        fresh = None if saved else random_state.seeded(self.spec.seed, self.rank, step)
        self.streams.state = dict(saved or fresh or {})


def _configure_process(spec: JobSpec, device: Any) -> None:
    if device.type == "cuda":
        torch.cuda.set_device(device)
        # Before the random streams are seeded: they include the GPU's only from here on.
        torch.cuda.init()
    # Ray's word on a GPU's process; one that started warm read the variable before Ray set it.
    given = os.environ.get("OMP_NUM_THREADS", "")
    default = 1 if device.type == "cpu" else int(given) if given.isdigit() else None
    threads = spec.num_threads or default
    if threads is not None:
        # Otherwise each of several processes on a machine starts a thread for every core.
        torch.set_num_threads(threads)
    if spec.deterministic:
        # cuBLAS reads this when it is first used.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.backends.cudnn.benchmark = False
        # Some layers (VGG's adaptive pooling) have no deterministic CUDA kernel at all.
        torch.use_deterministic_algorithms(True, warn_only=device.type == "cuda")


def _build_model(spec: JobSpec, device: Any) -> Any:
    model = spec.model if isinstance(spec.model, torch.nn.Module) else spec.model()
    if spec.sync_batchnorm and device.type == "cuda":
        model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
    return model.to(device)


def _has_local_batch_norm(model: Any) -> bool:
    """Whether a layer needs statistics over this process's part of the batch."""
    kinds, shared = torch.nn.modules.batchnorm._BatchNorm, torch.nn.SyncBatchNorm
    return any(isinstance(m, kinds) and not isinstance(m, shared) for m in model.modules())


def _load(dataset: Any) -> Any:
    """The map-style data set that a job was given, or was given a factory of.

    Raises:
        ConfigError: It is of another kind.
    """
    is_factory = isinstance(dataset, type) or not hasattr(dataset, "__getitem__")
    loaded = dataset() if is_factory else dataset
    indexed = hasattr(loaded, "__len__") and hasattr(loaded, "__getitem__")
    if not indexed or isinstance(loaded, torch.utils.data.IterableDataset):
        raise ConfigError(
            f"the data set is a {type(loaded).__name__}, which has no length or cannot be indexed: "
            "give a map-style one (__len__ and __getitem__), whose order can be the same for "
            "any number of processes"
        )
    return loaded


def _to(batch: Any, device: Any) -> Any:
    """Move the tensors of a nested batch to a device."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {key: _to(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_to(value, device) for value in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(_to(value, device) for value in batch)
    # Batches with a class of their own, such as graphs, know how to move.
    return batch.to(device) if hasattr(batch, "to") else batch
