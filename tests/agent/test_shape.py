"""How many units a trial runs on: what is refused, and by which argument's name."""

from __future__ import annotations

import pytest

from themis_ray.agent.shape import TrialShape, check_cluster, check_range
from themis_ray.errors import ConfigError


@pytest.mark.parametrize(
    ("smallest", "largest", "message"),
    [(0, 1, "whole number"), (2, 1, "more than"), (1, 1.5, "fractional"), (0.5, 1, "fractional")],
)
def test_sizes_that_no_trial_can_have(smallest: float, largest: float, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_range(smallest, largest)  # type: ignore[arg-type]


def test_a_trial_larger_than_the_cluster() -> None:
    shape = TrialShape({"CPU": 1.0, "GPU": 1.0}, 1, 8)
    check_cluster(shape, "GPU", 8)
    with pytest.raises(ConfigError, match="the cluster has 4 GPUs"):
        check_cluster(shape, "GPU", 4)


def test_searches_without_tune_are_told_of_their_own_arguments() -> None:
    with pytest.raises(ConfigError, match=r"^min_gpus = 3 is more than max_gpus = 2$"):
        check_range(3, 2, per="")
    with pytest.raises(ConfigError, match=r"^max_gpus = 8, but"):
        check_cluster(TrialShape({"CPU": 1.0}, 1, 8), "GPU", 4, per="")
