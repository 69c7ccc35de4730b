"""``best-effort``: first in, first out, without head-of-line blocking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from themis_ray.core.policies.base import RoundView
from themis_ray.core.policies.ranked import Key, Ranked
from themis_ray.core.policies.takers import Taker


@dataclass(frozen=True)
class BestEffort(Ranked):
    """Jobs in order of arrival; one that does not fit is skipped, and nobody is preempted.

    YARN-CS less its head-of-line blocking (Tiresias, NSDI '19, section 5.4, Table 5).
    """

    name: ClassVar[str] = "best-effort"
    keeps: ClassVar[bool] = True

    def key(self, taker: Taker, view: RoundView) -> Key:
        """When its app joined."""
        return (taker.app.joined_s,)
