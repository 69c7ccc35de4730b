"""Options of the arbiter, checked at the edge and turned into the core's frozen values.

They come from keyword arguments, from a YAML file (``themis start --config FILE``) and from the
environment (``THEMIS_LEASE_S=60``), in this order of precedence.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from themis_ray.core.policies import POLICIES, Policy, make_policy
from themis_ray.core.settings import ArbiterConfig, default_grid_s
from themis_ray.errors import ConfigError

ENV_PREFIX = "THEMIS_"


class ArbiterOptions(BaseModel):
    """All that an admin may set.

    Attributes:
        policy: The scheduling policy.
        fairness_knob: f of the paper: the 1-f worst-off apps bid; the policy's own when None.
        min_bidders: At least so many apps bid; the policy's own when None.
        payment: Whether the hidden payment is taken in GPUs or in lease time; the policy's own
            when None.
        leftover: Who gets what the auction leaves over; the policy's own when None.
        recall_factor: Leases are recalled early for a job whose app would end with so many times
            its holder's r by waiting; infinite for never, the policy's own when None.
        seed: Seeds all that is random in decisions.
        lease_s: A full lease, in seconds.
        notice_s: How long before its end a lease is put up again; a tenth of the lease, at most
            10 s, when None.
        grace_s: How long after its end the trials of a lease may still be there.
        min_lease_s: Leases shortened by payments last at least so long; a tenth of the lease
            when None.
        lease_grid_s: Leases end at whole multiples of this, together with those of other rounds:
            gangs find enough GPUs put up at once, and there are fewer rounds. A quarter of the
            lease when None; 0: each lease has its own end.
        answer_timeout_s: How long an AGENT may take to report or to bid.
        lost_after_s: An app whose driver is cut off for so long is taken to be gone.
        round_delay_s: Wait so long after a change before a round.
        unit: What is leased; ``auto``: GPUs, or CPUs where there is no GPU.
        host: Where the arbiter listens; the address of its node when None.
        journal: The file in which the arbiter's node keeps the journal; ``auto``: in Ray's
            session folder there; ``off``: none is kept.
        journal_mb: A journal that has grown larger is packed and set aside, in MiB.
        journal_parts: So many of those are kept.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    policy: str = "themis"
    fairness_knob: float | None = Field(None, ge=0, le=1)
    min_bidders: int | None = Field(None, ge=1)
    payment: Literal["gpus", "time"] | None = None
    leftover: Literal["random", "placed"] | None = None
    recall_factor: float | None = Field(None, ge=1)
    seed: int = 0
    lease_s: float = Field(600.0, gt=0)
    notice_s: float | None = Field(None, ge=0)
    grace_s: float = Field(10.0, ge=0)
    min_lease_s: float | None = Field(None, ge=0)
    lease_grid_s: float | None = Field(None, ge=0)
    answer_timeout_s: float = Field(5.0, gt=0)
    lost_after_s: float = Field(3.0, ge=0)
    round_delay_s: float = Field(0.2, ge=0)
    unit: Literal["auto", "GPU", "CPU"] = "auto"
    host: str | None = None
    journal: str = "auto"
    journal_mb: float = Field(64.0, gt=0)
    journal_parts: int = Field(64, ge=1)

    @field_validator("journal")
    @classmethod
    def _absolute(cls, value: str) -> str:
        """A path means the same to the arbiter, which runs in another folder."""
        if value in ("auto", "off"):
            return value
        if not value.strip():
            raise ValueError("name a file, or use auto or off")
        return str(Path(value).expanduser().absolute())

    def core_config(self) -> ArbiterConfig:
        """The times, as the core takes them."""
        return ArbiterConfig(
            lease_s=self.lease_s,
            notice_s=min(10.0, self.lease_s / 10) if self.notice_s is None else self.notice_s,
            grace_s=self.grace_s,
            report_timeout_s=self.answer_timeout_s,
            bid_timeout_s=self.answer_timeout_s,
            round_delay_s=self.round_delay_s,
            min_lease_s=self.lease_s / 10 if self.min_lease_s is None else self.min_lease_s,
            lease_grid_s=(
                default_grid_s(self.lease_s) if self.lease_grid_s is None else self.lease_grid_s
            ),
        )

    def make_policy(self) -> Policy:
        """The policy, with those of the options that it takes."""
        cls = POLICIES.get(self.policy)
        if cls is None:
            make_policy(self.policy)  # raises, naming what there is
            raise AssertionError
        knob = self.fairness_knob
        given = {
            "fairness_knob": None if knob is None else Fraction(str(knob)),
            "min_bidders": self.min_bidders,
            "payment": self.payment,
            "leftover": self.leftover,
            "recall_factor": self.recall_factor,
            "seed": self.seed,
            "timeout_s": self.answer_timeout_s,
        }
        fields = getattr(cls, "__dataclass_fields__", {})
        taken = {k: v for k, v in given.items() if k in fields and v is not None}
        return make_policy(self.policy, **taken)


def load_options(
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    **given: Any,
) -> ArbiterOptions:
    """Gather the options.

    Args:
        file: A YAML file with a mapping of option names to values.
        environ: Where ``THEMIS_*`` is looked up; the process's environment when None.
        **given: Options set by the caller; None means not set.

    Raises:
        ConfigError: An option is unknown or out of range; the message names it.
    """
    merged: dict[str, Any] = {}
    env = os.environ if environ is None else environ
    for name in ArbiterOptions.model_fields:
        if ENV_PREFIX + name.upper() in env:
            merged[name] = env[ENV_PREFIX + name.upper()]
    if file is not None:
        merged.update(_read_yaml(file))
    merged.update({name: value for name, value in given.items() if value is not None})
    try:
        options = ArbiterOptions(**merged)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "options"
        raise ConfigError(
            f"option {where}: {first['msg']} (got {first.get('input')!r}); the options are: "
            f"{', '.join(ArbiterOptions.model_fields)}"
        ) from error
    options.core_config()
    options.make_policy()
    return options


def _read_yaml(file: Path) -> dict[str, Any]:
    try:
        data = yaml.safe_load(file.read_text())
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{file} is not valid YAML: {error}") from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"{file} must hold a mapping of options, as in 'lease_s: 600'")
    return data
