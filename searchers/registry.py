"""Which adapter tells the AGENT of which Tune scheduler."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import ConfigError
from .api import PhaseSearch, RemainingSearch, Search

Made = TypeVar("Made", bound=Callable[[Any], Search])

_adapters: dict[type, Callable[[Any], Search]] = {}


def register(scheduler: type) -> Callable[[Made], Made]:
    """Decorate an adapter: it is used for that class of schedulers and for those derived from it.

    The adapter is called with the scheduler. A later registration for the same class replaces an
    earlier one, so adapters that come with this package can be replaced too.

    Args:
        scheduler: A class of Tune schedulers.
    """

    def decorate(adapter: Made) -> Made:
        _adapters[scheduler] = adapter
        return adapter

    return decorate


def search_for(scheduler: Any) -> Search:
    """The search that tells of a scheduler.

    A scheduler that is a :class:`~themis_ray.searchers.api.Search` itself tells of itself; else
    the adapter registered for the nearest class it is derived from does; for an unknown one,
    all its trials are taken to run to their ends.

    Raises:
        ConfigError: What the registered adapter makes is no search.
    """
    if isinstance(scheduler, PhaseSearch | RemainingSearch):
        return scheduler
    importlib.import_module(".adapters", __package__)
    for cls in type(scheduler).__mro__:
        adapter = _adapters.get(cls)
        if adapter is not None:
            return _make(adapter, scheduler)
    unknown = importlib.import_module(".adapters.unknown", __package__)
    made: Search = unknown.UnknownAdapter(scheduler)
    return made


def _make(adapter: Callable[[Any], Search], scheduler: Any) -> Search:
    search = adapter(scheduler)
    if not isinstance(search, PhaseSearch | RemainingSearch):
        raise ConfigError(
            f"the adapter registered for {type(scheduler).__name__} made {search!r}; derive it "
            "from themis_ray.searchers.PhaseSearch or RemainingSearch"
        )
    return search
