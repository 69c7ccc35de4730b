"""Tensor-size skew, from parameters and from what is sent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from themis_ray.profiling.skew import ITERATIONS, ExchangeWatch, Skew, of_parameters

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")


@pytest.mark.parametrize(("model", "share"), [("vgg16", 0.743), ("resnet50", 0.092)])
def test_the_published_shares(model: str, share: float) -> None:
    """Tiresias, NSDI '19, Table 6; on the meta device, which allocates nothing."""
    with torch.device("meta"):
        found = of_parameters(torchvision.models.get_model(model).parameters())
    assert found.share == pytest.approx(share, abs=0.012)
    assert not found.exchanged


def test_frozen_parameters_are_not_sent() -> None:
    layer = torch.nn.Linear(10, 10)
    layer.weight.requires_grad_(False)
    assert of_parameters(layer.parameters()) == Skew(40, 40, 1, False)
    assert Skew.of([], exchanged=True).share == 0.0


def bucket(sizes: list[int], last: bool) -> Any:
    gradients = [torch.zeros(size) for size in sizes]
    return SimpleNamespace(gradients=lambda: gradients, is_last=lambda: last)


def test_the_tensors_in_the_buckets_count_and_the_exchange_is_left_alone() -> None:
    passed: list[Any] = []
    watch = ExchangeWatch(lambda state, b: passed.append((state, b)) or "future")
    hook = watch.hook()
    first, last = bucket([100, 20], False), bucket([300, 80], True)
    assert hook("state", first) == "future"
    assert watch.skew is None
    hook("state", last)
    assert watch.skew == Skew(1200, 2000, 4, True)
    assert passed == [("state", first), ("state", last)]
    for _ in range(ITERATIONS):
        hook(None, first)
        hook(None, last)
    assert watch.skew == Skew(1200, 2000, 4, True)
    hook(None, bucket([1], True))  # no longer looked at
    assert watch.skew == Skew(1200, 2000, 4, True)
