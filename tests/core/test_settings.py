import math

import pytest

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
