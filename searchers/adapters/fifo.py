"""``FIFOScheduler``: every trial runs to its own end, in the order in which Tune made them."""

from __future__ import annotations

from typing import Any

from ray.tune.schedulers import FIFOScheduler

from ..api import AllTrials, Search
from ..registry import register
from .unknown import UnknownAdapter


@register(FIFOScheduler)
def fifo_or_unknown(scheduler: Any) -> Search:
    """Schedulers are often derived from FIFO for its helpers only: those are not known."""
    return AllTrials(scheduler) if type(scheduler) is FIFOScheduler else UnknownAdapter(scheduler)
