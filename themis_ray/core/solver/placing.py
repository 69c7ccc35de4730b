"""From chosen options to named machines, and what to do when they do not fit."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from themis_ray.core.solver.floor import Bundle, Floor, place_all
from themis_ray.core.solver.instance import Floats, Instance

PASSES = 3


@dataclass(eq=False)
class Placement:
    """Who has which option, and where.

    Attributes:
        option: The option of each bidder that wins something.
        bundles: Its GPUs.
    """

    option: dict[int, int] = field(default_factory=dict)
    bundles: dict[int, Bundle] = field(default_factory=dict)

    def score(self, gain: Floats, counted: np.ndarray) -> tuple[int, float]:
        """How many counted bidders win, and the gain: greater is better."""
        return (
            sum(bool(counted[app]) for app in self.option),
            math.fsum(float(gain[o]) for o in self.option.values()),
        )


class Placer:
    """Places options of one instance.

    Args:
        instance: The auction.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self._ranked: dict[int, list[int]] = {}
        starts = np.searchsorted(instance.app, np.arange(instance.apps + 1))
        self._span = [(int(a), int(b)) for a, b in pairwise(starts)]
        self.options = [range(*span) for span in self._span]
        self.sizes = [shape.size for shape in instance.shapes]

    def floor(self) -> Floor:
        """An empty floor."""
        return Floor(self.instance.pool, self.instance.rack_of)

    def try_orders(
        self, option: Mapping[int, int], tries: int
    ) -> tuple[Floor, Placement, list[int]]:
        """Place all options, in several orders until all fit; the try that lost least."""
        best: tuple[float, Floor, Placement, list[int]] | None = None
        for number in range(tries):
            floor = self.floor()
            luck = random.Random(number) if number else None
            shapes = {a: self.instance.shapes[self.instance.shape[o]] for a, o in option.items()}
            bundles, failed = place_all(floor, shapes, luck)
            lost = sum(self.sizes[self.instance.shape[option[a]]] for a in failed)
            if best is None or lost < best[0]:
                kept = {a: o for a, o in option.items() if a in bundles}
                best = (lost, floor, Placement(kept, bundles), failed)
            if not failed:
                break
        assert best is not None
        return best[1:]

    def place_more(
        self, floor: Floor, placement: Placement, option: Mapping[int, int]
    ) -> list[int]:
        """Add options to a placement; returns the bidders whose option does not fit."""
        shapes = {a: self.instance.shapes[self.instance.shape[o]] for a, o in option.items()}
        bundles, failed = place_all(floor, shapes)
        for app, bundle in bundles.items():
            placement.option[app], placement.bundles[app] = option[app], bundle
        return failed

    def first_option(self, app: int) -> int:
        """Where a bidder's options start."""
        return self._span[app][0]

    def smallest(self, app: int) -> int:
        """A bidder's option of the fewest GPUs."""
        return min(range(*self._span[app]), key=lambda o: self.sizes[self.instance.shape[o]])

    def settle(
        self, floor: Floor, placement: Placement, failed: Iterable[int], gain: Floats
    ) -> None:
        """Give each bidder that lost its place the best that still fits."""
        span = self._span
        tops = {a: float(gain[slice(*span[a])].max(initial=-math.inf)) for a in failed}
        for app in sorted(tops, key=lambda a: (-tops[a], a)):
            self._best_fit(floor, placement, app, gain, -math.inf)

    def upgrade(
        self, floor: Floor, placement: Placement, apps: Iterable[int], gain: Floats
    ) -> None:
        """Let bidders move up to better options while there are free GPUs."""
        apps = list(apps)
        for _ in range(PASSES):
            changed = False
            for app in apps:
                if not any(floor.rack_free.values()):
                    return
                had = placement.option.get(app)
                mine = placement.bundles.get(app, {})
                floor.give(mine)
                above = -math.inf if had is None else float(gain[had])
                if self._best_fit(floor, placement, app, gain, above):
                    changed = True
                else:
                    floor.take(mine)
            if not changed:
                return

    def _best_fit(
        self, floor: Floor, placement: Placement, app: int, gain: Floats, above: float
    ) -> bool:
        room = sum(floor.rack_free.values())
        for option in self._ranking(app, gain):
            if not gain[option] > above:
                return False
            shape = self.instance.shape[option]
            if self.sizes[shape] <= room:
                bundle = floor.place(self.instance.shapes[shape])
                if bundle is not None:
                    placement.option[app], placement.bundles[app] = option, bundle
                    return True
        return False

    def _ranking(self, app: int, gain: Floats) -> list[int]:
        """The bidder's options, the greatest gain first."""
        if app not in self._ranked:
            start, stop = self._span[app]
            order = np.argsort(-self.instance.gain[start:stop], kind="stable")
            self._ranked[app] = [start + int(i) for i in order]
        return self._ranked[app]
