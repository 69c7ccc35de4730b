"""What goes with one leased unit, read off a trial's own request."""

from __future__ import annotations

import pytest
from ray.tune.execution.placement_groups import (
    PlacementGroupFactory,
    resource_dict_to_pg_factory,
)

from themis_ray.agent.shape import TrialShape
from themis_ray.errors import ConfigError
from themis_ray.tune.resources import shape_of


@pytest.mark.parametrize(
    ("request_", "unit", "bundle"),
    [
        ({"cpu": 2}, "GPU", {"CPU": 2.0, "GPU": 1.0}),
        ({"cpu": 2, "gpu": 1}, "GPU", {"CPU": 2.0, "GPU": 1.0}),
        ({"cpu": 0.5, "gpu": 1, "memory": 1e9}, "GPU", {"CPU": 0.5, "GPU": 1.0, "memory": 1e9}),
        ({"cpu": 1, "gpu": 1, "custom_resources": {"disk": 3}}, "GPU",
         {"CPU": 1.0, "GPU": 1.0, "disk": 3.0}),
        ({"cpu": 3}, "CPU", {"CPU": 3.0}),
    ],
)  # fmt: skip
def test_one_bundle_goes_with_one_unit(
    request_: dict[str, object], unit: str, bundle: dict[str, float]
) -> None:
    shape = shape_of(resource_dict_to_pg_factory(request_), unit, 1, 4)
    assert shape == TrialShape(bundle, 1, 4)


@pytest.mark.parametrize(
    ("gpu", "sharers"), [(0.25, 4), (0.5, 2), (0.3, 3), (0.1, 10), (0.75, 1), (0.001, 1000)]
)
def test_trials_of_a_part_of_a_gpu_share_a_bundle(gpu: float, sharers: int) -> None:
    shape = shape_of(resource_dict_to_pg_factory({"cpu": 0.5, "gpu": gpu}), "GPU", 1, 1)
    assert shape == TrialShape({"CPU": 0.5 * sharers, "GPU": 1.0}, 1, 1, sharers)
    # Their parts fill the bundle, and no more.
    assert shape.request == pytest.approx({"CPU": 0.5, "GPU": 1 / sharers})
    assert shape.request["GPU"] >= gpu - 1e-9


def test_a_trial_of_a_part_of_a_gpu_cannot_use_several() -> None:
    with pytest.raises(ConfigError, match="leave max_gpus_per_trial at 1"):
        shape_of(resource_dict_to_pg_factory({"cpu": 1, "gpu": 0.25}), "GPU", 1, 2)


def test_equal_bundles_are_a_rigid_gang() -> None:
    factory = PlacementGroupFactory([{"CPU": 1, "GPU": 1}] * 3)
    assert shape_of(factory, "GPU", 1, 1) == TrialShape({"CPU": 1.0, "GPU": 1.0}, 3, 3)


@pytest.mark.parametrize(
    ("factory", "unit", "message"),
    [
        (PlacementGroupFactory([{"CPU": 1, "GPU": 0.5}] * 2), "GPU", "fractional GPUs"),
        (resource_dict_to_pg_factory({"cpu": 1, "gpu": 0.5}), "CPU", "fractional GPUs"),
        (resource_dict_to_pg_factory({"cpu": 1, "gpu": 1.5}), "GPU", "fractional GPUs"),
        (resource_dict_to_pg_factory({"cpu": 4, "gpu": 2}), "GPU", "max_gpus_per_trial = 2"),
        (resource_dict_to_pg_factory({"cpu": 1, "gpu": 1}), "CPU", "leave GPU out"),
        (PlacementGroupFactory([{"CPU": 1}, {"CPU": 1, "GPU": 1}]), "GPU", "different kinds"),
        (PlacementGroupFactory([{}, {"CPU": 1, "GPU": 1}]), "GPU", "different kinds"),
    ],
)
def test_what_cannot_be_leased_is_refused_with_a_remedy(
    factory: PlacementGroupFactory, unit: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        shape_of(factory, unit, 1, 1)
