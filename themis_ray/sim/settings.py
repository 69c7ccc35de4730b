"""What a simulation assumes besides the cluster, the trace and the policy."""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from themis_ray.core.fairness import Ideal
from themis_ray.core.settings import ArbiterConfig
from themis_ray.errors import ConfigError
from themis_ray.sim.cluster_file import MoveCost


@dataclass(frozen=True, slots=True)
class Failure:
    """A machine goes down (or, with ``up``, comes back) at a time in seconds."""

    time_s: float
    machine: str
    up: bool = False


@dataclass(frozen=True, slots=True)
class SimConfig:
    """Assumptions of a simulation.

    Attributes:
        arbiter: Lease, notice and grace.
        ideal: Which T_id the apps report; results are judged separately.
        move: What moving a job costs, for models whose profile does not say (THEMIS, section 8.4:
            35 s to change containers and 5 to 10 s to write a checkpoint).
        checkpoint_every_s: A job that is stopped without notice goes back to its last checkpoint,
            made in the background once in so many seconds of its running.
        seed: Seeds learning curves that the trace does not give, and estimation errors.
        error: Apps misjudge the work they have left by a factor drawn from 1 - error to
            1 + error, once for each app.
        lies: Factors by which named apps misreport the work they have left.
        round_gap_s: Rounds are held no closer together than this. At 0, a policy that moves jobs
            without need may do so for ever at one instant.
        failures: When machines go down and come back.
        record: Keep what each job ran on and when, for timelines.
    """

    arbiter: ArbiterConfig = field(default_factory=ArbiterConfig)
    ideal: Ideal = "paper"
    move: MoveCost = field(default_factory=MoveCost)
    checkpoint_every_s: float = 600.0
    seed: int = 0
    error: float = 0.0
    lies: Mapping[str, float] = field(default_factory=dict)
    round_gap_s: float = 1.0
    failures: tuple[Failure, ...] = ()
    record: bool = False

    def __post_init__(self) -> None:
        if not self.arbiter.notice_s > 0:
            raise ConfigError(
                "notice_s is 0: leases would end before they can be renewed; use 0.001 for next "
                "to none"
            )
        if not 0 < self.round_gap_s < self.arbiter.lease_s:
            raise ConfigError(
                f"round_gap_s is {self.round_gap_s}; use more than 0, less than a lease"
            )
        if not 0 <= self.error < 1:
            raise ConfigError(f"error is {self.error}; use a number from 0 to below 1")
        if not self.checkpoint_every_s > 0:
            raise ConfigError(f"checkpoint_every_s is {self.checkpoint_every_s}; use 1 or more")

    def belief(self, app: str) -> float:
        """By which factor an app's word on its work differs from the truth."""
        factor = self.lies.get(app, 1.0)
        if self.error:
            key = zlib.crc32(f"{self.seed}/error/{app}".encode())
            factor *= random.Random(key).uniform(1 - self.error, 1 + self.error)
        return factor
