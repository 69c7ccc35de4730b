"""What a reader of the documents brings along: models, data, names that the recipes use.

Imported by the trials as well, by this name.
"""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from themis_ray.workloads import ElasticTrainer, run_trial

EXAMPLES, BATCH = 40, 4
CLASSES = 3
# So that there is a middle in which leases can end: an example takes so long until there is the
# file that the environment variable names.
EXAMPLE_S = 0.3
HURRY = "RECIPES_HURRY"

generator = torch.Generator().manual_seed(0)
X = torch.randn(EXAMPLES, 4, generator=generator)
WORDS = torch.randint(0, 50, (EXAMPLES, 8), generator=generator)
Y = torch.arange(EXAMPLES) % CLASSES


def take_time() -> None:
    if not Path(os.environ[HURRY]).exists():
        time.sleep(EXAMPLE_S)


class Points(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return EXAMPLES

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        take_time()
        return X[index], Y[index]


class Sentences(Points):
    def __getitem__(self, index: int) -> Any:
        take_time()
        return {"input_ids": WORDS[index], "labels": Y[index]}


def for_lightning() -> dict[str, Any]:
    import lightning
    from torchdata.stateful_dataloader import StatefulDataLoader

    class Module(lightning.LightningModule):
        def __init__(self, config: dict[str, Any]) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.lr = config["lr"]
            self.net = torch.nn.Linear(4, CLASSES)

        def training_step(self, batch: Any, index: int) -> Any:
            loss = torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9)

    data = StatefulDataLoader(Points(), batch_size=BATCH)
    return {"Module": Module, "data": data, "dataset": Points}


def for_transformers() -> dict[str, Any]:
    import transformers

    def load_model() -> Any:
        config = transformers.BertConfig(
            vocab_size=50,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=16,
            num_labels=CLASSES,
        )
        torch.manual_seed(1)
        return transformers.BertForSequenceClassification(config)

    return {"load_model": load_model, "dataset": Sentences()}


def names() -> dict[str, Any]:
    """What a script that uses a recipe has imported."""
    return {
        "torch": torch,
        "partial": partial,
        "ElasticTrainer": ElasticTrainer,
        "run_trial": run_trial,
    }


def module_with(code: str, parts: dict[str, Any]) -> ModuleType:
    """A script of the reader's own: the parts, and then the recipe's code."""
    made = ModuleType("recipe")
    vars(made).update(names() | parts)
    exec(compile(code, "docs/workloads.md", "exec"), vars(made))
    return made
