"""``strawman``: the app that is worst off takes all that it can use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from themis_ray.core.policies.auctioning import waited
from themis_ray.core.policies.base import RoundView
from themis_ray.core.policies.ranked import Key, Ranked
from themis_ray.core.policies.takers import Taker


@dataclass(frozen=True)
class Strawman(Ranked):
    """Apps sorted by r, worst first, and served greedily when leases end.

    The strawman of THEMIS (NSDI '20, section 3.3): fair to the worst-off, blind to placement and
    to what the GPUs would be worth to others. What PCS calls "Themis" is this rule.
    """

    name: ClassVar[str] = "strawman"

    def key(self, taker: Taker, view: RoundView) -> Key:
        """The app's r, negated; apps that hold nothing by elapsed / T_id."""
        return (-taker.app.report.r, -waited(taker.app, view.now_s))
