"""The arbiter's books: apps, leases, groups, and the elementary changes to them.

:mod:`themis_ray.core.arbiter` decides *when*; this module knows *how*. Nothing here reads a clock.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from themis_ray.core.app import App as App
from themis_ray.core.cluster import NOTHING, Allocation, Cluster, total
from themis_ray.core.commands import (
    Command,
    CreateGroup,
    GroupRefused,
    LeasesChanged,
    RemoveGroup,
)
from themis_ray.core.explain import CapacityLost, Handover, LeaseEnded, NotHeld, Reason
from themis_ray.core.fairness import Contention
from themis_ray.core.leases import GROUP_TRANSITIONS, Group, GroupState, Lease, Ledger
from themis_ray.core.restless import Restless
from themis_ray.core.slowdown import MeasuredSlowdown, Signature
from themis_ray.errors import UnknownAppError

# Of so many apps that have left it is remembered why.
DEPARTED = 1000
# Of so many models, and so many placements of each, it is remembered how slow they are.
MODELS = 1000
PLACEMENTS = 100


@dataclass(slots=True)
class State:
    """All that the arbiter remembers between events."""

    cluster: Cluster = field(default_factory=Cluster)
    apps: dict[str, App] = field(default_factory=dict)
    departed: dict[str, Reason] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    contention: Contention = field(default_factory=Contention)
    commands: list[Command] = field(default_factory=list)
    # Apps whose leases changed in this event, and why: told once, at its end.
    changed: dict[str, Reason] = field(default_factory=dict)
    pending: dict[str, Lease] = field(default_factory=dict)
    waiting: dict[str, Group] = field(default_factory=dict)
    timers: list[tuple[float, str, str]] = field(default_factory=list)
    # S(G) as apps have measured it, by model; kept when they leave.
    slowdowns: dict[str, dict[Signature, float]] = field(default_factory=dict)
    restless: Restless = field(default_factory=Restless)
    # When leases end, the next one first, with what is out of date not taken out yet.
    ends: list[tuple[float, int, Lease]] = field(default_factory=list)
    _lease_ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _app_serials: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    # -- apps -----------------------------------------------------------------------------

    def app(self, name: str) -> App:
        """A registered app.

        Raises:
            UnknownAppError: No such app is here.
        """
        found = self.apps.get(name)
        if found is None:
            known = ", ".join(sorted(self.apps)) or "none"
            raise UnknownAppError(f"no app {name!r} is registered; registered are: {known}")
        return found

    def enter(self, app: App) -> None:
        """An app has joined."""
        app.serial = next(self._app_serials)
        self.apps[app.id] = app
        self.departed.pop(app.id, None)
        self.restless.look_at(app)
        self.learn(app.report.measured)

    def leave(self, name: str, reason: Reason) -> None:
        """An app has left; of those that did long ago nothing is remembered."""
        del self.apps[name]
        self.restless.forget(name)
        self.departed[name] = reason
        if len(self.departed) > DEPARTED:
            del self.departed[next(iter(self.departed))]

    # -- placement slowdowns ----------------------------------------------------------------

    def learn(self, measured: Iterable[MeasuredSlowdown]) -> None:
        """Remember what apps measure, the newest of each placement."""
        for entry in measured:
            known = self.slowdowns.setdefault(entry.model, {})
            known.pop(entry.signature, None)
            known[entry.signature] = entry.s
            if len(known) > PLACEMENTS:
                del known[next(iter(known))]
            if len(self.slowdowns) > MODELS:
                del self.slowdowns[next(iter(self.slowdowns))]

    def measured_of(self, app: App) -> tuple[MeasuredSlowdown, ...]:
        """What is known of an app's models beyond what it has told itself."""
        if not self.slowdowns:
            return ()
        told = {(entry.model, entry.signature) for entry in app.report.measured}
        models = sorted({job.model for job in app.report.jobs} & self.slowdowns.keys())
        return tuple(
            MeasuredSlowdown(model, signature, s)
            for model in models
            for signature, s in self.slowdowns[model].items()
            if (model, signature) not in told
        )

    # -- time -----------------------------------------------------------------------------

    def at(self, time_s: float, app: str, lease: str = "") -> None:
        """Remember to look at an app's lease (or at its overdue groups) at a time."""
        heapq.heappush(self.timers, (time_s, app, lease))

    def has_due(self, now: float) -> bool:
        """Whether a remembered time has come."""
        return bool(self.timers) and self.timers[0][0] <= now

    def due(self, now: float) -> list[tuple[str, str]]:
        """Take the (app, lease) pairs whose time has come."""
        out = []
        while self.has_due(now):
            _, app, lease = heapq.heappop(self.timers)
            out.append((app, lease))
        return out

    def drop_stale(self) -> None:
        """Forget the next times to look at leases that there are no more."""
        timers = self.timers
        while timers:
            _, name, lease = timers[0]
            app = self.apps.get(name)
            if app is not None and (not lease or lease in app.leases):
                return
            heapq.heappop(timers)

    def ending(self, by_s: float) -> list[Lease]:
        """Leases that hold GPUs, are undecided, and end by a time, in the order of the books."""
        out, again, ends = [], [], self.ends
        while ends and ends[0][0] <= by_s:
            entry = heapq.heappop(ends)
            lease = entry[2]
            app = self.apps.get(lease.app)
            if app is None or app.leases.get(lease.id) is not lease or lease.final:
                continue
            if lease.expires_s > entry[0]:
                entry = (lease.expires_s, entry[1], lease)
            elif lease.held:
                out.append((app.serial, entry[1], lease))
            again.append(entry)
        for entry in again:
            heapq.heappush(ends, entry)
        return [lease for _, _, lease in sorted(out, key=lambda x: x[:2])]

    def n_avg(self, app: App, now: float) -> float:
        """Mean number of apps during an app's life."""
        return self.contention.average(now, app.joined_s, app.joined_integral_s)

    # -- entitlement ----------------------------------------------------------------------

    def touch(self, app: App, now: float) -> None:
        """Bring the app's attained service up to ``now``."""
        if now > app.touched_s:
            held = self.ledger.entitled_size(app.id)
            app.attained_gpu_s += held * (now - app.touched_s)
            app.touched_s = now

    def hold(self, lease: Lease, gpus: Allocation, now: float) -> None:
        """Give a lease GPUs that are free."""
        if gpus:
            app = self.apps[lease.app]
            self.touch(app, now)
            self.restless.look_at(app)
            lease.held = lease.held + gpus
            self.ledger.entitle(lease.app, gpus)

    def unhold(self, lease: Lease, gpus: Allocation, now: float) -> None:
        """Take GPUs from a lease; a lease with nothing left is forgotten."""
        app = self.apps[lease.app]
        if gpus:
            self.touch(app, now)
            lease.held = lease.held - gpus
            self.ledger.entitle(lease.app, gpus, -1)
        self.forget_if_empty(lease)

    def forget_if_empty(self, lease: Lease) -> None:
        """Drop a lease that neither holds nor awaits anything."""
        self.restless.look_at(self.apps[lease.app])
        if not lease.pending:
            self.pending.pop(lease.id, None)
            if not lease.held:
                self.apps[lease.app].leases.pop(lease.id, None)

    def new_lease(self, app: App, pending: Allocation, now: float, expires_s: float) -> Lease:
        """A lease that holds nothing yet and awaits ``pending``."""
        serial = next(self._lease_ids)
        lease = Lease(f"L{serial}", app.id, NOTHING, pending, now, expires_s)
        app.leases[lease.id] = lease
        self.pending[lease.id] = lease
        self.restless.look_at(app)
        heapq.heappush(self.ends, (expires_s, serial, lease))
        return lease

    def move(self, old: Lease, new: Lease, gpus: Allocation) -> None:
        """Renew: GPUs go from an app's old lease to its new one without being given up."""
        old.held = old.held - gpus
        new.held = new.held + gpus
        new.pending = new.pending - gpus
        self.forget_if_empty(old)
        self.forget_if_empty(new)

    def end_lease(self, lease: Lease, now: float, grace_s: float) -> None:
        """A lease is over: its groups must go within the grace."""
        app = self.apps[lease.app]
        ended = lease.held
        lease.pending = NOTHING
        self._withdraw(lease, ended, now, lease.expires_s + grace_s)
        self.changed[app.id] = LeaseEnded(lease.id, ended)

    def _withdraw(self, lease: Lease, gpus: Allocation, now: float, force_s: float) -> None:
        """Take GPUs from a lease; groups that are left on them are removed at ``force_s``."""
        app = self.apps[lease.app]
        before = self.ledger.excess(app.id)
        self.unhold(lease, gpus, now)
        over = self.ledger.excess(app.id).minus(before)
        if over:
            app.overstays.append((force_s, over))
            self.at(force_s, app.id)

    def trim_final(self, app: App, now: float) -> None:
        """GPUs of leases under notice that no group uses any more are free at once."""
        for lease in [x for x in app.leases.values() if x.final]:
            surplus = self.ledger.idle(app.id) & lease.held
            if surplus:
                self.unhold(lease, surplus, now)
                self.changed.setdefault(app.id, LeaseEnded(lease.id, surplus))

    def settle(self, now: float) -> None:
        """Hand free GPUs to the leases that await them, in the order of the decisions."""
        if not self.pending:
            return
        for lease in list(self.pending.values()):
            free_on = self.ledger.free_on
            got = Allocation.summed(
                {m: n for m, c in lease.pending.items() if (n := min(c, free_on(m))) > 0}
            )
            if got:
                lease.pending = lease.pending - got
                self.hold(lease, got, now)
                self.forget_if_empty(lease)
                self.changed.setdefault(lease.app, Handover(got))

    def unclaimed(self) -> Allocation:
        """Free GPUs that no lease awaits."""
        free = self.ledger.free()
        if not self.pending:
            return free
        return free.minus(total(lease.pending for lease in self.pending.values()))

    # -- capacity -------------------------------------------------------------------------

    def set_cluster(self, cluster: Cluster, now: float) -> None:
        """Take over new machines; what no longer exists is taken back at once."""
        self.cluster = cluster
        self.ledger.capacity = {m.id: m.gpus for m in cluster.machines}
        over = self.ledger.entitled_to_all().minus(cluster.capacity)
        if over:
            self._take_back(over, now)
        self._trim_promises()

    def _take_back(self, over: Allocation, now: float) -> None:
        """End leases early: first of GPUs that are idle, then of those that end anyway."""
        leases = [lease for app in self.apps.values() for lease in app.leases.values()]
        leases.sort(key=lambda x: (not x.final, -x.granted_s))
        for idle_only in (True, False):
            for lease in leases:
                lost = over & lease.held
                if idle_only:
                    lost = lost & self.ledger.idle(lease.app)
                if lost:
                    over = over - lost
                    self._withdraw(lease, lost, now, now)
                    self._lost(lease.app, lost)

    def _trim_promises(self) -> None:
        """What is awaited and can no longer come is not awaited any more; the newest goes first."""
        staying = total(
            lease.held
            for app in self.apps.values()
            for lease in app.leases.values()
            if not lease.final
        )
        room = self.cluster.capacity.minus(staying)
        for lease in list(self.pending.values()):
            lost = lease.pending.minus(room)
            room = room.minus(lease.pending)
            if lost:
                lease.pending = lease.pending - lost
                self._lost(lease.app, lost)
                self.forget_if_empty(lease)

    def _lost(self, app: str, gpus: Allocation) -> None:
        before = self.changed.get(app)
        if isinstance(before, CapacityLost):
            gpus = gpus + before.gpus
        self.changed[app] = CapacityLost(gpus)

    # -- groups ---------------------------------------------------------------------------

    def shift(self, group: Group, what: str) -> bool:
        """Move a group along its transition table; False when that is not possible."""
        target = GROUP_TRANSITIONS.get((group.state, what))
        if target is None:
            return False
        occupied = group.occupies
        group.state = target
        if group.occupies and not occupied:
            self.ledger.occupy(group.app, group.allocation)
        elif occupied and not group.occupies:
            self.ledger.occupy(group.app, group.allocation, -1)
        if target is not GroupState.WAITING:
            self.waiting.pop(group.id, None)
        if target is GroupState.GONE:
            self.groups.pop(group.id, None)
            if group.app in self.apps:
                self.apps[group.app].groups.pop(group.id, None)
        return True

    def end_group(self, group: Group, reason: Reason) -> None:
        """Have a group removed, unless that is under way."""
        if group.state is GroupState.ENDING:
            return
        existed = group.occupies
        self.shift(group, "end")
        if existed:
            self.commands.append(RemoveGroup(group.app, group.id, reason))

    def start_waiting(self) -> None:
        """Create the groups whose GPUs have been left by the app's own earlier groups."""
        if not self.waiting:
            return
        for group in list(self.waiting.values()):
            if group.allocation <= self.ledger.idle(group.app):
                self.shift(group, "fits")
                self.commands.append(CreateGroup(group.app, group.id, group.allocation))
            elif not group.allocation <= self.ledger.entitled(group.app):
                held = self.ledger.entitled(group.app)
                self.shift(group, "end")
                reason = NotHeld(group.allocation, held)
                self.commands.append(GroupRefused(group.app, group.id, reason))

    def force(self, app: App, now: float) -> None:
        """Remove groups that have outlived their lease and its grace, newest first."""
        if app.force_s is None or now < app.force_s:
            return
        app.overstays = [(due_s, gpus) for due_s, gpus in app.overstays if due_s > now]
        ending = total(g.allocation for g in app.groups.values() if g.state is GroupState.ENDING)
        later = total(gpus for _, gpus in app.overstays).minus(ending)
        over = self.ledger.excess(app.id).minus(ending).minus(later)
        for group in sorted(app.groups.values(), key=lambda g: -g.requested_s):
            if not over:
                return
            if group.occupies and group.state is not GroupState.ENDING and group.allocation & over:
                over = over.minus(group.allocation)
                self.end_group(group, LeaseEnded("of its GPUs", group.allocation))

    # -- telling --------------------------------------------------------------------------

    def flush(self) -> list[Command]:
        """The commands of this event, ending with one notice for each app concerned."""
        for name, reason in self.changed.items():
            app = self.apps.get(name)
            if app is not None:
                if not isinstance(reason, LeaseEnded | Handover):
                    app.reason = reason  # those two follow from an earlier decision, kept here
                views = tuple(lease.view() for lease in app.leases.values())
                self.commands.append(LeasesChanged(name, views, reason))
        self.changed.clear()
        if not self.commands:
            return []
        out, self.commands = self.commands, []
        return out
