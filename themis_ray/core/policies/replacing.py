"""Placing a decided round anew: everybody keeps as many GPUs, and jobs that run stay put."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from themis_ray.core.cluster import NOTHING
from themis_ray.core.policies.base import Award, RoundView
from themis_ray.core.policies.dividing import Division
from themis_ray.core.policies.takers import Taker, pinned


def placed_anew(
    view: RoundView, awards: Mapping[str, Award], jobs: Mapping[str, Sequence[Taker]]
) -> dict[str, Award]:
    """The same numbers of GPUs, placed job by job.

    An auction places bundles by what its bids can say: the GPUs that an app runs on are named, the
    others are parts that may lie on any machine. Which of them are near an app's other GPUs, it
    cannot know.

    Args:
        view: The round.
        awards: What each app gets.
        jobs: The jobs of each app in the order in which they take its GPUs; apps that come first
            choose first.

    Returns:
        The awards; as they were when they could not be placed in another way.
    """
    some = {app: takers for app, takers in jobs.items() if app in awards}
    division = Division(view, [taker for takers in some.values() for taker in takers])
    stays = pinned(view)
    for app, takers in some.items():
        left = awards[app].gpus.size - stays.get(app, NOTHING).size
        for taker in takers:
            gpus = division.bundle(taker, taker.fit(left))
            if gpus:
                division.give(taker, gpus, 0.0)
                left -= gpus.size
    division.settle()
    placed = division.outcome("anew").awards
    if any(app not in placed or placed[app].gpus.size < a.gpus.size for app, a in awards.items()):
        return dict(awards)
    return {app: replace(award, gpus=placed[app].gpus) for app, award in awards.items()}
