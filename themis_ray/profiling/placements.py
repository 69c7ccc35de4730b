"""The placements of a cluster that are worth measuring."""

from __future__ import annotations

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
    """What to measure, fewest GPUs first, and what the cluster does not offer."""

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
    found: list[Placement] = []
    missing: list[str] = []
    for gpus in sorted(set(counts)):
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
    most = max((m.gpus for m in cluster.machines), default=0)
    return f"{_gpus(gpus)} on one machine: no machine has more than {most} free"


def _on_two(cluster: Cluster, gpus: int, same_rack: bool) -> Allocation | str:
    half = gpus // 2
    able = [m for m in cluster.machines if m.gpus >= half]
    for a, b in combinations(able, 2):
        if (a.rack == b.rack) is same_rack:
            return Allocation({a.id: half, b.id: half})
    where = "two machines of a rack" if same_rack else "two racks"
    if len(cluster.machines) < 2:
        why = "the cluster has one machine"
    elif not same_rack and len({m.rack for m in cluster.machines}) < 2:
        why = "all machines are in one rack"
    else:
        why = f"no two such machines have {half} free each"
    return (
        f"{_gpus(gpus)} in {where}: {why}" if not same_rack else f"{_gpus(gpus)} on {where}: {why}"
    )


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"
