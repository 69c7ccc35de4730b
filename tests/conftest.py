from __future__ import annotations

import os
import subprocess
import sys

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


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that forks in a process of its own.

    A copy of this one has the locks, but not the threads, of whatever earlier tests left running
    (gRPC's, for one), and has been seen to end with a segmentation fault for it.
    """
    if pyfuncitem.get_closest_marker("forks") is None or "THEMIS_TEST_ALONE" in os.environ:
        return None
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", pyfuncitem.nodeid],
        cwd=pyfuncitem.config.rootpath,
        env={**os.environ, "THEMIS_TEST_ALONE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if ended.returncode:
        pytest.fail(ended.stdout, pytrace=False)
    return True
