"""``optimus``: each GPU to the job whose throughput it raises most."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from themis_ray.core.policies.base import RoundView
from themis_ray.core.policies.filling import Filling
from themis_ray.core.policies.ranked import Key
from themis_ray.core.policies.takers import Taker
from themis_ray.errors import ConfigError


@dataclass(frozen=True)
class Optimus(Filling):
    """Greedy marginal gains (Peng et al., EuroSys '18, section 4.1; THEMIS, section 8.1).

    Throughputs are those of the best placement that the cluster allows for so many GPUs, with
    the job's own slowdowns. A GPU that would not raise any throughput is left idle.

    Args:
        gain: ``ratio``: throughput with the GPU over throughput without it, as THEMIS compares
            with it; ``time``: seconds by which it shortens the rest of the job, the rule of the
            Optimus paper itself.
    """

    gain: Literal["ratio", "time"] = "ratio"

    name: ClassVar[str] = "optimus"

    def __post_init__(self) -> None:
        if self.gain not in ("ratio", "time"):
            raise ConfigError(f"gain {self.gain!r}; use 'ratio' or 'time'")

    def step_key(
        self, taker: Taker, gpus: int, step: int, of_app: int, view: RoundView
    ) -> Key | None:
        """The gain per added GPU, negated; infinite for a job that has none yet."""
        before, after = taker.rate(gpus, view), taker.rate(gpus + step, view)
        if gpus < taker.job.min_gpus:
            return (-math.inf,)
        if after <= before:
            return None
        if self.gain == "ratio":
            return (-(after / before - 1) / step,)
        return (-taker.job.work_left_gpu_s * (1 / before - 1 / after) / step,)
