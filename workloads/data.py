"""Image data sets that need no download: bundled digits, or what lies on the user's disk."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import ConfigError, MissingExtraError

DATASETS = ("digits", "cifar10", "imagefolder")
SPLITS = ("train", "test")

TEST_FRACTION = 0.2
_SPLIT_SEED = 0
"""Not the job's seed: the trials of one search must be judged on the same images."""

_DIGIT_MAX = 16.0
_HELD_OUT_FOLDERS = ("val", "test", "validation")


@dataclass(frozen=True)
class DatasetSpec:
    """Which images to load; picklable, so that every process can load its own.

    Attributes:
        name: ``digits`` (scikit-learn's 1,797 hand-written digits), ``cifar10`` or ``imagefolder``
            (one sub-folder a class).
        image_size: Side in pixels that each image is resized to.
        data_dir: Where ``cifar10`` or ``imagefolder`` lie; unused by ``digits``. An image folder
            with ``train`` and ``val`` (or ``test``) in it brings its own split.
    """

    name: str = "digits"
    image_size: int = 32
    data_dir: str | None = None

    def __post_init__(self) -> None:
        if self.name not in DATASETS:
            raise ConfigError(f"unknown dataset {self.name!r}: choose one of {', '.join(DATASETS)}")
        if self.image_size < 1:
            raise ConfigError(f"image_size must be at least 1 pixel, not {self.image_size}")
        if self.name != "digits" and self.data_dir is None:
            raise ConfigError(
                f"dataset {self.name!r} needs data_dir: the folder on this machine that holds it"
            )

    def count_classes(self) -> int:
        """Number of classes; for an image folder, of its sub-folders."""
        if self.name != "imagefolder":
            return 10
        images = self.load("train")
        return len(getattr(images, "dataset", images).classes)

    def load(self, split: str = "train") -> Any:
        """Load one split as a map-style data set of (3 x side x side float image, class) pairs.

        The split is the same on every machine and for every seed.

        Raises:
            ConfigError: The files are not where ``data_dir`` says; the message says what to do.
        """
        if split not in SPLITS:
            raise ConfigError(f"unknown split {split!r}: choose one of {', '.join(SPLITS)}")
        if self.name == "digits":
            return _digits(self.image_size, split)
        root = Path(str(self.data_dir)).expanduser()
        if self.name == "cifar10":
            return _cifar10(root, self.image_size, split)
        return _image_folder(root, self.image_size, split)


class Digits(torch.utils.data.Dataset):  # type: ignore[misc]
    """Grey 8x8 digits, upsampled and repeated to three channels when asked for.

    Args:
        images: Grey images, n x 8 x 8, scaled to about zero mean and unit spread.
        labels: Classes, n.
        image_size: Side in pixels of the images handed out.
    """

    def __init__(self, images: Any, labels: Sequence[int], image_size: int) -> None:
        self._images = images
        self._labels = list(labels)
        self._size = image_size

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """Return one image and its class."""
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Any, int]]:
        """Return several images at once: one resize for the whole batch."""
        # Upsampled late: all images at 224 pixels would take a gigabyte in every process.
        grey = self._images[list(indices)].unsqueeze(1)
        sized = torch.nn.functional.interpolate(
            grey, size=(self._size, self._size), mode="bilinear", align_corners=False
        )
        labels = [self._labels[i] for i in indices]
        return list(zip(sized.expand(-1, 3, -1, -1), labels, strict=True))


def split_indices(size: int, split: str) -> list[int]:
    """Indices of a split of ``size`` examples: a fixed shuffle, cut at four fifths."""
    order = np.random.default_rng(_SPLIT_SEED).permutation(size)
    cut = size - round(size * TEST_FRACTION)
    chosen = order[:cut] if split == "train" else order[cut:]
    return [int(i) for i in chosen]


def _digits(image_size: int, split: str) -> Digits:
    table = _digits_table()
    table = table[split_indices(len(table), split)]
    images = torch.tensor(table[:, :-1] / _DIGIT_MAX, dtype=torch.float32).reshape(-1, 8, 8)
    return Digits((images - 0.3) / 0.38, [int(y) for y in table[:, -1]], image_size)


def _digits_table() -> NDArray[np.float64]:
    """scikit-learn's digits: 64 grey values of 0 to 16 and the class in each row."""
    found = importlib.util.find_spec("sklearn")
    if found is None or found.origin is None:
        raise MissingExtraError("sklearn", "workloads")
    file = Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz"
    if file.exists():
        # Importing scikit-learn takes 2 s, in each process, every time that a lease moves.
        return np.loadtxt(file, delimiter=",")
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return np.column_stack([bunch.data, bunch.target])


def _transform(image_size: int) -> Any:
    from torchvision import transforms

    return transforms.Compose(
        [
            transforms.Resize((image_size, image_size)),
            transforms.ToTensor(),
            transforms.Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25)),
        ]
    )


def _cifar10(root: Path, image_size: int, split: str) -> Any:
    from torchvision.datasets import CIFAR10

    load = partial(CIFAR10, str(root), train=split == "train", download=False)
    try:
        return load(transform=_transform(image_size))
    except (RuntimeError, OSError) as error:
        raise ConfigError(
            f"no complete CIFAR-10 in {root}: unpack cifar-10-python.tar.gz there (it makes "
            "cifar-10-batches-py), or use dataset='digits', which needs no files"
        ) from error


def _image_folder(root: Path, image_size: int, split: str) -> Any:
    from torchvision.datasets import ImageFolder

    held_out = [root / name for name in _HELD_OUT_FOLDERS if (root / name).is_dir()]
    has_split = (root / "train").is_dir() and bool(held_out)
    folder = root if not has_split else (root / "train" if split == "train" else held_out[0])
    try:
        images = ImageFolder(str(folder), transform=_transform(image_size))
    except (RuntimeError, OSError) as error:
        raise ConfigError(
            f"no image folder in {folder}: put the images of each class in a sub-folder of its own "
            f"({folder.name}/cat/1.png, {folder.name}/dog/2.png), or use dataset='digits'"
        ) from error
    if has_split:
        return images
    return torch.utils.data.Subset(images, split_indices(len(images), split))
