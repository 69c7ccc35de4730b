"""Auctions like those of a cluster in use, of any size."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from themis_ray.core.bids import BidRow, BidTable
from themis_ray.core.cluster import Allocation, Level


@dataclass(frozen=True)
class Case:
    """An auction.

    Attributes:
        pool: GPUs on offer.
        racks: The rack of each machine.
        tables: The bids.
    """

    pool: Allocation
    racks: dict[str, str]
    tables: list[BidTable]


def make_case(
    gpus: int,
    bidders: int,
    *,
    per_machine: int = 8,
    racks: int | None = None,
    demand: int = 64,
    seed: int = 0,
) -> Case:
    """Draw an auction.

    Args:
        gpus: GPUs on offer.
        bidders: Apps that bid.
        per_machine: GPUs of each machine.
        racks: Racks; 128 GPUs each when not given.
        demand: The most GPUs that an app can use; each app's is drawn from half of it up to it.
        seed: For the draw.
    """
    luck = random.Random(seed)
    machines = [f"m{i:05d}" for i in range(gpus // per_machine)]
    racks = racks or max(1, gpus // 128)
    each = math.ceil(len(machines) / racks)
    pool = Allocation(dict.fromkeys(machines, per_machine))
    rack_of = {machine: f"r{i // each:03d}" for i, machine in enumerate(machines)}
    most = min(demand, gpus)
    tables = [
        _table(luck, f"a{i}", luck.randint(max(1, most // 2), most), per_machine, each)
        for i in range(bidders)
    ]
    return Case(pool, rack_of, tables)


def make_queue(gpus: int, bidders: int, *, seed: int = 0) -> Case:
    """Draw an auction among gangs that wait in line: most are of 1 GPU, some of 4 or 8.

    Args:
        gpus: GPUs on offer, on machines of 8.
        bidders: Gangs.
        seed: For the draw.
    """
    luck = random.Random(seed)
    pool = Allocation({f"m{i:05d}": 8 for i in range(gpus // 8)})
    tables = []
    for i in range(bidders):
        size = luck.choices((1, 4, 8), (0.8, 0.1, 0.1))[0]
        tables.append(BidTable(f"a{i}", 1.0, (BidRow(luck.uniform(0.5, 0.9), parts=(size,)),)))
    return Case(pool, {}, tables)


def _table(
    luck: random.Random, app: str, demand: int, per_machine: int, machines_per_rack: int
) -> BidTable:
    """One app: so much work, so long alive, and slower the further its GPUs are apart."""
    work, alive = luck.uniform(0.5, 20), luck.uniform(0, 3)
    # Half of the models suffer from a spread, as VGG16 does; the others hardly notice.
    in_rack, across = (1.03, 1.08)
    if luck.random() < 0.5:
        in_rack, across = luck.uniform(1.1, 1.3), luck.uniform(1.3, 1.5)
    rows = []
    for n in range(1, demand + 1):
        parts = (per_machine,) * (n // per_machine) + (
            (n % per_machine,) if n % per_machine else ()
        )
        if len(parts) == 1:
            rows.append(BidRow(alive + work / n, parts=parts, level=Level.MACHINE))
            continue
        if len(parts) <= machines_per_rack:
            rows.append(BidRow(alive + work * in_rack / n, parts=parts, level=Level.RACK))
        rows.append(BidRow(alive + work * across / n, parts=parts))
    return BidTable(app, alive + work * luck.uniform(2, 6), tuple(rows))
