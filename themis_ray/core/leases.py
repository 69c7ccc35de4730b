"""Who holds which GPUs: leases, placement groups and the ledger that adds them up.

An app may use the GPUs of its leases (it is *entitled* to them); its placement groups occupy
GPUs (*physical*). A GPU is free only when nobody is entitled to it and no group is on it, so a
group that outlives its lease keeps its GPUs from the next holder until it is really gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from themis_ray.core.cluster import NOTHING, Allocation
from themis_ray.core.commands import LeaseView


@dataclass(slots=True)
class Lease:
    """GPUs leased to one app until a time.

    Attributes:
        id: Its name, unique for the arbiter.
        app: The holder.
        held: GPUs that the app may use.
        pending: GPUs won that their last holder has not left yet.
        granted_s: When it was decided.
        expires_s: When it ends.
        final: It was put up in a round and not renewed, or notice was given.
    """

    id: str
    app: str
    held: Allocation
    pending: Allocation
    granted_s: float
    expires_s: float
    final: bool = False

    def view(self) -> LeaseView:
        """What the holder is told."""
        return LeaseView(self.id, self.held, self.pending, self.expires_s, self.final)


class GroupState(Enum):
    """The life of a placement group."""

    WAITING = "waiting"
    CREATING = "creating"
    LIVE = "live"
    ENDING = "ending"
    GONE = "gone"


# The transition table of a placement group: (state, what happens) -> next state.
GROUP_TRANSITIONS: Mapping[tuple[GroupState, str], GroupState] = {
    (GroupState.WAITING, "fits"): GroupState.CREATING,
    (GroupState.WAITING, "end"): GroupState.GONE,
    (GroupState.CREATING, "ready"): GroupState.LIVE,
    (GroupState.CREATING, "failed"): GroupState.GONE,
    (GroupState.CREATING, "end"): GroupState.ENDING,
    (GroupState.CREATING, "gone"): GroupState.GONE,
    (GroupState.LIVE, "end"): GroupState.ENDING,
    (GroupState.LIVE, "gone"): GroupState.GONE,
    (GroupState.ENDING, "end"): GroupState.ENDING,
    (GroupState.ENDING, "ready"): GroupState.ENDING,
    (GroupState.ENDING, "failed"): GroupState.GONE,
    (GroupState.ENDING, "gone"): GroupState.GONE,
}


@dataclass(slots=True)
class Group:
    """The placement group of one trial."""

    id: str
    app: str
    allocation: Allocation
    requested_s: float
    state: GroupState = GroupState.WAITING

    @property
    def occupies(self) -> bool:
        """Whether it takes up GPUs."""
        return self.state in (GroupState.CREATING, GroupState.LIVE, GroupState.ENDING)


@dataclass(slots=True)
class Ledger:
    """Adds up entitlements and groups per machine; every change costs O(machines touched)."""

    capacity: dict[str, int] = field(default_factory=dict)
    _entitled: dict[str, dict[str, int]] = field(default_factory=dict)
    _physical: dict[str, dict[str, int]] = field(default_factory=dict)
    _used: dict[str, int] = field(default_factory=dict)
    # What was free when it was last asked for, with which capacity, and where it changed since.
    _free: Allocation = field(default=NOTHING, compare=False, repr=False)
    _free_of: dict[str, int] | None = field(default=None, compare=False, repr=False)
    _stale: set[str] = field(default_factory=set, compare=False, repr=False)

    def entitled(self, app: str) -> Allocation:
        """GPUs that the app may use now."""
        counts = self._entitled.get(app)
        return Allocation.summed(counts) if counts else NOTHING

    def entitled_size(self, app: str) -> int:
        """How many GPUs the app may use now."""
        return sum(self._entitled.get(app, {}).values())

    def physical(self, app: str) -> Allocation:
        """GPUs that the app's groups occupy."""
        counts = self._physical.get(app)
        return Allocation.summed(counts) if counts else NOTHING

    def excess(self, app: str) -> Allocation:
        """GPUs that the app's groups occupy beyond what it may use."""
        mine = self._physical.get(app)
        if not mine:
            return NOTHING
        entitled = self._entitled.get(app, {})
        return Allocation.summed(
            {m: over for m, c in mine.items() if (over := c - entitled.get(m, 0)) > 0}
        )

    def idle(self, app: str) -> Allocation:
        """GPUs that the app may use and that none of its groups occupies."""
        mine = self._entitled.get(app)
        if not mine:
            return NOTHING
        physical = self._physical.get(app, {})
        return Allocation.summed(
            {m: idle for m, c in mine.items() if (idle := c - physical.get(m, 0)) > 0}
        )

    def free_on(self, machine: str) -> int:
        """GPUs that nobody may use or occupies; negative when capacity was lost."""
        return self.capacity.get(machine, 0) - self._used.get(machine, 0)

    def free(self) -> Allocation:
        """All free GPUs."""
        if self._free_of is not self.capacity:
            self._free_of, self._free = self.capacity, NOTHING
            self._stale = set(self.capacity)
        if self._stale:
            counts = self._free.counts()
            for machine in self._stale:
                free = self.free_on(machine)
                if free > 0:
                    counts[machine] = free
                else:
                    counts.pop(machine, None)
            self._stale.clear()
            self._free = Allocation.summed(counts)
        return self._free

    def entitled_to_all(self) -> Allocation:
        """GPUs that any app may use now."""
        total: dict[str, int] = {}
        for counts in self._entitled.values():
            for machine, count in counts.items():
                total[machine] = total.get(machine, 0) + count
        return Allocation.summed(total)

    def entitle(self, app: str, change: Allocation, sign: int = 1) -> None:
        """Add (or with ``sign=-1`` take away) the right to use GPUs."""
        self._change(self._entitled, self._physical, app, change, sign)

    def occupy(self, app: str, change: Allocation, sign: int = 1) -> None:
        """Add (or with ``sign=-1`` take away) GPUs occupied by a group."""
        self._change(self._physical, self._entitled, app, change, sign)

    def _change(
        self,
        mine: dict[str, dict[str, int]],
        other: dict[str, dict[str, int]],
        app: str,
        change: Allocation,
        sign: int,
    ) -> None:
        counts = mine.setdefault(app, {})
        others = other.get(app, {})
        for machine, count in change.items():
            before = counts.get(machine, 0)
            after = before + sign * count
            if after < 0:
                raise AssertionError(f"{app}: {after} GPUs on {machine}")
            floor = others.get(machine, 0)
            change_of_used = max(after, floor) - max(before, floor)
            if change_of_used:
                used = self._used.get(machine, 0) + change_of_used
                self._stale.add(machine)
                if used:
                    self._used[machine] = used
                else:
                    self._used.pop(machine, None)
            if after:
                counts[machine] = after
            else:
                counts.pop(machine, None)
        if not counts:
            del mine[app]
