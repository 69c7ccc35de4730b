"""The way from a process to the arbiter, where there is no Ray."""

from __future__ import annotations

import pytest
import ray

from themis_ray.errors import ArbiterUnavailableError
from themis_ray.live import client as live


def test_looking_for_the_arbiter_starts_no_ray() -> None:
    # A driver that has shut Ray down may still have an AGENT, whose thread goes on looking.
    assert not ray.is_initialized()
    assert live.find_actor() is None
    with pytest.raises(ArbiterUnavailableError, match="no arbiter runs"):
        live.endpoint()
    assert not ray.is_initialized()
