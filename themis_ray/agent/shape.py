"""What goes with one leased unit, and how many units a trial runs on."""

from __future__ import annotations

from dataclasses import dataclass

from themis_ray.errors import ConfigError

FRACTION_REMEDY = (
    "fractional GPUs are leased below one only, where trials share a GPU (0.25 puts four trials on "
    "one); otherwise ask for whole GPUs"
)


@dataclass(frozen=True, slots=True)
class TrialShape:
    """A trial's bundle and how many units it runs on.

    Attributes:
        bundle: Resources of one bundle of the trial's placement group.
        smallest: The fewest units.
        largest: The most units.
        sharers: How many trials share one unit.
    """

    bundle: dict[str, float]
    smallest: int
    largest: int
    sharers: int = 1

    @property
    def request(self) -> dict[str, float]:
        """What one trial asks Ray for, within a bundle."""
        return {name: amount / self.sharers for name, amount in self.bundle.items()}


def check_range(smallest: int, largest: int, per: str = "_per_trial") -> None:
    """Refuse sizes that no trial can have.

    Args:
        smallest: ``min_gpus_per_trial``.
        largest: ``max_gpus_per_trial``.
        per: What follows ``min_gpus`` in the argument's name.

    Raises:
        ConfigError: They are not whole numbers with ``1 <= smallest <= largest``.
    """
    for name, value in ((f"min_gpus{per}", smallest), (f"max_gpus{per}", largest)):
        if isinstance(value, float) and value != int(value):
            raise ConfigError(f"{name} = {value}; {FRACTION_REMEDY}")
        if value < 1:
            raise ConfigError(f"{name} = {value}; use a whole number of 1 or more")
    if smallest > largest:
        raise ConfigError(f"min_gpus{per} = {smallest} is more than max_gpus{per} = {largest}")


def check_cluster(shape: TrialShape, unit: str, cluster: int, per: str = "_per_trial") -> None:
    """Refuse a trial that is larger than the cluster.

    Args:
        shape: The trial's.
        unit: What is leased, ``"GPU"`` or ``"CPU"``.
        cluster: How many there are; 0 when that is not known.
        per: As in :func:`check_range`.

    Raises:
        ConfigError: It is.
    """
    if cluster and shape.largest > cluster:
        raise ConfigError(
            f"max_gpus{per} = {shape.largest}, but the cluster has {cluster} {unit}s to "
            f"lease; use {cluster} or less"
        )
