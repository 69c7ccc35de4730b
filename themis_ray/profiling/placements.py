"""The placements of a cluster that are worth measuring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from themis_ray.core.cluster import Allocation, Cluster, Machine
from themis_ray.core.slowdown import Signature


@dataclass(frozen=True, slots=True)
class Placement:
    """Some GPUs to measure on, by name and as S(G) sees them."""

    allocation: Allocation
    signature: Signature


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure, fewest GPUs first, and what the cluster does not offer, with the reasons."""

    placements: tuple[Placement, ...]
    missing: tuple[str, ...]


def plan(machines: Sequence[Machine], counts: Sequence[int]) -> Plan:
    """Choose placements: one machine, two machines of a rack, two racks.

    Two machines take half of the GPUs each: of all ways to split, the one that sends the most
    between them.

    Args:
        machines: The free GPUs of each machine.
        counts: Numbers of GPUs; odd ones above 1 are measured on one machine only.
    """
    cluster = Cluster(tuple(machines))
    free = cluster.capacity.size
    found: list[Placement] = []
    missing: list[str] = []
    for gpus in sorted(set(counts)):
        if gpus > free:
            missing.append(f"{_gpus(gpus)}: the cluster has {free or 'none'} free")
            continue
        offers = [_on_one(cluster, gpus)]
        if gpus > 1 and gpus % 2 == 0:
            offers += [_on_two(cluster, gpus, same_rack) for same_rack in (True, False)]
        for offer in offers:
            if isinstance(offer, str):
                missing.append(offer)
            else:
                found.append(Placement(offer, Signature.of(offer, cluster)))
    return Plan(tuple(found), tuple(missing))


def _on_one(cluster: Cluster, gpus: int) -> Allocation | str:
    # The smallest that will do: larger ones are wanted for what follows.
    able = [m for m in cluster.machines if m.gpus >= gpus]
    if able:
        return Allocation({min(able, key=lambda m: (m.gpus, m.id)).id: gpus})
    most = max(m.gpus for m in cluster.machines)
    return f"{_gpus(gpus)} on one machine: no machine has more than {most} free"


def _on_two(cluster: Cluster, gpus: int, same_rack: bool) -> Allocation | str:
    half = gpus // 2
    able = [m for m in cluster.machines if m.gpus >= half]
    for a, b in combinations(able, 2):
        if (a.rack == b.rack) is same_rack:
            return Allocation({a.id: half, b.id: half})
    where = "on two machines of a rack" if same_rack else "in two racks"
    return f"{_gpus(gpus)} {where}: {_why_no_two(cluster, half, same_rack)}"


def _why_no_two(cluster: Cluster, half: int, same_rack: bool) -> str:
    racks = Counter(m.rack for m in cluster.machines)
    if len(cluster.machines) < 2:
        return "only one machine has any free"
    if same_rack and max(racks.values()) < 2:
        return "no rack has two machines with any free"
    if not same_rack and len(racks) < 2:
        return "only one rack has any free"
    return f"no two such machines have {half} free each"


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"
