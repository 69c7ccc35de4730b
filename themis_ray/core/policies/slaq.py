"""``slaq``: each GPU to the job whose loss it lowers most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from themis_ray.core.policies.base import RoundView
from themis_ray.core.policies.filling import Filling
from themis_ray.core.policies.ranked import Key
from themis_ray.core.policies.takers import Taker

SHORTEST_ITER_S = 1e-9


@dataclass(frozen=True)
class Slaq(Filling):
    """Quality-driven scheduling (Zhang et al., SoCC '17, section 4; THEMIS, section 8.1).

    The gain of a step is the decrease of the loss that it adds, per second and GPU: the decrease
    over an iteration times the iterations that are done more. Jobs whose decrease is not known
    come last. Losses are compared as reported: normalise them if the jobs' losses differ in kind.
    """

    name: ClassVar[str] = "slaq"

    def step_key(
        self, taker: Taker, gpus: int, step: int, of_app: int, view: RoundView
    ) -> Key | None:
        """The loss decrease per second and added GPU, negated."""
        faster = taker.rate(gpus + step, view) - taker.rate(gpus, view)
        if faster <= 0 and gpus:
            return None
        per_iteration = taker.job.loss_decrease / max(taker.job.serial_iter_s, SHORTEST_ITER_S)
        return (-per_iteration * faster / step,)
