"""The state of the cluster as people look at it: one model for tables, JSON and pages.

It is built from the arbiter's status document. Fields that a document lacks take a neutral value,
so that a newer command can show an older arbiter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReasonView:
    """Why an app has what it has, and what would change it."""

    kind: str = ""
    text: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class LeaseView:
    """A lease: its GPUs per node, those still to come, and when it ends (seconds from now)."""

    id: str
    gpus: Mapping[str, int]
    pending: Mapping[str, int]
    expires_in_s: float
    final: bool


@dataclass(frozen=True, slots=True)
class GroupView:
    """A placement group of one trial."""

    id: str
    state: str
    gpus: Mapping[str, int]
    label: str


@dataclass(frozen=True, slots=True)
class AppView:
    """One app.

    Attributes:
        id: Its name.
        r: Finish-time fairness; ``inf`` while it would never finish.
        t_shared_s: Its finish time in the shared cluster, seconds from its start.
        t_ideal_s: Its finish time on a 1/N share, seconds from its start.
        wants: GPUs that it can use now, those held included.
        held: GPUs that it holds.
        weight: Its share is scaled by this.
        attained_gpu_s: GPU-seconds that it has had.
        joined_ago_s: Seconds since it joined.
        leases: Its leases.
        groups: Its placement groups.
        reason: The last decision about it.
        notes: What its AGENT remarks on.
    """

    id: str
    r: float
    t_shared_s: float
    t_ideal_s: float
    wants: int
    held: int
    weight: float
    attained_gpu_s: float
    joined_ago_s: float
    leases: tuple[LeaseView, ...]
    groups: tuple[GroupView, ...]
    reason: ReasonView
    notes: tuple[str, ...] = ()

    @property
    def gpus(self) -> Mapping[str, int]:
        """GPUs that it holds, per node."""
        return added(lease.gpus for lease in self.leases)

    @property
    def next_expiry(self) -> LeaseView | None:
        """Its lease that ends first."""
        return min(self.leases, key=lambda lease: lease.expires_in_s, default=None)


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node.

    Attributes:
        id: Its id in Ray.
        name: Its name for people.
        rack: Its rack.
        gpus: Units that can be leased.
        free: Those of them that nobody holds.
        foreign: Units besides, which other Ray jobs use.
    """

    id: str
    name: str
    rack: str
    gpus: int
    free: int
    foreign: int


@dataclass(frozen=True, slots=True)
class StatusView:
    """The whole cluster. Apps stand worst-off first, nodes by rack and name."""

    policy: str
    lease_s: float
    unit: str
    uptime_s: float
    round: int
    max_r: float | None
    nodes: tuple[NodeView, ...]
    apps: tuple[AppView, ...]

    @property
    def total(self) -> int:
        """Units that can be leased."""
        return sum(node.gpus for node in self.nodes)

    @property
    def free(self) -> int:
        """Units that nobody holds."""
        return sum(node.free for node in self.nodes)

    @property
    def foreign(self) -> int:
        """Units that other Ray jobs use."""
        return sum(node.foreign for node in self.nodes)

    def node_name(self, node: str) -> str:
        """The name of a node, for its id."""
        return next((n.name for n in self.nodes if node in (n.id, n.name)), node[:8])

    def holders(self, node: NodeView) -> Mapping[str, int]:
        """Units of ``node`` per app."""
        counts = {
            app.id: app.gpus.get(node.id, 0)
            + (app.gpus.get(node.name, 0) if node.name != node.id else 0)
            for app in self.apps
        }
        return {app: count for app, count in counts.items() if count}


def added(counts: Any) -> dict[str, int]:
    """The sum of several counts per node."""
    total: dict[str, int] = {}
    for per_node in counts:
        for node, count in per_node.items():
            total[node] = total.get(node, 0) + count
    return total


def status_view(document: Document) -> StatusView:
    """The view of a status document."""
    apps = [app_view(app) for app in _items(document, "apps")]
    nodes = [_node(node) for node in _items(document, "nodes")]
    max_r = document.get("max_r")
    rounds = document.get("round")
    return StatusView(
        policy=str(document.get("policy", "")),
        lease_s=_seconds(document.get("lease_s")),
        unit=str(document.get("unit") or "GPU"),
        uptime_s=_seconds(document.get("uptime_s")),
        round=rounds if isinstance(rounds, int) else 0,
        max_r=None if max_r is None and not apps else _r(max_r),
        nodes=tuple(sorted(nodes, key=lambda n: (n.rack, n.name))),
        apps=tuple(sorted(apps, key=lambda a: (-a.r, a.id))),
    )


def app_view(document: Document) -> AppView:
    """The view of one app, from a status document or from an explanation."""
    leases = tuple(_lease(lease) for lease in _items(document, "leases"))
    held = document.get("held")
    return AppView(
        id=str(document.get("id") or document.get("app") or ""),
        r=_r(document.get("r")),
        t_shared_s=_r(document.get("t_shared_s")),
        t_ideal_s=_r(document.get("t_ideal_s")),
        wants=int(document.get("wants") or 0),
        held=held if isinstance(held, int) else sum(added(x.gpus for x in leases).values()),
        weight=float(document.get("weight") or 1.0),
        attained_gpu_s=_seconds(document.get("attained_gpu_s")),
        joined_ago_s=_seconds(document.get("joined_ago_s")),
        leases=leases,
        groups=tuple(_group(group) for group in _items(document, "groups")),
        reason=_reason(document.get("reason") or {}),
        notes=tuple(str(note) for note in document.get("notes") or ()),
    )


def _node(document: Document) -> NodeView:
    node = str(document["id"])
    return NodeView(
        id=node,
        name=str(document.get("name") or node[:8]),
        rack=str(document.get("rack") or ""),
        gpus=int(document.get("gpus") or 0),
        free=int(document.get("free") or 0),
        foreign=int(document.get("foreign") or 0),
    )


def _lease(document: Document) -> LeaseView:
    return LeaseView(
        id=str(document["id"]),
        gpus=dict(document.get("gpus") or {}),
        pending=dict(document.get("pending") or {}),
        expires_in_s=_seconds(document.get("expires_in_s")),
        final=bool(document.get("final")),
    )


def _group(document: Document) -> GroupView:
    return GroupView(
        id=str(document["id"]),
        state=str(document.get("state") or ""),
        gpus=dict(document.get("gpus") or {}),
        label=str(document.get("label") or ""),
    )


def _reason(document: Document) -> ReasonView:
    return ReasonView(*(str(document.get(name) or "") for name in ("kind", "text", "remedy")))


def _items(document: Document, name: str) -> Sequence[Document]:
    return document.get(name) or ()


def _r(value: float | None) -> float:
    """A figure that JSON has no word for when it is infinite: null there."""
    return math.inf if value is None else float(value)


def _seconds(value: float | None) -> float:
    return 0.0 if value is None else float(value)
