"""Spreads sizes over racks as evenly as they allow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

SWAPS = 2000
NEIGHBOURS = 12


def spread(bound: Mapping[int, int], room: Mapping[str, int]) -> dict[str, list[int]]:
    """Bidders by rack: large ones first by best fit, then swaps that even overflows out.

    Args:
        bound: The GPUs that each bidder wants.
        room: The free GPUs of each rack.
    """
    apps: dict[str, list[int]] = {rack: [] for rack in room}
    left = dict(room)
    for app in sorted(bound, key=lambda a: (-bound[a], a)):
        fits = [rack for rack in left if left[rack] >= bound[app]]
        # When it fits nowhere, where it overflows least.
        rack = min(fits, key=left.__getitem__) if fits else max(left, key=left.__getitem__)
        apps[rack].append(app)
        left[rack] -= bound[app]
    for _ in range(SWAPS):
        if not _swap_once(apps, left, bound):
            break
    return apps


def _swap_once(apps: dict[str, list[int]], left: dict[str, int], bound: Mapping[int, int]) -> bool:
    """Move or swap bidders of the fullest rack so that the worse of two overflows is less."""
    full = min(left, key=left.__getitem__)
    if left[full] >= 0:
        return False
    swap = max(_swaps(apps, left, bound, full), default=None, key=lambda s: s[0])
    if swap is None:
        return False
    _, rack, app, other = swap
    apps[full].remove(app)
    apps[rack].append(app)
    moved = bound[app]
    if other >= 0:
        apps[rack].remove(other)
        apps[full].append(other)
        moved -= bound[other]
    left[full] += moved
    left[rack] -= moved
    return True


def _swaps(
    apps: Mapping[str, Sequence[int]],
    left: Mapping[str, int],
    bound: Mapping[int, int],
    full: str,
) -> Iterable[tuple[int, str, int, int]]:
    """Swaps that help: ``(the worse room afterwards, rack, bidder moved, bidder taken back)``."""
    for rack in sorted(left, key=lambda r: -left[r])[:NEIGHBOURS]:
        for app in apps[full]:
            for other in (-1, *apps[rack]):
                moved = bound[app] - (bound[other] if other >= 0 else 0)
                worse = min(left[full] + moved, left[rack] - moved)
                if moved > 0 and worse > left[full]:
                    yield worse, rack, app, other
