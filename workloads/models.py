"""Image classifiers of torchvision, by name, at image sizes that fit a small machine."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from typing import Any

import torch
import torchvision

from ..errors import ConfigError

_IMAGENET_HEAD = 4096
"""Width of the two hidden layers in the classifier of VGG and AlexNet."""

_SMALLEST = {"inception": 75, "alexnet": 63, "maxvit": 224, "vit_h_14": 28}
"""Least image side in pixels, by name prefix; below it a layer has no output left."""

_DEFAULT_SMALLEST = 32

_AUXILIARY = {"inception_v3": (299, 0.4), "googlenet": (_DEFAULT_SMALLEST, 0.3)}
"""Models with auxiliary heads: the least image side, and the published weight of their losses."""


@dataclass(frozen=True)
class ModelSpec:
    """Which classifier to build; picklable, so that every process can build its own.

    Attributes:
        name: A torchvision classification model, such as ``vgg16`` or ``resnet50``.
        num_classes: Outputs of the last layer.
        image_size: Side of the square input in pixels; ``None`` takes the least the model can use
            (32, Inception v3 75, AlexNet 63).
        width: Hidden width of the classifier of VGG and AlexNet. 4096 is the published model: with
            10 classes VGG16's checkpoint has 1.07 GB with momentum; with 256 it has 170 MB.
        auxiliary: Build the auxiliary heads of Inception v3 or GoogLeNet. In training such a model
            returns their outputs as well: use :meth:`loss`.
    """

    name: str
    num_classes: int = 10
    image_size: int | None = None
    width: int | None = None
    auxiliary: bool = False

    def __post_init__(self) -> None:
        known = model_names()
        if self.name not in known:
            near = difflib.get_close_matches(self.name, known, n=3) or ["vgg16", "resnet50"]
            raise ConfigError(
                f"unknown model {self.name!r}: torchvision has no classifier of that name; "
                f"did you mean {' or '.join(near)}?"
            )
        if self.num_classes < 1:
            raise ConfigError(f"num_classes must be at least 1, not {self.num_classes}")
        if self.image_size is not None and self.image_size < smallest_image(self.name):
            raise ConfigError(
                f"{self.name} cannot use {self.image_size}x{self.image_size} images: "
                f"set image_size to at least {smallest_image(self.name)}"
            )
        if self.side % _patch(self.name):
            raise ConfigError(
                f"{self.name} cuts images into patches of {_patch(self.name)} pixels: "
                f"set image_size to a multiple of that, not {self.side}"
            )
        if self.width is not None and (self.width < 1 or not _has_wide_head(self.name)):
            raise ConfigError(
                f"width={self.width} does not fit {self.name}: it is the hidden width (>= 1) of "
                "the classifier of VGG and AlexNet; leave it out for other models"
            )
        if self.auxiliary and not has_auxiliary(self.name, self.side):
            known_models = " and ".join(f"{k} (from {v[0]} pixels)" for k, v in _AUXILIARY.items())
            raise ConfigError(
                f"{self.name} has no auxiliary heads at {self.side}x{self.side} pixels: only "
                f"{known_models} have; leave auxiliary out"
            )

    @property
    def side(self) -> int:
        """Side of the square input in pixels."""
        return self.image_size if self.image_size is not None else smallest_image(self.name)

    def build(self) -> Any:
        """Build the model with fresh weights, drawn from torch's global random state."""
        options: dict[str, Any] = {"num_classes": self.num_classes}
        if self.name in _AUXILIARY:
            options |= {"aux_logits": self.auxiliary, "init_weights": True}
        if self.name.startswith("vit_"):
            options["image_size"] = self.side
        model = torchvision.models.get_model(self.name, weights=None, **options)
        if self.width is not None:
            _narrow_head(model, self.width)
        return model

    def loss(self, outputs: Any, targets: Any) -> Any:
        """Cross entropy; each auxiliary head's counts with its published weight."""
        cross_entropy = torch.nn.functional.cross_entropy
        if isinstance(outputs, torch.Tensor):
            return cross_entropy(outputs, targets)
        logits, *heads = outputs
        _, weight = _AUXILIARY[self.name]
        return cross_entropy(logits, targets) + weight * sum(
            cross_entropy(head, targets) for head in heads
        )


def has_auxiliary(name: str, side: int) -> bool:
    """Whether a model can have auxiliary heads with images of this side in pixels."""
    least, _ = _AUXILIARY.get(name, (math.inf, 0.0))
    return side >= least


def model_names() -> list[str]:
    """Names of the classifiers that torchvision can build."""
    names: list[str] = torchvision.models.list_models(module=torchvision.models)
    return names


def smallest_image(name: str) -> int:
    """Least side in pixels of the square images that a model can use."""
    for prefix, side in _SMALLEST.items():
        if name.startswith(prefix):
            return side
    return _DEFAULT_SMALLEST


def _patch(name: str) -> int:
    """Side in pixels of the patches that a vision transformer sees; 1 for other models."""
    return int(name.rpartition("_")[2]) if name.startswith("vit_") else 1


def _has_wide_head(name: str) -> bool:
    return name.startswith(("vgg", "alexnet"))


def _narrow_head(model: Any, width: int) -> None:
    """Replace the two 4096-wide hidden layers of VGG's or AlexNet's classifier."""

    def narrowed(features: int) -> int:
        return width if features == _IMAGENET_HEAD else features

    for index, layer in enumerate(model.classifier):
        if isinstance(layer, torch.nn.Linear):
            model.classifier[index] = torch.nn.Linear(
                narrowed(layer.in_features), narrowed(layer.out_features)
            )
