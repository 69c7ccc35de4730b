import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis_ray.core.bids import BidRow, BidTable, check_against_offer, within
from themis_ray.core.cluster import NOTHING, Allocation, Level
from themis_ray.errors import BidError
from themis_ray.testing.strategies import allocations, bid_tables, rs

OFFER = Allocation({"m0": 4, "m1": 2})


@given(rs())
def test_values_are_one_over_r(r: float) -> None:
    assert BidRow(r, parts=(1,)).value == (0 if math.isinf(r) else 1 / r)
    assert BidTable("a", r).value_nothing == (0 if math.isinf(r) else 1 / r)


@pytest.mark.parametrize(
    ("pinned", "parts", "says"),
    [
        ({"m0": 5}, (), "only 4 were offered there"),
        ({"m9": 1}, (), "only 0 were offered there"),
        ({}, (5,), "does not fit"),
        ({}, (4, 2, 1), "does not fit"),
        ({"m0": 4}, (2, 1), "does not fit"),
    ],
)
def test_rows_beyond_the_offer(pinned: dict[str, int], parts: tuple[int, ...], says: str) -> None:
    table = BidTable("a", math.inf, (BidRow(1.0, Allocation(pinned), parts),))
    with pytest.raises(BidError, match=says):
        check_against_offer(table, OFFER)
    assert within(table, OFFER).rows == ()


@given(st.data(), allocations(), allocations())
def test_a_table_keeps_exactly_the_rows_that_an_offer_allows(
    data: st.DataObject, offer: Allocation, left: Allocation
) -> None:
    table = data.draw(bid_tables("a", offer))
    check_against_offer(table, offer)
    assert within(table, offer) == table
    fits = []
    for row in table.rows:
        try:
            check_against_offer(BidTable("a", 1.0, (row,)), left)
        except BidError:
            continue
        fits.append(row)
    assert within(table, left).rows == tuple(fits)


@pytest.mark.parametrize("parts", [(0,), (1, 2), (-1,)])
def test_parts_are_ordered_and_positive(parts: tuple[int, ...]) -> None:
    with pytest.raises(BidError, match="largest first"):
        BidRow(1.0, parts=parts)


def test_rows_that_contradict_themselves() -> None:
    with pytest.raises(BidError, match="cannot lie on one machine"):
        BidRow(1.0, Allocation({"m0": 1, "m1": 1}), level=Level.MACHINE)
    with pytest.raises(BidError, match="put r for nothing in r_nothing"):
        BidTable("a", 1.0, (BidRow(1.0),))


def test_rows_read_well() -> None:
    row = BidRow(1.0, Allocation({"m0": 2}), (2, 1))
    assert row.describe() == "m0:2 + 2 + 1"
    assert row.size == 5
    assert BidRow(1.0, NOTHING).describe() == "nothing"
