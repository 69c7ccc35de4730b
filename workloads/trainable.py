"""An image classifier as a Tune trainable: as a class, and as a function."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from ray import tune

from ..errors import ConfigError
from ..profiling.nvml import Nvml
from ..profiling.sampler import Sampler
from .data import DatasetSpec
from .elastic import ElasticTrainer
from .memory import node_memory
from .models import ModelSpec, has_auxiliary
from .tune_loop import measurements, report_and_save, train_until_report


@dataclass(frozen=True)
class ClassifierConfig:
    """What a trial's ``config`` may hold; everything has a default.

    Attributes:
        model: A torchvision classifier, such as ``vgg16``, ``resnet50`` or ``inception_v3``.
        lr: Learning rate of SGD.
        momentum: Momentum of SGD.
        weight_decay: L2 penalty of SGD.
        global_batch: Examples in one step over all processes.
        steps_per_report: SGD iterations between two reports.
        max_steps: SGD iterations after which the trial is done; ``None`` leaves it to Tune.
        checkpoint_every: Reports between two checkpoints (function trainable only).
        image_size: Side of the images in pixels; by default the least the model can use.
        dataset: ``digits``, ``cifar10`` or ``imagefolder``.
        data_dir: Where ``cifar10`` or ``imagefolder`` lie, on every node.
        num_classes: Outputs of the model; by default the classes of the data set.
        width: Hidden width of the classifier of VGG and AlexNet.
        auxiliary: Train the auxiliary heads of Inception v3 or GoogLeNet too, whose losses are
            part of ``loss`` then; by default where the images are large enough (299 pixels for
            Inception v3).
        loader_workers: Processes of each rank that load images ahead.
        keep_in_memory: Keep checkpoints in the node's memory as well, see
            :func:`~themis_ray.workloads.memory.node_memory`.
        eval_examples: Held-out images that ``accuracy`` is measured on at each report.
        seed: Seeds the weights, the order of the data and the random streams.
        deterministic: See :class:`~themis_ray.workloads.elastic.ElasticTrainer`, like the rest.
    """

    model: str = "resnet50"
    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 0.0
    global_batch: int = 32
    steps_per_report: int = 1
    max_steps: int | None = None
    checkpoint_every: int = 1
    image_size: int | None = None
    dataset: str = "digits"
    data_dir: str | None = None
    num_classes: int | None = None
    width: int | None = None
    auxiliary: bool | None = None
    loader_workers: int = 0
    keep_in_memory: bool = False
    eval_examples: int = 32
    seed: int = 0
    deterministic: bool = False
    num_threads: int | None = None
    sync_batchnorm: bool = False
    amp: str | None = None
    compile: bool = False
    max_processes: int | None = None
    start_timeout_s: float = 180.0
    step_timeout_s: float = 180.0

    def __post_init__(self) -> None:
        for name in ("global_batch", "steps_per_report", "checkpoint_every", "eval_examples"):
            if getattr(self, name) < 1:
                raise ConfigError(f"config[{name!r}] must be at least 1, not {getattr(self, name)}")
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise ConfigError(f"config['lr'] must be a positive number, not {self.lr}")

    @classmethod
    def parse(cls, config: Mapping[str, Any]) -> ClassifierConfig:
        """Read a trial's config.

        Raises:
            ConfigError: A key is unknown or a value cannot be used.
        """
        known = [field.name for field in fields(cls)]
        for key in config:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
                raise ConfigError(
                    f"unknown key {key!r} in the config of an image classifier: {hint}"
                )
        return cls(**config)


class ClassifierJob:
    """The job behind both trainables.

    Args:
        config: The trial's config, see :class:`ClassifierConfig`.
        comm_hook: See :class:`~themis_ray.workloads.elastic.ElasticTrainer`.
    """

    def __init__(
        self, config: Mapping[str, Any], comm_hook: Callable[[Any, Any], Any] | None = None
    ) -> None:
        c = self.config = ClassifierConfig.parse(config)
        # The model's own least size decides, so the data come second.
        size = ModelSpec(c.model, 1, c.image_size).side
        data = DatasetSpec(c.dataset, size, c.data_dir)
        classes = c.num_classes or data.count_classes()
        auxiliary = has_auxiliary(c.model, size) if c.auxiliary is None else c.auxiliary
        model = ModelSpec(c.model, classes, size, c.width, auxiliary)
        self._settings = {"lr": c.lr, "momentum": c.momentum, "weight_decay": c.weight_decay}
        self._checkpoint_step = 0
        self._held_out = _held_out_slice(data, c.eval_examples)
        self.trainer = ElasticTrainer(
            model.build,
            partial(torch.optim.SGD, **self._settings),
            data.load,
            model.loss,
            global_batch=c.global_batch,
            loader_workers=c.loader_workers,
            seed=c.seed,
            deterministic=c.deterministic,
            num_threads=c.num_threads,
            sync_batchnorm=c.sync_batchnorm,
            amp=c.amp,
            compile=c.compile,
            max_processes=c.max_processes,
            start_timeout_s=c.start_timeout_s,
            step_timeout_s=c.step_timeout_s,
            comm_hook=comm_hook,
            memory=node_memory() if c.keep_in_memory else None,
        )
        on_gpu = self.trainer.device.type == "cuda"
        self._sampler = Sampler(Nvml()).start() if on_gpu else None

    @property
    def done(self) -> bool:
        """Whether ``max_steps`` iterations have been done."""
        return self.config.max_steps is not None and self.trainer.step >= self.config.max_steps

    def advance(self) -> dict[str, Any]:
        """Do the iterations up to the next report; fewer if the lease would end before it.

        Returns:
            The report: ``loss``, ``accuracy``, ``train_step`` (iterations done over all leases),
            ``checkpoint_train_step`` (iterations in the last checkpoint), ``themis/iter_s`` and
            ``themis/iter_spread_s`` (seconds per iteration: median and interquartile range),
            ``themis/gpus`` (processes), ``themis/placement`` (processes per machine, as in
            ``2+2/rack``), ``themis/skew`` (the largest tensor's share of the bytes that a step
            sends) and, on a GPU, what NVML tells of this process's GPU in this lease.
        """
        steps = self.config.steps_per_report
        if self.config.max_steps is not None:
            steps = min(steps, self.config.max_steps - self.trainer.step)
        loss = train_until_report(self.trainer, steps) if steps > 0 else float("nan")
        return {
            "loss": loss,
            "accuracy": self._accuracy(),
            "checkpoint_train_step": self._checkpoint_step,
            **measurements(self.trainer),
            **self._usage(),
        }

    def save(self, directory: str | Path) -> None:
        """Write a checkpoint."""
        self.trainer.save(directory, keep=1)
        self._checkpoint_step = self.trainer.step

    def restore(self, directory: str | Path) -> None:
        """Continue from a checkpoint, with this trial's own learning rate and momentum."""
        self._checkpoint_step = self.trainer.restore(directory)
        # A search may have changed them on purpose (population-based training does).
        for group in self.trainer.optimizer.param_groups:
            group.update(self._settings)

    def close(self) -> None:
        """End the other ranks, and the sampling."""
        self.trainer.close()
        if self._sampler is not None:
            self._sampler.stop()

    def _usage(self) -> dict[str, float]:
        """Means and maxima of rank 0's GPU over this process's life, which is one lease."""
        usage = self._sampler.usage() if self._sampler is not None else ()
        return usage[0].metrics() if usage else {}

    def _accuracy(self) -> float:
        """Fraction of the held-out slice that is classified rightly."""
        model, device = self.trainer.model, self.trainer.device
        images, labels = self._held_out
        model.eval()
        with torch.no_grad():
            guesses = model(images.to(device)).argmax(dim=1).cpu()
        return float((guesses == labels).double().mean())

    def __enter__(self) -> ClassifierJob:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class ImageClassifierTrainable(tune.Trainable):  # type: ignore[misc]
    """Trains an image classifier; :class:`ClassifierConfig` says what its config may hold.

    A trial with a placement group of k bundles trains with k processes.
    """

    def setup(self, config: dict[str, Any]) -> None:
        """Build the job."""
        self._job = ClassifierJob(config)

    def step(self) -> dict[str, Any]:
        """Train up to the next report."""
        report = self._job.advance()
        return {**report, tune.result.DONE: True} if self._job.done else report

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write a checkpoint."""
        self._job.save(checkpoint_dir)

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Continue from a checkpoint folder."""
        self._job.restore(checkpoint)

    def cleanup(self) -> None:
        """End the other ranks at once: their GPUs are somebody else's next."""
        # Tune also cleans up when setup failed.
        if hasattr(self, "_job"):
            self._job.close()


def train_image_classifier(config: dict[str, Any]) -> None:
    """Train an image classifier, as a function trainable.

    Args:
        config: See :class:`ClassifierConfig`. Without ``max_steps`` it trains until Tune stops it.
    """
    with ClassifierJob(config) as job:
        start = tune.get_checkpoint()
        if start is not None:
            with start.as_directory() as directory:
                job.restore(directory)
        reports = 0

        def save(directory: str) -> None:
            job.save(directory)
            report["checkpoint_train_step"] = job.trainer.step

        while not job.done:
            report = job.advance()
            reports += 1
            due = job.done or reports % job.config.checkpoint_every == 0
            report_and_save(report, save, due)


def _held_out_slice(data: DatasetSpec, count: int) -> tuple[Any, Any]:
    """The same few test images every time, as one batch."""
    test = data.load("test")
    examples = [test[i] for i in range(min(count, len(test)))]
    images, labels = torch.utils.data.default_collate(examples)
    return images, labels
