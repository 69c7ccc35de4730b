"""Machines, racks and bundles of GPUs.

A GPU is known by its machine; GPUs of one machine are alike, so an allocation is a count per
machine. The placement level of an allocation is the smallest part of the cluster that holds
all of it: one slot (an NVLink or PCIe group), one machine, one rack, or the whole cluster.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

from themis_ray.errors import InvalidInputError


class Level(IntEnum):
    """How far apart the GPUs of an allocation are, from best to worst."""

    SLOT = 0
    MACHINE = 1
    RACK = 2
    CLUSTER = 3


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine with GPUs.

    Attributes:
        id: Its name, unique in the cluster.
        gpus: How many GPUs it has.
        rack: The rack (or switch) it hangs on.
        slots: Into how many groups of equally near GPUs the machine is divided; 1 when all
            its GPUs are equally near.
    """

    id: str
    gpus: int
    rack: str = "r0"
    slots: int = 1

    def __post_init__(self) -> None:
        if self.gpus < 0:
            raise InvalidInputError(f"machine {self.id!r} has {self.gpus} GPUs; use 0 or more")
        if self.slots < 1 or (self.gpus and self.gpus % self.slots):
            raise InvalidInputError(
                f"machine {self.id!r}: {self.gpus} GPUs cannot be divided into {self.slots} slots"
            )

    @property
    def gpus_per_slot(self) -> int:
        """GPUs in one slot."""
        return self.gpus // self.slots


