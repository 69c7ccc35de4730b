"""Which apps are *calm*: they hold just what they want, and say so when they want something else.

A round can give nothing to a calm app, and need take nothing from it as long as there are GPUs for
everybody. In a large cluster most apps are calm most of the time. So the books keep the others, the
*restless* ones, from change to change: what comes and goes then costs time in proportion to those
that it concerns, and not to all apps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from themis_ray.core.app import App
from themis_ray.core.leases import Lease


def is_calm(app: App) -> bool:
    """Whether an app has just what it wants, and will say so when it wants something else."""
    report = app.report
    if not report.steady or report.pinned.size:
        return False
    left = report.wants
    for lease in app.leases.values():
        if lease.final or lease.pending.size:
            return False
        left -= lease.held.size
    return left == 0


@dataclass(slots=True)
class Restless:
    """The apps, parted into calm and restless ones.

    Whatever :func:`is_calm` looks at may only be changed together with a call of :meth:`look_at`.
    """

    # All that is here follows from the apps: it is no part of what the arbiter remembers.
    _apps: dict[str, App] = field(default_factory=dict, repr=False)
    # The leases of the calm apps by id, and which of these are whose.
    _calm: dict[str, Lease] = field(default_factory=dict, repr=False)
    _calm_of: dict[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    _stale: dict[str, App] = field(default_factory=dict, repr=False)

    def look_at(self, app: App) -> None:
        """Something about an app has changed."""
        self._stale[app.id] = app

    def forget(self, name: str) -> None:
        """An app has left."""
        self._stale.pop(name, None)
        self._apps.pop(name, None)
        for key in self._calm_of.pop(name, ()):
            del self._calm[key]

    @property
    def apps(self) -> dict[str, App]:
        """The restless apps by name, in no order; not to be changed."""
        self._refresh()
        return self._apps

    @property
    def calm(self) -> dict[str, Lease]:
        """The leases of the calm apps by id, in no order; not to be changed."""
        self._refresh()
        return self._calm

    def concerned(self, leases: Iterable[Lease], holders: dict[str, App]) -> list[App]:
        """The restless apps and the holders of some leases, in the order in which they joined.

        Args:
            leases: The leases.
            holders: All apps by name; a lease whose holder is not among them is passed over.
        """
        some = dict(self.apps)
        for lease in leases:
            if lease.app not in some and lease.app in holders:
                some[lease.app] = holders[lease.app]
        return sorted(some.values(), key=_serial)

    def _refresh(self) -> None:
        if not self._stale:
            return
        for name, app in self._stale.items():
            for key in self._calm_of.pop(name, ()):
                del self._calm[key]
            if is_calm(app):
                self._apps.pop(name, None)
                self._calm_of[name] = tuple(app.leases)
                self._calm.update(app.leases)
            else:
                self._apps[name] = app
        self._stale.clear()


def _serial(app: App) -> int:
    return app.serial
