"""Placing a decided round anew: everybody keeps as many GPUs, and jobs that run stay put."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from themis_ray.core.policies.base import Award, RoundView
from themis_ray.core.policies.dividing import Division
from themis_ray.core.policies.takers import Taker, share_out, takers_of


def placed_anew(
    view: RoundView, awards: Mapping[str, Award], order: Sequence[str] = ()
) -> dict[str, Award]:
    """The same numbers of GPUs, placed job by job.

    An auction places bundles by what its bids can say: the GPUs that an app runs on are named, the
    others are parts that may lie on any machine. Which of them are near an app's other GPUs, it
    cannot know.

    Args:
        view: The round.
        awards: What each app gets.
        order: Who chooses first; the others follow in the order of the view.

    Returns:
        The awards; as they were when they could not be placed in another way.
    """
    jobs: dict[str, list[Taker]] = {}
    for taker in takers_of(view):
        if taker.app.id in awards:
            jobs.setdefault(taker.app.id, []).append(taker)
    division = Division(view, [taker for some in jobs.values() for taker in some])
    first = {app: i for i, app in enumerate(order)}
    for app in sorted(jobs, key=lambda name: (first.get(name, len(first)), name)):
        for taker, count in zip(
            jobs[app], share_out(jobs[app], awards[app].gpus.size), strict=True
        ):
            gpus = division.bundle(taker, count)
            if gpus:
                division.give(taker, gpus, 0.0)
    division.settle()
    placed = division.outcome("anew").awards
    if any(app not in placed or placed[app].gpus.size < a.gpus.size for app, a in awards.items()):
        return dict(awards)
    return {app: replace(award, gpus=placed[app].gpus) for app, award in awards.items()}
