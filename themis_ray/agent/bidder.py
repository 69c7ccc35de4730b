"""Bid tables: the r that an app would reach with each bundle it could use."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from themis_ray.core.bids import BidRow, BidTable, within
from themis_ray.core.cluster import Allocation, Level, total
from themis_ray.core.commands import SendOffer
from themis_ray.core.valuation import phase_time_s, split_even

# Beyond this many GPUs the table lists sizes about 12% apart: their r differ less than that.
ALL_SIZES_UP_TO = 32


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is left of an app of plain trials, and how to turn a number of GPUs into r.

    Attributes:
        jobs: ``(iterations left, serial seconds per iteration)`` of each live trial, and of those
            still to come.
        trial_min: The fewest GPUs of a trial.
        trial_max: The most GPUs of a trial, d in Equation 1.
        elapsed_s: The app's age.
        t_ideal_s: Its T_id.
        slowdown: S of a trial on a number of GPUs at a level.
        restart_s: What moving a trial costs.
    """

    jobs: Sequence[tuple[float, float]]
    trial_min: int
    trial_max: int
    elapsed_s: float
    t_ideal_s: float
    slowdown: Callable[[int, Level], float]
    restart_s: float = 0.0

    def time_left_s(self, gpus: int, level: Level = Level.MACHINE) -> float:
        """Seconds until the last trial ends on ``gpus`` GPUs, divided so that it ends soonest."""
        if not self.jobs:
            return 0.0
        if gpus < self.trial_min:
            return math.inf
        share = max(1, min(self.trial_max, gpus // max(1, min(len(self.jobs), gpus))))
        s = self.slowdown(share, level)
        return phase_time_s(self.jobs, gpus, self.trial_max, s, "makespan")

    def r(self, gpus: int, level: Level = Level.MACHINE, moved: float = 0.0) -> float:
        """r with ``gpus`` GPUs; ``moved`` is the part of them that costs a restart."""
        left = self.time_left_s(gpus, level)
        t_shared = self.elapsed_s + left + self.restart_s * moved
        return max(t_shared / self.t_ideal_s, 1e-9)

    def shares(self, gpus: int) -> tuple[int, ...]:
        """How the trials would divide some GPUs, the largest share first."""
        count = max(1, min(len(self.jobs), gpus // self.trial_min))
        shares = (min(self.trial_max, share) for share in split_even(gpus, count))
        return tuple(share for share in shares if share)


class Bidder(Protocol):
    """What a bid table is made from."""

    @property
    def trial_min(self) -> int:
        """The fewest GPUs of a trial."""

    @property
    def trial_max(self) -> int:
        """The most GPUs of a trial."""

    def r(self, gpus: int, level: Level = Level.MACHINE, moved: float = 0.0) -> float:
        """r with ``gpus`` GPUs; ``moved`` is the part of them that costs a restart."""

    def shares(self, gpus: int) -> tuple[int, ...]:
        """How the trials would divide some GPUs, the largest share first."""


def bid_table(
    app: str,
    outlook: Bidder,
    offer: SendOffer,
    own: Sequence[Allocation],
    needs: int,
) -> BidTable:
    """The answer to an offer.

    Args:
        app: The app's id.
        outlook: What is left of it.
        offer: The GPUs on offer.
        own: The GPUs of its running trials that are part of the offer, those to be kept first
            at the front: winning them again costs no restart.
        needs: How many more GPUs than it keeps it could use.
    """
    kept, mine = offer.kept.size, _that_fit(own, offer.expiring)
    rows: list[BidRow] = []
    for size in sizes(min(needs, offer.offer.size), outlook.trial_min, outlook.trial_max):
        rows.extend(_rows_of_size(outlook, size, kept, mine, offer.racks))
    table = BidTable(app, outlook.r(kept) if kept else math.inf, tuple(rows))
    return within(table, offer.offer)  # a trial may want more on one machine than any offers


def _that_fit(own: Sequence[Allocation], room: Allocation) -> list[Allocation]:
    """The trials whose GPUs are all put up; of two on the same GPUs, only as many as are."""
    out = []
    for allocation in own:
        if allocation <= room:
            out.append(allocation)
            room = room - allocation
    return out


def sizes(most: int, smallest: int, largest: int) -> list[int]:
    """The numbers of GPUs to bid for."""
    step = smallest if smallest == largest else 1
    out, size = [], smallest
    while size <= most:
        out.append(size)
        gap = step if size < ALL_SIZES_UP_TO else max(step, size // 8 // step * step)
        size += gap
    return out


def _rows_of_size(
    outlook: Bidder, size: int, kept: int, own: Sequence[Allocation], racks: Mapping[str, str]
) -> list[BidRow]:
    whole = kept + size
    rows = [BidRow(outlook.r(whole, moved=1.0), parts=_parts(outlook, size))]
    stay: list[Allocation] = []
    taken = 0
    for allocation in own:
        if taken + allocation.size <= size:
            stay.append(allocation)
            taken += allocation.size
    if stay:
        rows.insert(0, _staying(outlook, size, whole, stay, racks))
        near = [allocation for allocation in stay if len(allocation) == 1]
        if near and len(near) < len(stay):  # those that are spread over machines move together
            rows.insert(1, _staying(outlook, size, whole, near, racks))
    if rows[-1].parts[0] > 1:
        ones = (1,) * size
        for level in (Level.RACK, Level.CLUSTER):
            rows.append(BidRow(outlook.r(whole, level, moved=1.0), parts=ones, level=level))
    return rows


def _staying(
    outlook: Bidder, size: int, whole: int, stay: Sequence[Allocation], racks: Mapping[str, str]
) -> BidRow:
    """A row with which some trials stay where they are; r is the mean over where its GPUs lie."""
    pinned = total(stay)
    rest = size - pinned.size
    moved = rest / size
    r = outlook.r(whole, moved=moved) * rest if rest else 0.0
    for allocation in stay:
        r += outlook.r(whole, _level(allocation, racks), moved=moved) * allocation.size
    return BidRow(r / size, pinned, _parts(outlook, rest) if rest else ())


def _level(gpus: Allocation, racks: Mapping[str, str]) -> Level:
    """How near together a trial's GPUs lie."""
    if len(gpus) == 1:
        return Level.MACHINE
    return Level.RACK if len({racks.get(m, "") for m in gpus}) == 1 else Level.CLUSTER


def _parts(outlook: Bidder, gpus: int) -> tuple[int, ...]:
    """How the trials would divide some GPUs, each trial on one machine."""
    if outlook.trial_min == outlook.trial_max:
        return (outlook.trial_min,) * (gpus // outlook.trial_min)
    shares = outlook.shares(gpus)
    left = gpus - sum(shares)
    return tuple(sorted([*shares, *(1,) * left], reverse=True))
