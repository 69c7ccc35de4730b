"""What events about placement groups, and GPUs given back, do to the books.

They may come in any phase of a round and have no part in it. Each function says whether GPUs may
have come free, so that a round may be worth while.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from themis_ray.core import events as ev
from themis_ray.core import rounds
from themis_ray.core.app import App
from themis_ray.core.cluster import NOTHING
from themis_ray.core.commands import GroupRefused
from themis_ray.core.explain import Adopted, GaveBack, GroupNotCreated, NotHeld
from themis_ray.core.leases import Group, GroupState
from themis_ray.core.settings import ArbiterConfig
from themis_ray.core.state import State
from themis_ray.errors import ProtocolError


def adopt(
    state: State, app: App, groups: tuple[ev.HeldGroup, ...], now: float, config: ArbiterConfig
) -> None:
    """Take over groups made by an earlier arbiter, as far as their GPUs are free."""
    lease = state.new_lease(app, NOTHING, now, config.end_s(now))
    for held in groups:
        if held.id not in state.groups and held.allocation <= state.unclaimed():
            state.hold(lease, held.allocation, now)
            group = Group(held.id, app.id, held.allocation, now, GroupState.WAITING)
            state.groups[group.id] = app.groups[group.id] = group
            state.shift(group, "fits")
            state.shift(group, "ready")
    state.forget_if_empty(lease)
    if lease.held:
        rounds.remind(state, lease, config)
        state.changed[app.id] = Adopted(lease.held)


def _requested(state: State, event: ev.GroupRequested, now: float) -> bool:
    app = state.app(event.app)
    known = state.groups.get(event.group)
    if known is not None:
        if known.app == app.id and known.allocation == event.allocation:
            return False  # asked again after a broken connection
        raise ProtocolError(f"a group {event.group!r} exists already; name each request anew")
    if not event.allocation:
        raise ProtocolError(f"group {event.group!r} asks for no GPU")
    held = state.ledger.entitled(app.id)
    if not event.allocation <= held:
        reason = NotHeld(event.allocation, held)
        state.commands.append(GroupRefused(app.id, event.group, reason))
        # The AGENT has another view of its leases: tell it the true one.
        state.changed.setdefault(app.id, reason)
        return False
    group = Group(event.group, app.id, event.allocation, now)
    state.groups[group.id] = app.groups[group.id] = group
    state.waiting[group.id] = group
    return False


def _released(state: State, event: ev.GroupReleased, now: float) -> bool:
    app = state.app(event.app)
    group = app.groups.get(event.group)
    if group is not None:  # None: it is gone already, which is what was asked for
        state.end_group(group, GaveBack(group.allocation))
    return False  # not before it is gone


def _returned(state: State, event: ev.GpusReturned, now: float) -> bool:
    app = state.app(event.app)
    # A group of the app may be leaving still: what is not idle yet stays with the app, which
    # is told what it has and gives the rest back later.
    left = event.allocation & state.ledger.idle(app.id)
    state.changed.setdefault(app.id, GaveBack(left))
    for lease in sorted(app.leases.values(), key=lambda x: x.expires_s):
        given = left & lease.held
        left = left - given
        state.unhold(lease, given, now)
    return True


def _ready(state: State, event: ev.GroupReady, now: float) -> bool:
    group = _group(state, event.group)
    if not state.shift(group, "ready"):
        raise ProtocolError(f"group {group.id!r} is {group.state.value}, not being created")
    return False


def _failed(state: State, event: ev.GroupFailed, now: float) -> bool:
    group = _group(state, event.group)
    wanted = group.state is GroupState.CREATING
    if not state.shift(group, "failed"):
        raise ProtocolError(f"group {group.id!r} is {group.state.value}, not being created")
    if wanted:
        reason = GroupNotCreated(event.why)
        state.commands.append(GroupRefused(group.app, group.id, reason))
    return _left(state, group, now)


def _gone(state: State, event: ev.GroupGone, now: float) -> bool:
    group = _group(state, event.group)
    if not state.shift(group, "gone"):
        raise ProtocolError(f"group {group.id!r} is {group.state.value}: it never existed")
    return _left(state, group, now)


def _left(state: State, group: Group, now: float) -> bool:
    app = state.apps.get(group.app)
    if app is not None:
        state.trim_final(app, now)
    return True


def _group(state: State, name: str) -> Group:
    group = state.groups.get(name)
    if group is None:
        raise ProtocolError(f"no group {name!r}")
    return group


GROUP_EVENTS: Mapping[type[Any], Callable[[State, Any, float], bool]] = {
    ev.GroupRequested: _requested,
    ev.GroupReleased: _released,
    ev.GpusReturned: _returned,
    ev.GroupReady: _ready,
    ev.GroupFailed: _failed,
    ev.GroupGone: _gone,
}
