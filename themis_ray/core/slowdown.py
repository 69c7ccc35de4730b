"""S(G): how much slower an iteration gets when the GPUs are apart (THEMIS, section 4.3).

A prior by placement level (1 within a machine, 1.1 across machines, 1.3 across racks, footnote 3
of the paper) stands until a placement has been measured; then the measured value replaces it. A
model most of whose bytes lie in one tensor starts with a higher prior (:func:`skewed_priors`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from themis_ray.core.cluster import Allocation, Cluster, Level
from themis_ray.errors import InvalidInputError

PRIORS: Mapping[Level, float] = {
    Level.SLOT: 1.0,
    Level.MACHINE: 1.0,
    Level.RACK: 1.1,
    Level.CLUSTER: 1.3,
}

# VGG16: 74.3% of its bytes in one tensor (Tiresias, NSDI '19, Table 6), and 103.6 images/s with 4
# GPUs on one machine against 80.4 with 2 + 2 (THEMIS, Table 1).
VGG16_SKEW = 0.743
VGG16_ACROSS = 103.6 / 80.4


def skewed_priors(skew: float | None) -> dict[Level, float]:
    """S(G) by level of a model that was never measured, from its tensor-size skew.

    Tiresias found that models with one tensor much larger than the rest suffer when spread, since
    a large message cannot interleave with others. The slowdown across machines is taken to
    grow with the skew in a straight line from none to VGG16's, the one model of which both
    figures are published; across racks it keeps the ratio of the paper's two priors. Skew only
    raises a prior: models of low skew may be slowed down by the sheer number of their bytes
    (BERT, YOLOv3), so the paper's priors stay the least.

    Args:
        skew: The largest tensor's share of the model's bytes, 0 to 1; None when not known.

    Raises:
        InvalidInputError: The share is not between 0 and 1.
    """
    priors = dict(PRIORS)
    if skew is None:
        return priors
    if not 0 <= skew <= 1:
        raise InvalidInputError(f"tensor-size skew {skew}; it is a share, from 0 to 1")
    across = 1 + (VGG16_ACROSS - 1) * skew / VGG16_SKEW
    if across > priors[Level.RACK]:
        priors[Level.CLUSTER] = across * PRIORS[Level.CLUSTER] / PRIORS[Level.RACK]
        priors[Level.RACK] = across
    return priors


@dataclass(frozen=True, slots=True)
class Signature:
    """What S depends on: the parts of an allocation and how far apart they are."""

    parts: tuple[int, ...]
    level: Level

    @classmethod
    def of(cls, allocation: Allocation, cluster: Cluster) -> Signature:
        """The signature of an allocation in a cluster."""
        return cls(allocation.parts, cluster.level(allocation))

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return sum(self.parts)

    @property
    def together(self) -> bool:
        """Whether all GPUs are on one machine."""
        return self.level <= Level.MACHINE

    def __str__(self) -> str:
        """``4`` (in one slot), ``4/machine``, ``2+2/rack``, ``2+2/cluster``."""
        parts = "+".join(map(str, self.parts)) or "0"
        return parts if self.level is Level.SLOT else f"{parts}/{self.level.name.lower()}"

    @classmethod
    def parse(cls, text: str) -> Signature:
        """Read what ``str()`` wrote.

        Raises:
            InvalidInputError: It is not a signature.
        """
        counts, _, name = text.partition("/")
        try:
            parts = tuple(sorted((int(count) for count in counts.split("+")), reverse=True))
            level = Level[name.upper()] if name else Level.SLOT
        except (ValueError, KeyError):
            raise InvalidInputError(
                f"{text!r} is no placement; write GPUs per machine and how far apart they are, as "
                "in 4, 4/machine, 2+2/rack or 2+2/cluster"
            ) from None
        return cls(tuple(part for part in parts if part), level)


@dataclass(frozen=True, slots=True)
class MeasuredSlowdown:
    """S(G) of a model on a placement, as some app has measured it."""

    model: str
    signature: Signature
    s: float


@dataclass(slots=True)
class SlowdownTable:
    """S(G) of one model.

    Attributes:
        priors: S by level, for placements that were never measured.
        measured: S by placement.
        heard: S by placement, as others have measured it: counts where nothing was measured here.
    """

    priors: Mapping[Level, float] = field(default_factory=lambda: dict(PRIORS))
    measured: dict[Signature, float] = field(default_factory=dict)
    heard: dict[Signature, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for level, s in self.priors.items():
            if not s >= 1:
                raise InvalidInputError(f"slowdown {s} at level {level.name}; S(G) is 1 or more")

    def s(self, signature: Signature) -> float:
        """S for a placement; 1 for one GPU or none.

        A placement that nobody has measured takes the value of the most similar one with as many
        GPUs as near to each other; only without such a one, the prior. One's own measurements
        come before those of others.
        """
        if signature.gpus <= 1:
            return 1.0
        for known in (self.measured, self.heard):
            if signature in known:
                return known[signature]
        for known in (self.measured, self.heard):
            s = _similar(known, signature) if known else None
            if s is not None:
                return s
        return self.priors.get(signature.level, 1.0)

    def record(self, signature: Signature, s: float) -> None:
        """Take a measured value; values below 1 (super-linear speed-up, noise) count as 1.

        Raises:
            InvalidInputError: ``s`` is not a positive number.
        """
        if not 0 < s < float("inf"):
            raise InvalidInputError(f"measured slowdown {s}; use a positive number")
        self.measured[signature] = max(1.0, s)


def _similar(known: Mapping[Signature, float], signature: Signature) -> float | None:
    """S of the same number of GPUs, equally near, on other counts per machine."""
    found = [
        (abs(len(other.parts) - len(signature.parts)), -s)
        for other, s in known.items()
        if other.gpus == signature.gpus
        # Who knows no slots takes any group of GPUs on one machine for one.
        and (other.level == signature.level or (other.together and signature.together))
    ]
    return -min(found)[1] if found else None
