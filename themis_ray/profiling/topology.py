"""How near the GPUs of a machine are to each other, and the slots that follow from it.

A slot is a group of equally near GPUs, what an NVLink bridge or a PCIe switch joins. Slots are of
equal size, as :class:`themis_ray.core.cluster.Machine` has them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum


class Link(IntEnum):
    """What lies between two GPUs, nearest first; in brackets the name in ``nvidia-smi topo -m``."""

    BOARD = 0  # two GPUs on one board
    NVLINK = 1  # (NV#), direct or through an NVSwitch
    SWITCH = 2  # (PIX) one PCIe switch
    SWITCHES = 3  # (PXB) several PCIe switches
    BRIDGE = 4  # (PHB) a PCIe host bridge
    SOCKET = 5  # (NODE) host bridges of one CPU socket
    SYSTEM = 6  # (SYS) the link between sockets
    UNKNOWN = 7

    @property
    def words(self) -> str:
        """For people."""
        return _WORDS[self]


_WORDS = {
    Link.BOARD: "one board",
    Link.NVLINK: "NVLink",
    Link.SWITCH: "PCIe switch",
    Link.SWITCHES: "PCIe switches",
    Link.BRIDGE: "host bridge",
    Link.SOCKET: "CPU socket",
    Link.SYSTEM: "across sockets",
    Link.UNKNOWN: "unknown",
}

# What may make a slot, best first: the nearest kind that joins any two GPUs decides.
_SLOT_KINDS = (Link.NVLINK, Link.SWITCHES, Link.SOCKET)


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A slice of a GPU in MIG mode."""

    index: int
    uuid: str
    name: str
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as it is built into the machine; None: cannot be read.

    Attributes:
        index: NVML's index.
        uuid: As CUDA_VISIBLE_DEVICES may name it.
        name: The product's.
        bus_id: PCI address, ``00000000:3B:00.0``.
        memory_bytes: All its memory.
        mig: Whether MIG mode is on.
        instances: Its MIG instances.
        nvlinks: Active NVLinks.
    """

    index: int
    uuid: str | None
    name: str | None
    bus_id: str | None
    memory_bytes: int | None
    mig: bool | None
    instances: tuple[MigInstance, ...] = ()
    nvlinks: int = 0


@dataclass(frozen=True, slots=True)
class Topology:
    """The GPUs of this machine and what lies between them.

    Attributes:
        gpus: In NVML's order.
        links: The nearest link of each pair of indices, the smaller first.
        driver: The driver's version; None when NVML does not answer.
        notes: What could not be read, one line each.
    """

    gpus: tuple[Gpu, ...] = ()
    links: Mapping[tuple[int, int], Link] = field(default_factory=dict)
    driver: str | None = None
    notes: tuple[str, ...] = ()

    def link(self, one: int, other: int) -> Link:
        """What lies between two GPUs."""
        return self.links.get((min(one, other), max(one, other)), Link.UNKNOWN)

    @property
    def kind(self) -> Link:
        """The kind of link that makes a slot here; UNKNOWN when no two GPUs are near."""
        for kind in _SLOT_KINDS:
            if any(link <= kind for link in self.links.values()):
                return kind
        return Link.UNKNOWN

    def groups(self) -> tuple[tuple[int, ...], ...]:
        """GPUs that are near each other, each with each.

        Not the connected components: in a cube mesh (DGX-1) every GPU reaches every other by
        NVLink, but over others; there the two fully linked quads are the groups.
        """
        kind = self.kind
        groups: list[list[int]] = []
        for gpu in self.gpus:
            for group in groups:
                if all(self.link(member, gpu.index) <= kind for member in group):
                    group.append(gpu.index)
                    break
            else:
                groups.append([gpu.index])
        if kind is Link.UNKNOWN:
            # Nothing is known to be nearer than anything else.
            groups = [[gpu.index for gpu in self.gpus]] if self.gpus else []
        return tuple(tuple(group) for group in groups)

    @property
    def slots(self) -> int:
        """Into how many equal slots the machine is divided.

        Groups of different sizes are cut to their greatest common divisor, so that what counts
        as one slot always is one.
        """
        groups = self.groups()
        if not groups:
            return 1
        return len(self.gpus) // math.gcd(*(len(group) for group in groups))
