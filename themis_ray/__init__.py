"""themis_ray: share a GPU cluster fairly among Ray Tune experiments (THEMIS, NSDI '20).

::

    import themis_ray
    from ray import tune

    tune.run(train, scheduler=themis_ray.ThemisScheduler(), num_samples=8)

Parts load when they are first used: importing this package imports neither Ray nor torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from themis_ray.errors import ThemisError

if TYPE_CHECKING:
    from themis_ray.lease import CurrentLease, current_lease
    from themis_ray.live.client import explain, start, status, stop
    from themis_ray.tune.callback import ThemisMLflowCallback
    from themis_ray.tune.scheduler import ThemisScheduler

__version__ = "0.1.0"

_HOME = {
    "CurrentLease": "themis_ray.lease",
    "ThemisMLflowCallback": "themis_ray.tune.callback",
    "ThemisScheduler": "themis_ray.tune.scheduler",
    "current_lease": "themis_ray.lease",
    "explain": "themis_ray.live.client",
    "start": "themis_ray.live.client",
    "status": "themis_ray.live.client",
    "stop": "themis_ray.live.client",
}

__all__ = [
    "CurrentLease",
    "ThemisError",
    "ThemisMLflowCallback",
    "ThemisScheduler",
    "__version__",
    "current_lease",
    "explain",
    "start",
    "status",
    "stop",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)
