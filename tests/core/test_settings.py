import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis_ray.core.settings import ArbiterConfig
from themis_ray.errors import ConfigError


@pytest.mark.parametrize("name", ["lease_s", "report_timeout_s", "bid_timeout_s"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
def test_times_that_must_be_positive(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{name} = .*use a positive number"):
        ArbiterConfig(**{name: value})


@pytest.mark.parametrize("name", ["notice_s", "grace_s", "round_delay_s", "min_lease_s"])
@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
def test_times_that_may_be_zero(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{name} = .*use 0 or more seconds"):
        ArbiterConfig(**{name: value})
    assert getattr(ArbiterConfig(**{name: 0.0}), name) == 0


@pytest.mark.parametrize("notice_s", [20.0, 30.0])
def test_the_notice_is_shorter_than_the_lease(notice_s: float) -> None:
    with pytest.raises(ConfigError, match="not shorter than lease_s = 20"):
        ArbiterConfig(lease_s=20.0, notice_s=notice_s)


def test_without_a_grid_leases_have_their_length() -> None:
    config = ArbiterConfig(lease_s=100, min_lease_s=20)
    assert [config.end_s(7, x) for x in (1, 0.5, 0.01)] == [107, 57, 27]


@given(
    base=st.floats(0, 1e6),
    fraction=st.floats(0.01, 1),
    grid=st.sampled_from([1.0, 60.0, 300.0, 600.0, 1800.0]),
)
def test_leases_on_a_grid_end_together_and_not_too_soon(
    base: float, fraction: float, grid: float
) -> None:
    config = ArbiterConfig(lease_s=600, min_lease_s=60, lease_grid_s=grid)
    end = config.end_s(base, fraction)
    assert end % grid == 0
    assert end >= base + 60
    free = base + max(60, 600 * fraction)
    assert abs(end - free) <= grid / 2 or end - grid < base + 60  # the nearest, or the first


def test_a_grid_below_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="lease_grid_s"):
        ArbiterConfig(lease_grid_s=-1)