class Allocation(Mapping[str, int]):
    """An immutable count of GPUs per machine. Machines with none are left out.

    Supports ``+``, ``-`` (raises if it would go below zero), ``&`` (the smaller count per
    machine), ``<=`` (is it contained), ``hash`` and ``==``.

    Attributes:
        size: The number of GPUs.
    """

    # ``size`` is an attribute and no property, since it is read more often than anything else.
    __slots__ = ("_counts", "_hash", "size")

    size: int

    def __init__(self, counts: Mapping[str, int] | Iterable[tuple[str, int]] = ()) -> None:
        items = dict(counts)
        for machine, count in items.items():
            if count < 0 or int(count) != count:
                raise InvalidInputError(
                    f"{count} GPUs on machine {machine!r}: use a whole number of 0 or more"
                )
        self._counts = {m: int(items[m]) for m in sorted(items) if items[m]}
        self.size = sum(self._counts.values())
        self._hash: int | None = None

    @classmethod
    def summed(cls, counts: Mapping[str, int]) -> Allocation:
        """Counts added up from other allocations: whole and above 0, in any order."""
        if len(counts) < 2:
            return cls._of(dict(counts)) if counts else NOTHING
        return cls._of({m: counts[m] for m in sorted(counts)})

    @classmethod
    def on_one(cls, machine: str, count: int) -> Allocation:
        """One or more GPUs of one machine."""
        made = cls.__new__(cls)
        made._counts, made.size, made._hash = {machine: count}, count, None
        return made

    @classmethod
    def _of(cls, counts: dict[str, int]) -> Allocation:
        """Counts that come from other allocations: sorted, whole and above 0."""
        made = cls.__new__(cls)
        made._counts, made.size, made._hash = counts, sum(counts.values()), None
        return made

    def counts(self) -> dict[str, int]:
        """GPUs by machine, to be changed at will: quicker than ``dict(allocation)``."""
        return self._counts.copy()

    def __getitem__(self, machine: str) -> int:
        return self._counts[machine]

    def __iter__(self) -> Iterator[str]:
        return iter(self._counts)

    def __len__(self) -> int:
        return len(self._counts)

    # Mapping's own versions of these go through __iter__ and __getitem__.
    def items(self) -> ItemsView[str, int]:
        """GPUs by machine."""
        return self._counts.items()

    def values(self) -> ValuesView[int]:
        """GPUs of each machine."""
        return self._counts.values()

    def __contains__(self, machine: object) -> bool:
        return machine in self._counts

    def __bool__(self) -> bool:
        return bool(self._counts)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(tuple(self._counts.items()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Allocation) and self._counts == other._counts

    def __repr__(self) -> str:
        return f"Allocation({self._counts})"

    def __str__(self) -> str:
        return " + ".join(f"{m}:{c}" for m, c in self._counts.items()) or "nothing"

    @property
    def parts(self) -> tuple[int, ...]:
        """GPUs per machine, largest first, without the machines' names."""
        return tuple(sorted(self._counts.values(), reverse=True))

    def on(self, machine: str) -> int:
        """GPUs on ``machine``; 0 when there are none."""
        return self._counts.get(machine, 0)

    def __add__(self, other: Allocation) -> Allocation:
        if not other._counts:
            return self
        if not self._counts:
            return other
        counts = self._counts.copy()
        for machine, count in other._counts.items():
            counts[machine] = counts.get(machine, 0) + count
        if len(counts) > len(self._counts):
            counts = {m: counts[m] for m in sorted(counts)}
        return Allocation._of(counts)

    def __sub__(self, other: Allocation) -> Allocation:
        if not other <= self:
            raise InvalidInputError(f"cannot take {other} from {self}")
        return self.minus(other)

    def minus(self, other: Allocation) -> Allocation:
        """What is left of this when ``other`` is taken, never below zero."""
        mine, taken = self._counts, other._counts
        if not taken or not mine:
            return self
        if mine is taken or mine == taken:
            return NOTHING
        counts = mine.copy()
        for machine, count in taken.items():
            left = counts.get(machine, 0) - count
            if left > 0:
                counts[machine] = left
            else:
                counts.pop(machine, None)
        return Allocation._of(counts)

    def __and__(self, other: Allocation) -> Allocation:
        mine, theirs = self._counts, other._counts
        if not mine or not theirs:
            return NOTHING
        if mine is theirs or mine == theirs:
            return self
        if len(theirs) < len(mine):
            mine, theirs = theirs, mine
        counts = {}
        for machine, count in mine.items():
            other_count = theirs.get(machine, 0)
            if other_count:
                counts[machine] = count if count < other_count else other_count
        return Allocation._of(counts) if counts else NOTHING

    def __le__(self, other: Allocation) -> bool:
        theirs = other._counts
        # A loop is faster than all(), and this is asked very often.
        for machine, count in self._counts.items():  # noqa: SIM110
            if count > theirs.get(machine, 0):
                return False
        return True


NOTHING = Allocation()


def total(allocations: Iterable[Allocation]) -> Allocation:
    """All GPUs of some allocations together."""
    some = [allocation for allocation in allocations if allocation.size]
    if len(some) < 2:
        return some[0] if some else NOTHING
    counts = some[0].counts()
    for allocation in some[1:]:
        for machine, count in allocation.items():
            counts[machine] = counts.get(machine, 0) + count
    return Allocation.summed(counts)


@dataclass(frozen=True)
class Cluster:
    """The machines that can be leased.

    Args:
        machines: The machines, in any order; ids must differ.

    Raises:
        InvalidInputError: Two machines share an id.
    """

    machines: tuple[Machine, ...] = ()
    by_id: Mapping[str, Machine] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        machines = tuple(sorted(self.machines, key=lambda m: m.id))
        by_id = {m.id: m for m in machines}
        if len(by_id) != len(machines):
            twice = sorted({m.id for m in machines if sum(x.id == m.id for x in machines) > 1})
            raise InvalidInputError(f"two machines have the id {twice[0]!r}; ids must differ")
        object.__setattr__(self, "machines", machines)
        object.__setattr__(self, "by_id", by_id)

    @cached_property
    def capacity(self) -> Allocation:
        """All GPUs of the cluster."""
        return Allocation({m.id: m.gpus for m in self.machines})

    @property
    def gpus(self) -> int:
        """R_C, the number of GPUs in the cluster."""
        return self.capacity.size

    @cached_property
    def largest(self) -> tuple[int, int]:
        """GPUs of the largest machine and of the largest rack; 0 when there is none."""
        by_rack: dict[str, int] = {}
        for machine in self.machines:
            by_rack[machine.rack] = by_rack.get(machine.rack, 0) + machine.gpus
        machine_gpus = max((machine.gpus for machine in self.machines), default=0)
        return machine_gpus, max(by_rack.values(), default=0)

    def nearest_level(self, gpus: int) -> Level:
        """The level at which so many GPUs lie when they are as near together as can be.

        One machine is one level here, whatever its slots.
        """
        on_machine, in_rack = self.largest
        if gpus <= on_machine:
            return Level.MACHINE
        return Level.RACK if gpus <= in_rack else Level.CLUSTER

    @cached_property
    def racks(self) -> Mapping[str, str]:
        """The rack of each machine."""
        return {m.id: m.rack for m in self.machines}

    def level(self, allocation: Allocation) -> Level:
        """The smallest part of the cluster that holds ``allocation``.

        The GPUs of one machine are counted as one slot when they fit into one.

        Raises:
            InvalidInputError: It names a machine that the cluster does not have.
        """
        machines = []
        for machine_id in allocation:
            machine = self.by_id.get(machine_id)
            if machine is None:
                raise InvalidInputError(
                    f"machine {machine_id!r} is not in the cluster; it has "
                    f"{', '.join(self.by_id) or 'no machine'}"
                )
            machines.append(machine)
        if len(machines) <= 1:
            if not machines or allocation.size <= machines[0].gpus_per_slot:
                return Level.SLOT
            return Level.MACHINE
        return Level.RACK if len({m.rack for m in machines}) == 1 else Level.CLUSTER
