"""Placing a decided round anew: everybody keeps as many GPUs, and jobs that run stay put.

Only a job that is spread over machines, and whose GPUs its app did not win again, moves: the
auction gave the app others of the same number, on which it is faster.
"""

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
    some = {
        app: [_as_awarded(taker, awards[app]) for taker in takers]
        for app, takers in jobs.items()
        if app in awards
    }
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


def _as_awarded(taker: Taker, award: Award) -> Taker:
    """A job with no GPUs of its own when it is spread and the app has won others instead."""
    if len(taker.own) < 2 or taker.own <= award.gpus:
        return taker
    return replace(taker, own=NOTHING)
