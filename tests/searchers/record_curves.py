"""Records the learning curves in ``data/curves.json``: real trainings, by ``themis_ray.workloads``.

::

    python tests/searchers/record_curves.py            # about ten minutes on one core

Five random searches on scikit-learn's digits, as a user would run them: learning rate, momentum,
batch, width and weight decay are drawn at random, bad choices included. Each run is trained to its
end and reports at every epoch the training loss and the loss and the accuracy on held-out images.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from themis_ray.workloads import DatasetSpec, ElasticTrainer, ModelSpec

DATA = Path(__file__).resolve().parent / "data" / "curves.json"
DIGITS = 5  # significant digits kept


@dataclass(frozen=True)
class Search:
    """One random search.

    Attributes:
        name: Its name in the file.
        kind: ``mlp``, ``cnn``, or a torchvision model.
        trials: Configurations drawn.
        epochs: Reports of each run.
        examples: Training images used: few of them make a task that is learnt slowly.
        noise: The share of training labels that are drawn at random.
        side: Image side in pixels.
    """

    name: str
    kind: str
    trials: int
    epochs: int
    examples: int
    noise: float = 0.0
    side: int = 8


SEARCHES = (
    Search("mlp", "mlp", 12, 60, 1000),
    Search("mlp-noisy-labels", "mlp", 12, 60, 800, noise=0.25),
    Search("cnn", "cnn", 12, 50, 800),
    Search("cnn-few-images", "cnn", 12, 60, 250),
    Search("shufflenet", "shufflenet_v2_x0_5", 6, 30, 200, side=32),
)


class Subset(torch.utils.data.Dataset):  # type: ignore[misc]
    """The first images of a data set, some of them with a wrong label."""

    def __init__(self, images: Any, count: int, noise: float) -> None:
        rng = np.random.default_rng(1)
        wrong = rng.random(count) < noise
        drawn = rng.integers(0, 10, count)
        examples = [images[i] for i in range(count)]
        self._examples = [
            (x, int(drawn[i]) if wrong[i] else y) for i, (x, y) in enumerate(examples)
        ]

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, index: int) -> Any:
        return self._examples[index]


def draw(rng: np.random.Generator) -> dict[str, float | int]:
    """One configuration of a random search."""
    return {
        "lr": round(float(10 ** rng.uniform(-3.3, -0.1)), 5),
        "momentum": float(rng.choice([0.0, 0.5, 0.9, 0.95])),
        "batch": int(rng.choice([16, 32, 64, 128])),
        "width": int(rng.choice([4, 8, 16, 32])),
        "weight_decay": float(rng.choice([0.0, 1e-4, 1e-2])),
    }


def build(kind: str, width: int, side: int) -> Any:
    """The model of a run."""
    if kind == "mlp":
        return nn.Sequential(
            nn.Flatten(), nn.Linear(3 * side * side, 2 * width), nn.ReLU(), nn.Linear(2 * width, 10)
        )
    if kind == "cnn":
        return nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.2),
            nn.Linear(8 * width, 10),
        )
    return ModelSpec(kind, 10, side).build()


def held_out(model: Any, images: Any, labels: Any) -> tuple[float, float]:
    """Loss and accuracy on the held-out images."""
    model.eval()
    with torch.no_grad():
        outputs = model(images)
        loss = float(nn.functional.cross_entropy(outputs, labels))
        accuracy = float((outputs.argmax(dim=1) == labels).double().mean())
    model.train()
    return loss, accuracy


def rounded(value: float) -> float | None:
    """A few digits of it; None (JSON has no NaN) when it is not finite."""
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None


def record(search: Search, index: int, config: dict[str, Any]) -> dict[str, Any]:
    """Train one run to its end."""
    spec = DatasetSpec("digits", search.side)
    train = Subset(spec.load("train"), search.examples, search.noise)
    test = spec.load("test")
    images, labels = torch.utils.data.default_collate([test[i] for i in range(len(test))])
    optimizer = partial(
        torch.optim.SGD,
        lr=config["lr"],
        momentum=config["momentum"],
        weight_decay=config["weight_decay"],
    )
    curves: dict[str, list[float | None]] = {"train_loss": [], "loss": [], "accuracy": []}
    with ElasticTrainer(
        partial(build, search.kind, config["width"], search.side),
        optimizer,
        train,
        global_batch=config["batch"],
        seed=index,
    ) as trainer:
        for _ in range(search.epochs):
            mean = trainer.run(trainer.steps_per_epoch)
            loss, accuracy = held_out(trainer.model, images, labels)
            for name, value in (("train_loss", mean), ("loss", loss), ("accuracy", accuracy)):
                curves[name].append(rounded(value))
    return {"config": config, **curves}


def main() -> None:
    torch.set_num_threads(1)
    out = []
    for number, search in enumerate(SEARCHES):
        rng = np.random.default_rng(number)
        started = time.monotonic()
        runs = [record(search, i, draw(rng)) for i in range(search.trials)]
        print(f"{search.name}: {search.trials} runs in {time.monotonic() - started:.0f} s")
        out.append({"name": search.name, "model": search.kind, "runs": runs})
    lines = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in out)
    DATA.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
