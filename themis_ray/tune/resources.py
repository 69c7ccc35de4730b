"""What goes with one leased unit, read off a trial's own resource request."""

from __future__ import annotations

from ray.tune.execution.placement_groups import PlacementGroupFactory

from themis_ray.agent.shape import FRACTION_REMEDY, TrialShape
from themis_ray.errors import ConfigError


def shape_of(request: PlacementGroupFactory, unit: str, smallest: int, largest: int) -> TrialShape:
    """Turn a trial's request into what the arbiter leases.

    ``{"CPU": 2}`` and ``{"CPU": 2, "GPU": 1}`` both say that 2 CPUs go with each GPU. A request
    with several equal bundles of one GPU each is a rigid gang of that many. With a fraction of a
    GPU, ``1 / fraction`` trials (rounded down) share one bundle of a whole GPU, and each has its
    equal part of it.

    Args:
        request: ``resources_per_trial`` or ``with_resources``, as Tune keeps it.
        unit: ``"GPU"`` or ``"CPU"``, what the arbiter leases.
        smallest: ``min_gpus_per_trial``.
        largest: ``max_gpus_per_trial``.

    Raises:
        ConfigError: The request cannot be leased; the message says what to ask for instead.
    """
    bundles = request.bundles
    if any(bundle != bundles[0] for bundle in bundles[1:]) or request.head_bundle_is_empty:
        raise ConfigError(
            f"a trial asks for bundles of different kinds ({bundles}); ask for one bundle, the "
            "resources that go with one GPU, and set max_gpus_per_trial for more GPUs"
        )
    bundle = {k: float(v) for k, v in bundles[0].items() if v}
    gpus = bundle.pop("GPU", 0.0)
    if 0 < gpus < 1 and unit == "GPU" and len(bundles) == 1:
        return _shared(bundle, gpus, largest)
    if gpus != int(gpus):
        raise ConfigError(f"a trial asks for {gpus:g} GPUs; {FRACTION_REMEDY}")
    if unit == "CPU":
        if gpus:
            raise ConfigError(
                f"a trial asks for {gpus:g} GPUs, but the cluster has none; leave GPU out of "
                "resources_per_trial, or start Ray with logical GPUs (themis start --num-gpus N)"
            )
        bundle.setdefault("CPU", 1.0)
        return _gang(bundle, len(bundles), smallest, largest)
    if gpus > 1:
        raise ConfigError(
            f"a trial asks for {gpus:g} GPUs in one bundle; ask for the resources that go with "
            f"one GPU ({_per_gpu(bundle, gpus)}) and set min_gpus_per_trial = "
            f"max_gpus_per_trial = {gpus:g} on ThemisScheduler: each GPU gets its own process"
        )
    return _gang({**bundle, "GPU": 1.0}, len(bundles), smallest, largest)


def _shared(bundle: dict[str, float], fraction: float, largest: int) -> TrialShape:
    if largest > 1:
        raise ConfigError(
            f"a trial asks for {fraction:g} GPUs, and may use up to {largest}; a trial that shares "
            "a GPU with others cannot use several: leave max_gpus_per_trial at 1"
        )
    sharers = int(1 / fraction + 1e-9)
    whole = {name: amount * sharers for name, amount in bundle.items()}
    return TrialShape({**whole, "GPU": 1.0}, 1, 1, sharers)


def _gang(bundle: dict[str, float], count: int, smallest: int, largest: int) -> TrialShape:
    if count > 1:
        return TrialShape(bundle, count, count)
    return TrialShape(bundle, smallest, largest)


def _per_gpu(bundle: dict[str, float], gpus: float) -> dict[str, float]:
    return {**{k: v / gpus for k, v in bundle.items()}, "GPU": 1.0}
