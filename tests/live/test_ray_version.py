"""A Ray that is too old is refused with the way to mend it."""

from __future__ import annotations

import pytest

from themis_ray.errors import UnsupportedRayError
from themis_ray.live.ray_version import check_ray_version


@pytest.mark.parametrize("version", ["2.60.0", "2.61.1", "3.0.0rc1"])
def test_new_enough(version: str) -> None:
    assert check_ray_version(version) == version


@pytest.mark.parametrize("version", ["2.59.9", "1.13.0", "2.9.3", "nightly"])
def test_too_old(version: str) -> None:
    with pytest.raises(UnsupportedRayError, match="pip install -U"):
        check_ray_version(version)
