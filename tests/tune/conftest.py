"""One small Ray for the tests of the Tune seam, and an arbiter for each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.ray_process import RULES, eventually, isolated_ray_environment, left_over


@pytest.fixture(scope="package")
def local_ray() -> Iterator[None]:
    import ray

    with isolated_ray_environment() as folder:
        ray.init(
            num_cpus=4,
            num_gpus=4,
            include_dashboard=False,
            log_to_driver=False,
            _temp_dir=str(folder / "ray"),
        )
        yield
        ray.shutdown()


@pytest.fixture
def arbiter(local_ray: None) -> Iterator[Callable[..., dict[str, Any]]]:
    """Starts the arbiter; afterwards nothing of ours may be left."""
    import themis_ray

    def start(**options: Any) -> dict[str, Any]:
        given = {**RULES, "lease_s": 6.0, "notice_s": 1.0, "grace_s": 4.0, **options}
        return themis_ray.start(**given)

    yield start
    themis_ray.stop()
    eventually("all of ours is gone", lambda: not left_over(), 30)
