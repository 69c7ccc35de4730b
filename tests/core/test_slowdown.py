import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis_ray.core.cluster import Allocation, Cluster, Level, Machine
from themis_ray.core.slowdown import PRIORS, Signature, SlowdownTable, skewed_priors
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


def test_a_measurement_replaces_the_prior_of_like_placements_only() -> None:
    table = SlowdownTable()
    apart, uneven = Signature((2, 2), Level.RACK), Signature((3, 1), Level.RACK)
    table.record(apart, 1.45)
    assert table.s(apart) == table.s(uneven) == 1.45
    for other in (Signature((2, 1), Level.RACK), Signature((2, 2), Level.CLUSTER)):
        assert table.s(other) == PRIORS[other.level]
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


def test_the_most_similar_measurement_stands_for_one_that_is_not_there() -> None:
    table = SlowdownTable()
    table.record(Signature((2, 2), Level.RACK), 1.2)
    table.record(Signature((1, 1, 1, 1), Level.RACK), 1.8)
    table.record(Signature((2, 1, 1), Level.RACK), 1.5)
    assert table.s(Signature((3, 1), Level.RACK)) == 1.2
    assert table.s(Signature((1, 1, 1, 1), Level.RACK)) == 1.8


def test_one_machine_is_one_machine_whether_or_not_its_slots_are_known() -> None:
    table = SlowdownTable()
    table.record(Signature((4,), Level.SLOT), 1.15)
    assert table.s(Signature((4,), Level.MACHINE)) == 1.15
    table.record(Signature((4,), Level.MACHINE), 1.4)
    assert table.s(Signature((4,), Level.SLOT)) == 1.15
    assert table.s(Signature((4,), Level.MACHINE)) == 1.4


@pytest.mark.parametrize(
    ("signature", "text"),
    [
        (Signature((), Level.SLOT), "0"),
        (Signature((4,), Level.SLOT), "4"),
        (Signature((4,), Level.MACHINE), "4/machine"),
        (Signature((2, 1), Level.RACK), "2+1/rack"),
        (Signature((1, 1, 1), Level.CLUSTER), "1+1+1/cluster"),
    ],
)
def test_signatures_in_words(signature: Signature, text: str) -> None:
    assert str(signature) == text
    assert Signature.parse(text) == signature


def test_a_signature_may_be_written_in_any_order() -> None:
    assert Signature.parse("1+3/rack") == Signature((3, 1), Level.RACK)


@pytest.mark.parametrize("text", ["", "four", "2+2/room", "2++2", "/rack"])
def test_what_is_no_signature(text: str) -> None:
    with pytest.raises(InvalidInputError, match="is no placement"):
        Signature.parse(text)


def test_priors_of_the_published_models() -> None:
    vgg16, resnet50 = skewed_priors(0.743), skewed_priors(0.092)
    assert vgg16[Level.RACK] == pytest.approx(103.6 / 80.4)
    assert vgg16[Level.CLUSTER] == pytest.approx(1.52, abs=0.01)
    assert resnet50 == skewed_priors(None) == dict(PRIORS)


@given(st.floats(0, 1), st.floats(0, 1))
def test_priors_grow_with_skew_and_never_fall_below_the_papers(one: float, other: float) -> None:
    low, high = skewed_priors(min(one, other)), skewed_priors(max(one, other))
    assert all(PRIORS[level] <= low[level] <= high[level] for level in Level)
    SlowdownTable(high)


@pytest.mark.parametrize("skew", [-0.1, 1.01, math.nan])
def test_a_skew_is_a_share(skew: float) -> None:
    with pytest.raises(InvalidInputError, match="from 0 to 1"):
        skewed_priors(skew)
