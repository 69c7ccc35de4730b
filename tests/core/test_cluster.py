import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis_ray.core.cluster import NOTHING, Allocation, Cluster, Level, Machine, total
from themis_ray.errors import InvalidInputError
from themis_ray.testing.strategies import allocations, clusters

MACHINES = ["m0", "m1", "m2", "m3"]


@given(allocations(), allocations())
def test_allocations_count_per_machine(a: Allocation, b: Allocation) -> None:
    for machine in MACHINES:
        assert (a + b).on(machine) == a.on(machine) + b.on(machine)
        assert (a & b).on(machine) == min(a.on(machine), b.on(machine))
        assert a.minus(b).on(machine) == max(0, a.on(machine) - b.on(machine))
    assert (a <= b) == all(a.on(m) <= b.on(m) for m in MACHINES)
    assert a.size == sum(a.on(m) for m in MACHINES)
    assert (a + b) - b == a
    assert (a & b) + a.minus(b) == a


@given(allocations(), allocations())
def test_what_is_not_there_cannot_be_taken(a: Allocation, b: Allocation) -> None:
    if b <= a:
        assert (a - b) + b == a
    else:
        with pytest.raises(InvalidInputError, match="cannot take"):
            a - b


@given(allocations(), st.randoms())
def test_allocations_are_values(a: Allocation, rng: object) -> None:
    turned = Allocation(list(reversed([*a.items(), ("m9", 0)])))
    assert turned == a
    assert hash(turned) == hash(a)
    assert a != dict(a)
    assert a.parts == tuple(sorted(a.values(), reverse=True))
    assert bool(a) == (a.size > 0)


@pytest.mark.parametrize("count", [-1, 0.5])
def test_counts_are_whole(count: float) -> None:
    with pytest.raises(InvalidInputError, match="whole number of 0 or more"):
        Allocation({"m0": count})  # type: ignore[dict-item]


def test_allocations_read_well() -> None:
    assert str(Allocation({"m1": 2, "m0": 1})) == "m0:1 + m1:2"
    assert str(NOTHING) == "nothing"


CLUSTER = Cluster((Machine("a", 8, "r0", slots=2), Machine("b", 4, "r0"), Machine("c", 4, "r1")))


@pytest.mark.parametrize(
    ("gpus", "level"),
    [
        ({}, Level.SLOT),
        ({"a": 4}, Level.SLOT),
        ({"a": 5}, Level.MACHINE),
        ({"b": 4}, Level.SLOT),
        ({"a": 1, "b": 1}, Level.RACK),
        ({"b": 1, "c": 1}, Level.CLUSTER),
    ],
)
def test_levels(gpus: dict[str, int], level: Level) -> None:
    assert CLUSTER.level(Allocation(gpus)) is level


@given(clusters())
def test_clusters_add_up(cluster: Cluster) -> None:
    assert cluster.gpus == sum(m.gpus for m in cluster.machines) == cluster.capacity.size
    assert cluster == Cluster(tuple(reversed(cluster.machines)))
    assert cluster.racks == {m.id: m.rack for m in cluster.machines}


def test_bad_clusters_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="two machines have the id 'a'"):
        Cluster((Machine("a", 1), Machine("a", 2)))
    with pytest.raises(InvalidInputError, match=r"'z' is not in the cluster; it has a, b, c"):
        CLUSTER.level(Allocation({"z": 1}))
    with pytest.raises(InvalidInputError, match="use 0 or more"):
        Machine("a", -1)
    with pytest.raises(InvalidInputError, match="cannot be divided into 3 slots"):
        Machine("a", 4, slots=3)


@given(allocations(), allocations())
def test_allocations_are_in_order_and_count_their_gpus_however_made(
    a: Allocation, b: Allocation
) -> None:
    for made in (a + b, a & b, a.minus(b), Allocation.summed({**b, **a}), total([a, b, a])):
        assert list(made) == sorted(made)
        assert made.size == sum(made.values())
        assert made == Allocation(dict(made))
        assert all(made.values())
    counts = a.counts()
    counts["m9"] = 1
    assert "m9" not in a
    assert Allocation.on_one("m0", 3) == Allocation({"m0": 3})
    assert Allocation.on_one("m0", 3).size == 3


def test_the_largest_machine_and_rack() -> None:
    machines = (Machine("m0", 4, "a"), Machine("m1", 3, "b"), Machine("m2", 3, "b"))
    assert Cluster(machines).largest == (4, 6)
    assert Cluster().largest == (0, 0)
