from __future__ import annotations

import pytest
from hypothesis import settings

from tests.ray_process import RAY_FIXTURES

# The same examples in every run, so that a failure is the change's and not the day's.
settings.register_profile("ci", derandomize=True, deadline=None)
# For searching: HYPOTHESIS_PROFILE=search.
settings.register_profile("search", max_examples=2000, deadline=None)
settings.load_profile("ci")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that have a Ray of their own."""
    for item in items:
        if RAY_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.ray)
