"""A job's own random streams, kept apart from whatever else runs in its process."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

State = dict[str, Any]


def capture() -> State:
    """The states of the global generators of python, numpy, torch and the GPU in use.

    The values are plain numbers, lists and tensors, which ``torch.load(weights_only=True)`` takes.
    """
    version, internal, gauss = random.getstate()
    name, key, position, has_gauss, cached = np.random.get_state()
    words = torch.from_numpy(np.asarray(key).astype(np.int64))
    return {
        "python": [version, list(internal), gauss],
        "numpy": [name, words, position, has_gauss, float(cached)],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None,
    }


def apply(state: Mapping[str, Any]) -> None:
    """Set the global generators to a captured state."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, key, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, key.numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(state["torch"].cpu())
    # A state saved without a GPU says nothing about one; it keeps the seeded state.
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"].cpu())


def seeded(*entropy: int) -> State:
    """The state of generators freshly seeded from some numbers; the global ones are untouched."""
    before = capture()
    try:
        words = reseed(*entropy)
        # The GPU's generator as well.
        torch.manual_seed(words[2])
        return capture()
    finally:
        apply(before)


def reseed(*entropy: int) -> list[int]:
    """Seed the CPU's global generators from some numbers; returns the three seeds made of them."""
    # Mixed rather than added, so that (seed 1, rank 0) and (seed 0, rank 1) differ.
    words = [int(word) for word in np.random.SeedSequence(entropy).generate_state(3)]
    random.seed(words[0])
    np.random.seed(words[1])
    torch.default_generator.manual_seed(words[2])
    return words


@contextmanager
def kept() -> Iterator[None]:
    """Put the CPU's global generators back at the end to where they were."""
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        torch.set_rng_state(before[2])


class RandomStreams:
    """Random states that take the place of the global ones while a job computes.

    The process of a trial also runs Ray and Tune, which draw random numbers at times nobody can
    foresee. A job resumes bit for bit only if its streams advance by its own draws alone.

    Args:
        entropy: What the streams are seeded from.
    """

    def __init__(self, *entropy: int) -> None:
        self.state = seeded(*entropy)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Swap the streams in, and out again with their new position."""
        outside = capture()
        apply(self.state)
        try:
            yield
        finally:
            self.state = capture()
            apply(outside)
