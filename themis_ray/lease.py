"""Inside a trial: the lease that it runs on."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from dataclasses import dataclass, field
from typing import Any

# How often the arbiter is asked anew, in the background.
REFRESH_S = 1.0
# A process without a lease seldom gets one: Tune starts a new process for each.
_ASK_AGAIN_S = 10.0
# For how long the arbiter may not know a lease before it counts as ended.
_GONE_AFTER_S = 10.0


@dataclass(frozen=True, slots=True)
class CurrentLease:
    """A trial's lease, as of the last answer of the arbiter.

    Attributes:
        app: The app's name.
        group: The name of the trial's placement group.
        gpus: Leased units that the trial has.
        nodes: Units per machine (host and the start of Ray's node id).
        unit: ``"GPU"`` or ``"CPU"``.
    """

    app: str
    group: str
    gpus: int
    nodes: dict[str, int]
    unit: str
    _state: dict[str, Any] = field(repr=False)

    @property
    def seconds_left(self) -> float:
        """Seconds until the lease ends, unless it is renewed; never negative."""
        return max(0.0, float(self._state["expires_s"]) - time.monotonic())

    def should_checkpoint(self) -> bool:
        """Whether notice has been given: a long epoch should save and report now.

        Costs microseconds: a background thread keeps the answer up to date.
        """
        return bool(self._state["final"])


_lock = threading.Lock()
_current: CurrentLease | None = None
_no_lease_until_s = -math.inf


def current_lease() -> CurrentLease | None:
    """The lease of the trial in whose process this is called.

    The first call asks the arbiter; the others cost about a microsecond.

    Returns:
        The lease; None outside a trial, or in one that does not run under ``ThemisScheduler``.
    """
    global _current, _no_lease_until_s
    if _current is not None:
        return _current
    if time.monotonic() < _no_lease_until_s:
        return None
    with _lock:
        if _current is None:
            document = _ask()
            if document is None:
                _no_lease_until_s = time.monotonic() + _ASK_AGAIN_S
            else:
                _current = _lease_of(document)
                threading.Thread(
                    target=_keep_fresh, args=(_current,), name="themis-lease", daemon=True
                ).start()
        return _current


def _lease_of(document: dict[str, Any]) -> CurrentLease:
    return CurrentLease(
        app=document["app"],
        group=document["group"],
        gpus=sum(document["nodes"].values()),
        nodes=document["nodes"],
        unit=document["unit"],
        _state=_times(document),
    )


def _times(document: dict[str, Any]) -> dict[str, Any]:
    expires_s = time.monotonic() + document["expires_in_s"]
    return {"expires_s": expires_s, "final": document["final"]}


def _ask() -> dict[str, Any] | None:
    """Ask the arbiter about the placement group of this process; None when it has none."""
    import ray

    from themis_ray.live.client import find_actor

    if not ray.is_initialized():
        return None
    group = ray.util.get_current_placement_group()
    actor = find_actor() if group is not None else None
    if group is None or actor is None:
        return None
    call = actor.lease_of.options(concurrency_group="control").remote(group.id.hex())
    document: dict[str, Any] | None = ray.get(call, timeout=10)
    return document


def _keep_fresh(lease: CurrentLease) -> None:
    unknown_since_s: float | None = None
    while True:
        time.sleep(REFRESH_S)
        # The arbiter may be restarting: the last answer stands until it is back.
        with contextlib.suppress(Exception):
            document = _ask()
            if document is not None:
                unknown_since_s = None
                lease._state.update(_times(document))
                continue
            # One that has just restarted does not know its leases yet.
            unknown_since_s = unknown_since_s or time.monotonic()
            if time.monotonic() - unknown_since_s > _GONE_AFTER_S:
                lease._state["final"] = True
