"""Real PyTorch jobs, and the elastic trainer they are built on.

A loop of one's own becomes a trial that moves between leases in five lines::

    def train(config):
        optimizer = partial(torch.optim.SGD, lr=config["lr"])
        with ElasticTrainer(make_model, optimizer, dataset, step_fn=loss_of, global_batch=64) as t:
            run_trial(t, steps_per_report=100, max_steps=10_000)

Inside a Tune trial whose placement group has k bundles, the trainer runs k processes; anywhere else
it runs one. The global batch, the order of the data and the gradient do not depend on k.

PyTorch is an optional dependency (``pip install 'themis_ray[workloads]'``) and takes seconds to
import, so the names below load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtraError

if TYPE_CHECKING:
    from .checkpoint import load_checkpoint, save_checkpoint
    from .data import DatasetSpec
    from .elastic import ElasticTrainer
    from .memory import node_memory
    from .models import ModelSpec
    from .sampler import ElasticSampler
    from .trainable import ImageClassifierTrainable, train_image_classifier
    from .tune_loop import run_trial
    from .warm_start import warm_runtime_env

_HOME = {
    "DatasetSpec": "data",
    "ElasticSampler": "sampler",
    "ElasticTrainer": "elastic",
    "ImageClassifierTrainable": "trainable",
    "ModelSpec": "models",
    "load_checkpoint": "checkpoint",
    "node_memory": "memory",
    "run_trial": "tune_loop",
    "save_checkpoint": "checkpoint",
    "train_image_classifier": "trainable",
    "warm_runtime_env": "warm_start",
}

# What a module of this package may fail to import, by the name a user would install.
_EXTRA_PACKAGES = ("torch", "torchvision", "sklearn", "PIL")

__all__ = [
    "DatasetSpec",
    "ElasticSampler",
    "ElasticTrainer",
    "ImageClassifierTrainable",
    "ModelSpec",
    "load_checkpoint",
    "node_memory",
    "run_trial",
    "save_checkpoint",
    "train_image_classifier",
    "warm_runtime_env",
]


def __getattr__(name: str) -> Any:
    """Load a public name on first use (PEP 562)."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(import_module(f".{home}", __name__), name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in _EXTRA_PACKAGES:
            raise MissingExtraError(package, "workloads") from error
        raise
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
