"""Draws the view model with rich."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rich.console import Group
from rich.table import Table
from rich.text import Text

from themis_ray.reporting.view import AppView, NodeView, StatusView


def duration(seconds: float) -> str:
    """Seconds as people say them: ``45 s``, ``9 min 30 s``, ``2 h 5 min``, ``3 d 4 h``."""
    if not math.isfinite(seconds):
        return "for ever"
    whole = round(max(0.0, seconds))
    for size, unit, small_size, small_unit in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // small_size
            return f"{whole // size} {unit}" + (f" {rest} {small_unit}" if rest else "")
    return f"{whole} s"


def figure(r: float) -> str:
    """r with two digits after the point."""
    return "infinite" if math.isinf(r) else f"{r:.2f}"


def _r_text(r: float) -> Text:
    # r <= 1 is the promise of sharing; above it the app is worse off than alone on its share.
    return Text(figure(r), style="green" if r <= 1 else "red" if math.isinf(r) else "yellow")


def status_table(view: StatusView) -> Group:
    """The whole status: a headline, the apps and the nodes."""
    return Group(_headline(view), _apps(view), _nodes(view))


def _headline(view: StatusView) -> Text:
    parts = [
        f"policy {view.policy}",
        f"lease {duration(view.lease_s)}",
        f"round {view.round}",
        f"{view.total} {view.unit}s: {view.total - view.free} taken, {view.free} free"
        + (f" (and {view.foreign} used by other Ray jobs)" if view.foreign else ""),
        f"max r {'-' if view.max_r is None else figure(view.max_r)}",
        f"up {duration(view.uptime_s)}",
    ]
    return Text(" | ".join(parts), style="bold")


def _apps(view: StatusView) -> Table | Text:
    if not view.apps:
        return Text("no apps; one joins with tune.run(..., scheduler=ThemisScheduler())")
    table = Table("App", title="Apps, worst-off first", title_justify="left")
    table.add_column("r", justify="right")
    table.add_column(f"{view.unit}s", justify="right")
    table.add_column("Where")
    table.add_column("Lease ends in", justify="right")
    table.add_column("Why", ratio=1)
    for app in view.apps:
        table.add_row(
            Text(app.id),
            _r_text(app.r),
            f"{app.held} of {app.wants}",
            Text(_where(app, view)),
            Text(_ends(app)),
            Text(app.reason.text),
        )
    return table


def _where(app: AppView, view: StatusView) -> str:
    parts = [_counts(app.gpus, view)] if app.gpus else []
    pending: dict[str, int] = {}
    for lease in app.leases:
        for node, count in lease.pending.items():
            pending[node] = pending.get(node, 0) + count
    if pending:
        parts.append(f"to come: {_counts(pending, view)}")
    return "; ".join(parts) or "-"


def _counts(gpus: Mapping[str, int], view: StatusView) -> str:
    return ", ".join(f"{view.node_name(node)}:{count}" for node, count in sorted(gpus.items()))


def _ends(app: AppView) -> str:
    lease = app.next_expiry
    if lease is None:
        return "-"
    return duration(lease.expires_in_s) + (" (last)" if lease.final else "")


def _nodes(view: StatusView) -> Table | Text:
    if not view.nodes:
        return Text(f"no node has a {view.unit} to lease")
    table = Table("Node", "Rack", title="Nodes", title_justify="left")
    for name in (f"{view.unit}s", "Free", "Others"):
        table.add_column(name, justify="right")
    table.add_column("Held by", ratio=1)
    for node in view.nodes:
        table.add_row(
            Text(node.name),
            Text(node.rack or "-"),
            str(node.gpus),
            str(node.free),
            str(node.foreign),
            Text(_holders(view, node)),
        )
    return table


def _holders(view: StatusView, node: NodeView) -> str:
    held = view.holders(node).items()
    return ", ".join(f"{app}:{count}" for app, count in held) or "-"


def explanation(app: AppView) -> Text:
    """The last decision about an app, and what would change it."""
    reason = app.reason
    text = Text()
    text.append(app.id, style="bold")
    text.append(f" {reason.text}\n" if reason.text else " has no decision yet\n")
    if reason.remedy:
        text.append(f"what would change it: {reason.remedy}\n")
    if app.wants or app.held:
        text.append(f"r {figure(app.r)}, holds {app.held} of the {app.wants} it can use")
    for note in app.notes:
        text.append(f"\n- {note}")
    return text
