"""Slots from the links between GPUs."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis_ray.core.cluster import Machine
from themis_ray.profiling.topology import Gpu, Link, Topology

# GPUs 0-3 and 4-7 of a DGX-1 (V100) are fully linked; each has one link to the other quad.
CUBE_MESH = [
    *combinations(range(4), 2),
    *combinations(range(4, 8), 2),
    *((i, i + 4) for i in range(4)),
]


def gpu(index: int) -> Gpu:
    return Gpu(index, None, None, None, None, None)


def topology(count: int, links: dict[tuple[int, int], Link], far: Link = Link.SYSTEM) -> Topology:
    pairs = combinations(range(count), 2)
    return Topology(tuple(map(gpu, range(count))), {p: links.get(p, far) for p in pairs})


@pytest.mark.parametrize(
    ("found", "groups", "slots"),
    [
        (Topology(), (), 1),
        (topology(1, {}), ((0,),), 1),
        (topology(8, dict.fromkeys(CUBE_MESH, Link.NVLINK)), ((0, 1, 2, 3), (4, 5, 6, 7)), 2),
        (topology(4, {(0, 1): Link.NVLINK, (2, 3): Link.NVLINK}), ((0, 1), (2, 3)), 2),
        (topology(4, {(0, 1): Link.SWITCH, (2, 3): Link.SWITCHES}), ((0, 1), (2, 3)), 2),
        (topology(4, {(0, 2): Link.SOCKET, (1, 3): Link.BRIDGE}), ((0, 2), (1, 3)), 2),
        # NVLink is nearer than a PCIe switch, which then makes no slots.
        (
            topology(4, {(0, 1): Link.NVLINK, (2, 3): Link.NVLINK}, far=Link.SWITCH),
            ((0, 1), (2, 3)),
            2,
        ),
        (topology(3, {}, far=Link.SYSTEM), ((0, 1, 2),), 1),
        (topology(4, {}, far=Link.UNKNOWN), ((0, 1, 2, 3),), 1),
        # Three and one: no slot of three is safe to promise.
        (topology(4, dict.fromkeys([(0, 1), (0, 2), (1, 2)], Link.NVLINK)), ((0, 1, 2), (3,)), 4),
    ],
)
def test_groups_and_slots(found: Topology, groups: tuple[tuple[int, ...], ...], slots: int) -> None:
    assert found.groups() == groups
    assert found.slots == slots


@given(
    st.integers(1, 9).flatmap(
        lambda n: st.tuples(
            st.just(n),
            st.fixed_dictionaries(
                {pair: st.sampled_from(list(Link)) for pair in combinations(range(n), 2)}
            ),
        )
    )
)
def test_slots_are_equal_groups_of_near_gpus(case: tuple[int, dict[tuple[int, int], Link]]) -> None:
    count, links = case
    found = topology(count, links)
    groups = found.groups()
    assert sorted(i for group in groups for i in group) == list(range(count))
    if found.kind is not Link.UNKNOWN:
        assert all(links[p] <= found.kind for g in groups for p in combinations(g, 2))
    assert Machine("m0", count, slots=found.slots).gpus_per_slot == math.gcd(*map(len, groups))
