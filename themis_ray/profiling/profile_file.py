"""The profile file: S(G) of models as measured on a cluster, for bids and for the simulator.

::

    format: 1
    models:
      vgg16:
        skew: 0.743
        settings: {global_batch: 32, image_size: 32, device: cpu}
        measured:
          - {placement: "1", iter_s: 0.9, spread_s: 0.02, iterations: 30, slowdown: 1.0}
          - {placement: 2/rack, iter_s: 0.6, spread_s: 0.04, iterations: 30, slowdown: 1.33}
        not_measured: ["2 GPUs in two racks: only one rack has any free"]

``slowdown`` is S(G) = seconds per iteration x GPUs / seconds per iteration on one GPU.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from themis_ray.core.cluster import Level
from themis_ray.core.slowdown import Signature, SlowdownTable, skewed_priors
from themis_ray.errors import ConfigError, InvalidInputError

FORMAT: Literal[1] = 1


def _placement(text: str) -> str:
    try:
        return str(Signature.parse(text))
    except InvalidInputError as error:
        raise ValueError(str(error)) from None


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Measurement(_Strict):
    """One placement.

    Attributes:
        placement: Its signature, as ``str(Signature)`` writes it.
        iter_s: Median seconds per iteration.
        spread_s: Interquartile range of them.
        iterations: How many were measured.
        slowdown: S(G) as measured; below 1 where more GPUs were faster than in proportion.
    """

    placement: Annotated[str, AfterValidator(_placement)]
    iter_s: float = Field(gt=0, allow_inf_nan=False)
    spread_s: float = Field(0.0, ge=0, allow_inf_nan=False)
    iterations: int = Field(1, ge=1)
    slowdown: float = Field(gt=0, allow_inf_nan=False)

    @property
    def signature(self) -> Signature:
        """The placement."""
        return Signature.parse(self.placement)


class ModelProfile(_Strict):
    """What was measured of one model.

    Attributes:
        skew: The largest tensor's share of what an iteration sends; None when unknown.
        settings: The job that was run; for people.
        measured: The placements.
        not_measured: What the cluster did not offer, and why, one line each.
    """

    skew: float | None = Field(None, ge=0, le=1)
    settings: dict[str, Any] = Field(default_factory=dict)
    measured: list[Measurement] = Field(default_factory=list)
    not_measured: list[str] = Field(default_factory=list)

    def table(self) -> SlowdownTable:
        """S(G) for bids: as measured, elsewhere the prior that the skew suggests."""
        table = SlowdownTable(skewed_priors(self.skew))
        for entry in self.measured:
            table.record(entry.signature, entry.slowdown)
        return table

    def by_level(self) -> dict[Level, float]:
        """S by level for the simulator, which knows no finer: the median over what was measured.

        A level that was not measured has its prior, but is no better than a nearer one.
        """
        found: dict[Level, list[float]] = {level: [] for level in Level}
        for entry in self.measured:
            if entry.signature.gpus > 1:
                found[entry.signature.level].append(max(1.0, entry.slowdown))
        out = skewed_priors(self.skew)
        nearer = 1.0
        for level in sorted(Level):
            values = found[level]
            out[level] = statistics.median(values) if values else max(out[level], nearer)
            nearer = max(nearer, out[level])
        return out


class ProfileFile(_Strict):
    """Profiles by model, in lower case."""

    format: Literal[1] = FORMAT
    models: dict[str, ModelProfile] = Field(default_factory=dict)

    def tables(self) -> dict[str, SlowdownTable]:
        """S(G) of each model."""
        return {name.lower(): profile.table() for name, profile in self.models.items()}


@dataclass(frozen=True, slots=True)
class Measured:
    """A placement's iteration time, before S(G) is known.

    Attributes:
        signature: The placement.
        iter_s: Median seconds per iteration.
        spread_s: Interquartile range.
        iterations: How many were measured.
    """

    signature: Signature
    iter_s: float
    spread_s: float
    iterations: int


def with_slowdowns(found: Sequence[Measured]) -> list[Measurement]:
    """Turn iteration times into S(G), relative to the fewest GPUs that were measured.

    That is one GPU, unless the model does not fit on one; S of the fewest is 1 by definition.
    """
    if not found:
        return []
    base = min(found, key=lambda m: (m.signature.gpus, m.signature.level))
    serial_s = base.iter_s * base.signature.gpus
    return [
        Measurement(
            placement=str(m.signature),
            iter_s=m.iter_s,
            spread_s=m.spread_s,
            iterations=m.iterations,
            slowdown=m.iter_s * m.signature.gpus / serial_s,
        )
        for m in found
    ]


def load_profiles(path: str | Path) -> ProfileFile:
    """Read a profile file.

    Raises:
        ConfigError: It cannot be used; the message names the field.
    """
    path = Path(path)
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(
            f"{path}: {reason}; give a profile file, as `themis profile MODEL` writes it"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no YAML file: {error}") from error
    try:
        return ProfileFile.model_validate(document or {})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the document"
        raise ConfigError(
            f"{path}: {where}: {first['msg'].removeprefix('Value error, ')}; "
            "`themis profile MODEL` writes such files"
        ) from error


def save_profile(path: str | Path, model: str, profile: ModelProfile) -> ProfileFile:
    """Write a model's profile, beside those of other models that the file has.

    Raises:
        ConfigError: The file there is not one of profiles, or cannot be written.
    """
    path = Path(path)
    known: Mapping[str, ModelProfile] = load_profiles(path).models if path.exists() else {}
    file = ProfileFile(models={**known, model.lower(): profile})
    text = yaml.safe_dump(file.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    scratch = path.with_name(f"{path.name}.new")
    try:
        # At once, so that a crash leaves what was measured of other models.
        scratch.write_text(text, encoding="utf-8")
        scratch.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    return file
