from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from themis_ray.tune.measured import measured_in, model_of


@pytest.mark.parametrize(
    ("config", "model", "shared"),
    [
        ({"model": "VGG16"}, "vgg16", {"vgg16"}),
        ({"model": ""}, "train", set()),
        ({"model": 3}, "train", set()),
        ({}, "train", set()),
        (None, "train", set()),
    ],
)
def test_a_model_named_in_the_config_means_the_same_to_all(
    config: Any, model: str, shared: set[str]
) -> None:
    found: set[str] = set()
    trial: Any = SimpleNamespace(config=config, trainable_name="train")
    assert model_of(trial, found) == model
    assert found == shared


@pytest.mark.parametrize(
    ("iter_s", "skew", "step_s", "share"),
    [
        (0.5, 0.743, 0.5, 0.743),
        (1, 0, 1.0, 0.0),
        (0.0, 1.5, None, None),
        (math.nan, math.nan, None, None),
        (math.inf, -math.inf, None, None),
        ("0.5", True, None, None),
        (None, None, None, None),
    ],
)
def test_only_numbers_that_can_be_meant_are_taken(
    iter_s: Any, skew: Any, step_s: float | None, share: float | None
) -> None:
    result = {"themis/iter_s": iter_s, "themis/skew": skew}
    assert measured_in(result) == {"step_s": step_s, "skew": share}
