"""Simulated clusters: machines, and how each model slows down when its GPUs are apart.

::

    name: testbed-64
    machines:
      - {count: 8, gpus: 2, slots: 1, rack: r0}
      - {count: 12, gpus: 4, slots: 1, rack: r1}
    models:
      vgg16: {slot: 1, machine: 1, rack: 1.29, cluster: 1.45}

``models`` gives S(G) by placement level; a level left out, and a model left out, take the priors
of :data:`themis_ray.core.slowdown.PRIORS`. A model may also say what moving it costs
(``checkpoint_s``, ``start_s``) and the share of its bytes that its largest tensor has (``skew``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from themis_ray.core.cluster import Cluster, Level, Machine
from themis_ray.core.slowdown import PRIORS
from themis_ray.errors import ConfigError
from themis_ray.profiling.profile_file import load_profiles


@dataclass(frozen=True, slots=True)
class MoveCost:
    """What it costs a job to change its GPUs, in seconds in which it makes no progress.

    Attributes:
        checkpoint_s: On leaving GPUs before its end.
        start_s: On starting: container or process start, and restoring the checkpoint.
    """

    checkpoint_s: float = 10.0
    start_s: float = 35.0

    @property
    def whole_s(self) -> float:
        """Both together."""
        return self.start_s + self.checkpoint_s


@dataclass(frozen=True, slots=True)
class Profile:
    """A model's placement profile.

    Attributes:
        by_level: S(G) by placement level.
        move: What moving it costs; None for the run's own figure.
        skew: Its largest tensor's share of the model's bytes; None when it is not known.
    """

    by_level: Mapping[Level, float]
    move: MoveCost | None = None
    skew: float | None = None

    def s(self, gpus: int, level: Level) -> float:
        """S of a placement; 1 for a single GPU."""
        return 1.0 if gpus <= 1 else self.by_level[level]


PRIOR_PROFILE = Profile(dict(PRIORS))


@dataclass(frozen=True, slots=True)
class SimCluster:
    """A simulated cluster.

    Attributes:
        name: Its name.
        cluster: The machines.
        profiles: Placement profiles by model, in lower case.
    """

    name: str
    cluster: Cluster
    profiles: Mapping[str, Profile] = field(default_factory=dict)

    def profile(self, model: str) -> Profile:
        """A model's profile; the priors when it is not known.

        Traces name models in many ways: what follows the first blank or bracket is passed over
        when the whole name is not known (``ResNet-18 (batch size 128)`` is ``resnet-18``).
        """
        name = model.lower()
        found = self.profiles.get(name)
        if found is None:
            found = self.profiles.get(name.split(" ")[0].split("(")[0])
        return PRIOR_PROFILE if found is None else found


class _Machines(BaseModel):
    model_config = ConfigDict(extra="forbid")
    count: int = Field(1, ge=1)
    gpus: int = Field(ge=1)
    slots: int = Field(1, ge=1)
    rack: str | int = "r0"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    slot: float = Field(PRIORS[Level.SLOT], ge=1)
    machine: float = Field(PRIORS[Level.MACHINE], ge=1)
    rack: float = Field(PRIORS[Level.RACK], ge=1)
    cluster: float = Field(PRIORS[Level.CLUSTER], ge=1)
    checkpoint_s: float | None = Field(None, ge=0)
    start_s: float | None = Field(None, ge=0)
    skew: float | None = Field(None, ge=0, le=1)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str = ""
    machines: list[_Machines] = Field(min_length=1)
    models: dict[str, _Model] = Field(default_factory=dict)


def load_cluster(path: str | Path) -> SimCluster:
    """Read a simulated cluster.

    Raises:
        ConfigError: The file cannot be used; the message names the field.
    """
    path = Path(path)
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"{path}: {reason}; give the path of a cluster YAML") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not a text file ({error.reason}); use UTF-8") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        why = getattr(error, "problem", None) or str(error)
        raise ConfigError(f"{path}{where}: not YAML: {why}") from error
    return parse_cluster(document, path.stem, str(path))


def parse_cluster(document: Any, name: str, source: str) -> SimCluster:
    """A simulated cluster from the content of its file.

    Raises:
        ConfigError: A field is wrong.
    """
    if not isinstance(document, dict):
        raise ConfigError(f"{source}: it needs the fields name, machines and models")
    try:
        file = _File.model_validate(document)
    except ValidationError as error:
        raise ConfigError(_describe(error, source)) from error
    machines: list[Machine] = []
    width = len(str(sum(entry.count for entry in file.machines) - 1))
    for i, entry in enumerate(file.machines):
        if entry.gpus % entry.slots:
            raise ConfigError(
                f"{source}: machines[{i}].slots: {entry.gpus} GPUs cannot be divided into "
                f"{entry.slots} slots"
            )
        for _ in range(entry.count):
            machine_id = f"m{len(machines):0{width}d}"
            machines.append(Machine(machine_id, entry.gpus, str(entry.rack), entry.slots))
    profiles: dict[str, Profile] = {}
    for key, model in file.models.items():
        if key.lower() in profiles:
            raise ConfigError(f"{source}: models.{key}: stands there twice; case does not count")
        profiles[key.lower()] = _profile(model)
    return SimCluster(file.name or name, Cluster(tuple(machines)), profiles)


def _profile(model: _Model) -> Profile:
    levels = {
        Level.SLOT: model.slot,
        Level.MACHINE: model.machine,
        Level.RACK: model.rack,
        Level.CLUSTER: model.cluster,
    }
    if model.checkpoint_s is None and model.start_s is None:
        return Profile(levels, None, model.skew)
    default = MoveCost()
    return Profile(
        levels,
        MoveCost(
            default.checkpoint_s if model.checkpoint_s is None else model.checkpoint_s,
            default.start_s if model.start_s is None else model.start_s,
        ),
        model.skew,
    )


def with_profiles(sim: SimCluster, file: str | Path) -> SimCluster:
    """A simulated cluster with S(G) as ``themis profile`` measured it.

    A model of the profile file takes the place of the cluster file's, except for what moving it
    costs.

    Raises:
        ConfigError: The profile file cannot be used.
    """
    profiles = dict(sim.profiles)
    for name, measured in load_profiles(file).models.items():
        known = profiles.get(name.lower())
        move = known.move if known is not None else None
        profiles[name.lower()] = Profile(measured.by_level(), move, measured.skew)
    return replace(sim, profiles=profiles)


def _describe(error: ValidationError, source: str) -> str:
    """Every fault, one a line, each with its field."""
    lines = []
    for fault in error.errors(include_url=False):
        path = ""
        for step in fault["loc"]:
            path += f"[{step}]" if isinstance(step, int) else f".{step}"
        said = "no such field" if fault["type"] == "extra_forbidden" else fault["msg"].lower()
        lines.append(f"{source}: {path.lstrip('.') or 'the document'}: {said}")
    return "\n".join(lines)
