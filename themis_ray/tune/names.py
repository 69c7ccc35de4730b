"""Guards against two apps of one process whose trainables share a name.

Tune keeps trainables by name for each driver and looks them up again when a trial resumes: a
second app with a function of the same name would have the first app's trials go on with its code.
"""

from __future__ import annotations

from typing import Any

from ray.tune.registry import TRAINABLE_CLASS, _global_registry

from themis_ray.errors import ConfigError

_owners: dict[str, tuple[str, Any]] = {}


def claim(trial: Any, app: str) -> None:
    """Note that an app uses a trainable.

    Args:
        trial: A Tune trial of the app.
        app: The app's name.

    Raises:
        ConfigError: Another app of this process uses the name for other code; that app's own
            code is put back under the name.
    """
    name = trial.trainable_name
    if not _global_registry.contains(TRAINABLE_CLASS, name):
        return
    current = _global_registry.get(TRAINABLE_CLASS, name)
    owner, theirs = _owners.setdefault(name, (app, current))
    if owner != app and theirs is not current:
        _global_registry.register(TRAINABLE_CLASS, name, theirs)
        raise ConfigError(
            f"apps {owner!r} and {app!r} of this process both have a trainable called {name!r}; "
            f"give {app!r}'s another name, or register it under one: "
            "tune.register_trainable('my_name', trainable)"
        )


def release(app: str) -> None:
    """An app is over: its names are free."""
    for name in [n for n, (owner, _) in _owners.items() if owner == app]:
        del _owners[name]
