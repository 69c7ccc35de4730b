import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis_ray.core.cluster import Allocation, Cluster, Level, Machine
from themis_ray.core.slowdown import PRIORS, Signature, SlowdownTable
from themis_ray.errors import InvalidInputError

CLUSTER = Cluster((Machine("a", 4, "r0"), Machine("b", 4, "r0"), Machine("c", 4, "r1")))


@pytest.mark.parametrize(
    ("gpus", "s"),
    [
        ({"a": 1}, 1.0),
        ({"a": 4}, 1.0),
        ({"a": 2, "b": 2}, 1.1),
        ({"a": 2, "c": 2}, 1.3),
    ],
)
def test_priors_by_level(gpus: dict[str, int], s: float) -> None:
    assert SlowdownTable().s(Signature.of(Allocation(gpus), CLUSTER)) == s


def test_a_measurement_replaces_the_prior_of_that_placement_only() -> None:
    table = SlowdownTable()
    apart, even = Signature((2, 2), Level.RACK), Signature((3, 1), Level.RACK)
    table.record(apart, 1.45)
    assert table.s(apart) == 1.45
    assert table.s(even) == PRIORS[Level.RACK]
    table.record(apart, 0.9)  # faster than perfect is noise
    assert table.s(apart) == 1.0
    assert SlowdownTable().s(apart) == PRIORS[Level.RACK]  # tables share nothing


@given(st.floats(0, 10), st.sampled_from(Level))
def test_one_gpu_is_never_slowed_down(s: float, level: Level) -> None:
    table = SlowdownTable()
    if s > 0:
        table.record(Signature((1,), level), s)
    assert table.s(Signature((1,), level)) == table.s(Signature((), level)) == 1.0


@pytest.mark.parametrize("s", [0.0, -1.0, math.inf, math.nan])
def test_measurements_that_are_none_are_refused(s: float) -> None:
    with pytest.raises(InvalidInputError, match="use a positive number"):
        SlowdownTable().record(Signature((2,), Level.MACHINE), s)


@pytest.mark.parametrize("s", [0.9, math.nan])
def test_priors_below_one_are_refused(s: float) -> None:
    with pytest.raises(InvalidInputError, match=r"S\(G\) is 1 or more"):
        SlowdownTable({Level.RACK: s})
