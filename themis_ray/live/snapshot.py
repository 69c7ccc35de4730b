"""The arbiter's state as one JSON-ready document: what ``themis status`` and ``why`` show."""

from __future__ import annotations

import math
from copy import copy
from typing import Any

from themis_ray.core.state import App
from themis_ray.live.driver import LiveDriver


def _finite(value: float) -> float | None:
    """JSON has no infinity: None stands for it."""
    return value if math.isfinite(value) else None


def snapshot(driver: LiveDriver, started_s: float) -> dict[str, Any]:
    """Who holds what, until when, and why.

    Args:
        driver: The live driver.
        started_s: When the arbiter started, on the driver's clock.
    """
    core, now = driver.core, driver.now()
    state = core.state
    free = state.ledger.free()
    apps = [app_document(driver, app, now) for app in state.apps.values()]
    worst = [a["r"] for a in apps if a["r"] is not None]
    return {
        "policy": core.policy.name,
        "lease_s": core.config.lease_s,
        "unit": driver.watch.unit,
        "uptime_s": now - started_s,
        "round": core.rounds,
        "phase": core.phase.value,
        "nodes": [
            {
                "id": m.id,
                "name": m.id,
                "node_id": driver.node_ids.get(m.id, ""),
                "rack": m.rack,
                "gpus": m.gpus,
                "free": free.on(m.id),
                "foreign": driver.watch.foreign(m.id),
            }
            for m in state.cluster.machines
        ],
        "apps": apps,
        "max_r": max(worst, default=None),
        "journal": journal_document(driver),
    }


def journal_document(driver: LiveDriver) -> dict[str, Any] | None:
    """Where the journal is, on the arbiter's node, and what is wrong with it; None without one."""
    journal = driver.journal
    return None if journal is None else {"path": str(journal.path), "error": journal.error}


def app_document(driver: LiveDriver, app: App, now: float) -> dict[str, Any]:
    """One app of :func:`snapshot`."""
    # Looking changes nothing, not even by a rounding error: a journal must replay to the same.
    state = driver.core.state
    held = state.ledger.entitled(app.id).size
    contention = copy(state.contention)
    return {
        "id": app.id,
        "weight": app.weight,
        "r": _finite(app.report.r),
        "t_shared_s": _finite(app.report.t_shared_s),
        "t_ideal_s": _finite(app.report.t_ideal_s),
        "wants": app.report.wants,
        "held": held,
        "attained_gpu_s": app.attained_gpu_s + held * (now - app.touched_s),
        "joined_ago_s": now - app.joined_s,
        "n_avg": contention.average(now, app.joined_s, app.joined_integral_s),
        "leases": [
            {
                "id": lease.id,
                "gpus": dict(lease.held),
                "pending": dict(lease.pending),
                "expires_in_s": lease.expires_s - now,
                "final": lease.final,
            }
            for lease in app.leases.values()
        ],
        "groups": [
            {
                "id": group.id,
                "state": group.state.value,
                "gpus": dict(group.allocation),
                "label": group.id.rsplit("/", 2)[-2] if "/" in group.id else group.id,
            }
            for group in app.groups.values()
        ],
        "reason": app.reason.as_json(),
    }


def explanation(driver: LiveDriver, name: str) -> dict[str, Any]:
    """Why one app has what it has, and what would change it.

    Raises:
        UnknownAppError: No such app is or was here.
    """
    core, now = driver.core, driver.now()
    reason = core.reason(name)
    app = core.state.apps.get(name)
    document: dict[str, Any] = {"app": name, "reason": reason.as_json(), "live": app is not None}
    if app is not None:
        document.update(app_document(driver, app, now))
        document["app"] = name
        document["notes"] = list(app.report.notes)
    expiries = [x.expires_s for a in core.state.apps.values() for x in a.leases.values()]
    if expiries:
        document["next_lease_end_in_s"] = max(0.0, min(expiries) - now)
    return document


def lease_document(driver: LiveDriver, placement_group_id: str) -> dict[str, Any] | None:
    """The lease behind one of Ray's placement groups; None when the arbiter did not make it."""
    names = [g for g, i in driver.placement_groups.items() if i == placement_group_id]
    group = driver.core.state.groups.get(names[0]) if names else None
    app = driver.core.state.apps.get(group.app) if group else None
    if group is None or app is None:
        return None
    on_its_nodes = [x for x in app.leases.values() if x.held & group.allocation]
    ends = min((x.expires_s for x in on_its_nodes), default=driver.now())
    return {
        "app": app.id,
        "group": group.id,
        "nodes": dict(group.allocation),
        "unit": driver.watch.unit,
        "expires_in_s": ends - driver.now(),
        "final": not on_its_nodes or any(x.final for x in on_its_nodes),
    }
