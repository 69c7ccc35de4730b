"""Which placements of a cluster are measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis_ray.core.cluster import Cluster, Machine
from themis_ray.core.slowdown import Signature
from themis_ray.profiling.placements import plan


def signatures(machines: list[Machine], counts: list[int]) -> list[str]:
    return [str(p.signature) for p in plan(machines, counts).placements]


def test_one_machine_two_machines_two_racks() -> None:
    machines = [
        Machine("a", 4, "r0", slots=2),
        Machine("b", 4, "r0", slots=2),
        Machine("c", 2, "r1"),
    ]
    assert signatures(machines, [1, 2, 4, 8]) == [
        "1",
        "2",
        "1+1/rack",
        "1+1/cluster",
        "4/machine",
        "2+2/rack",
        "2+2/cluster",
        "4+4/rack",
    ]
    assert plan(machines, [8]).missing == (
        "8 GPUs on one machine: no machine has more than 4 free",
        "8 GPUs in two racks: no two such machines have 4 free each",
    )


@pytest.mark.parametrize(
    ("machines", "missing"),
    [
        ([], ("2 GPUs: the cluster has none free", "4 GPUs: the cluster has none free")),
        ([Machine("a", 3)], ("4 GPUs: the cluster has 3 free",)),
        (
            [Machine("a", 1), Machine("b", 1)],
            ("2 GPUs on one machine: no machine has more than 1 free",),
        ),
        (
            [Machine("a", 2)],
            (
                "2 GPUs on two machines of a rack: only one machine has any free",
                "2 GPUs in two racks: only one machine has any free",
            ),
        ),
        (
            [Machine("a", 2), Machine("b", 2)],
            ("2 GPUs in two racks: only one rack has any free",),
        ),
        (
            [Machine("a", 2, "r0"), Machine("b", 2, "r1")],
            ("2 GPUs on two machines of a rack: no rack has two machines with any free",),
        ),
        (
            [Machine("a", 2, "r0"), Machine("b", 1, "r0"), Machine("c", 2, "r1")],
            ("4 GPUs on two machines of a rack: no two such machines have 2 free each",),
        ),
    ],
)
def test_what_a_cluster_does_not_offer_is_named(
    machines: list[Machine], missing: tuple[str, ...]
) -> None:
    assert set(missing) <= set(plan(machines, [2, 4]).missing)


def test_odd_numbers_are_measured_on_one_machine() -> None:
    found = plan([Machine("a", 4), Machine("b", 4)], [3])
    assert [p.allocation.size for p in found.placements] == [3]
    assert found.missing == ()


@given(
    st.lists(st.tuples(st.integers(1, 8), st.sampled_from(["r0", "r1"])), max_size=6),
    st.lists(st.integers(1, 16), min_size=1, max_size=4),
)
def test_every_placement_is_there_or_named(sizes: list[tuple[int, str]], counts: list[int]) -> None:
    machines = [Machine(f"m{i}", gpus, rack) for i, (gpus, rack) in enumerate(sizes)]
    cluster = Cluster(tuple(machines))
    found = plan(machines, counts)
    for placement in found.placements:
        assert placement.allocation <= cluster.capacity
        assert placement.signature == Signature.of(placement.allocation, cluster)
    assert len({p.signature for p in found.placements}) == len(found.placements)
    few = {g for g in counts if g > cluster.capacity.size}
    asked = sum(3 if g > 1 and g % 2 == 0 and g not in few else 1 for g in set(counts))
    assert len(found.placements) + len(found.missing) == asked
