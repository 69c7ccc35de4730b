"""One small Ray for the tests of the Tune seam, and an arbiter for each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.ray_process import small_ray, starts_arbiter


@pytest.fixture(scope="package")
def local_ray() -> Iterator[None]:
    with small_ray(num_gpus=4):
        yield


@pytest.fixture
def arbiter(local_ray: None) -> Iterator[Callable[..., dict[str, Any]]]:
    with starts_arbiter(lease_s=6.0, notice_s=1.0, grace_s=4.0) as start:
        yield start
