"""What an AGENT answers to an offer: r for each bundle it could use.

A row asks for GPUs on named machines (``pinned``), for parts on machines of any name
(``parts``), or for both. ``parts=(4, 2)`` means: 4 GPUs that lie on one machine and 2 that lie
on one machine, whichever they are, within ``level``. Two parts may share a machine (and a part
may lie on a pinned machine), so n jobs of one GPU each, wherever they go, are ``(1,) * n``, and
two jobs of 4 are ``(4, 4)`` on one machine of 8 as well as on two of 4. A table thus grows with
the app's demand and the number of placement levels, not with the number of subsets of the offer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from themis_ray.core.cluster import NOTHING, Allocation, Level
from themis_ray.errors import BidError


@dataclass(frozen=True, slots=True)
class BidRow:
    """One bundle and the r that the app would reach with it.

    Attributes:
        r: Finish-time fairness with this bundle; positive, ``inf`` when the app would never
            finish.
        pinned: GPUs on named machines.
        parts: Further GPUs, largest part first; each part lies on one machine of any name.
        level: The widest spread at which ``r`` holds: ``MACHINE`` when the whole row lies on
            one machine, ``RACK`` when all its machines lie in one rack, ``CLUSTER`` for anywhere.
    """

    r: float
    pinned: Allocation = NOTHING
    parts: tuple[int, ...] = ()
    level: Level = Level.CLUSTER

    def __post_init__(self) -> None:
        if math.isnan(self.r) or self.r <= 0:
            raise BidError(
                f"r = {self.r} for {self.describe()}; r must be positive (infinite when the app "
                "would never finish)"
            )
        if any(part < 1 for part in self.parts) or list(self.parts) != sorted(
            self.parts, reverse=True
        ):
            raise BidError(f"parts {self.parts}: use whole numbers of 1 or more, largest first")
        if self.level <= Level.MACHINE and len(self.pinned) > 1:
            raise BidError(f"{self.describe()} cannot lie on one machine")

    @property
    def size(self) -> int:
        """The number of GPUs asked for."""
        return self.pinned.size + sum(self.parts)

    @property
    def value(self) -> float:
        """V = 1 / r, 0 when r is infinite."""
        return 0.0 if math.isinf(self.r) else 1.0 / self.r

    def describe(self) -> str:
        """The bundle in words, for messages."""
        some = [f"{m}:{c}" for m, c in self.pinned.items()] + [str(p) for p in self.parts]
        return " + ".join(some) or "nothing"


@dataclass(frozen=True, slots=True)
class BidTable:
    """All that one app would pay for, and what it has when it wins nothing.

    Attributes:
        app: The app's id.
        r_nothing: r with nothing won this round; ``inf`` for an app with no GPU.
        rows: The bundles of one GPU or more.
    """

    app: str
    r_nothing: float
    rows: tuple[BidRow, ...] = ()

    def __post_init__(self) -> None:
        if math.isnan(self.r_nothing) or self.r_nothing <= 0:
            raise BidError(
                f"app {self.app!r}: r = {self.r_nothing} with nothing won; it must be positive "
                "or infinite"
            )
        for row in self.rows:
            if row.size == 0:
                raise BidError(f"app {self.app!r}: put r for nothing in r_nothing, not in a row")

    @property
    def value_nothing(self) -> float:
        """V with nothing won; 0 when r is infinite."""
        return 0.0 if math.isinf(self.r_nothing) else 1.0 / self.r_nothing


def check_against_offer(table: BidTable, offer: Allocation) -> None:
    """Refuse a table that asks for GPUs that were not offered.

    Raises:
        BidError: A row names a machine or a count beyond the offer.
    """
    largest = max(offer.values(), default=0)
    for row in table.rows:
        for machine, count in row.pinned.items():
            if count > offer.on(machine):
                raise BidError(
                    f"app {table.app!r} bids for {count} GPUs on {machine!r}, but only "
                    f"{offer.on(machine)} were offered there; bid within the offer ({offer})"
                )
        if row.size > offer.size or (row.parts and row.parts[0] > largest):
            raise BidError(
                f"app {table.app!r} bids for {row.describe()}, which does not fit into the offer "
                f"({offer})"
            )


def within(table: BidTable, offer: Allocation) -> BidTable:
    """The rows of a table that fit into what is left of an offer, as far as counts tell."""
    largest = max(offer.values(), default=0)
    rows = tuple(
        row
        for row in table.rows
        if row.pinned <= offer
        and row.size <= offer.size
        and (not row.parts or row.parts[0] <= largest)
    )
    return table if len(rows) == len(table.rows) else BidTable(table.app, table.r_nothing, rows)
