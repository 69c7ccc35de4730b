"""Tools to test policies, agents and drivers of one's own without Ray and without waiting.

- :mod:`~themis_ray.testing.clock`: time that passes when told to.
- :mod:`~themis_ray.testing.invariants`: what must be true of an arbiter after every event.
- :mod:`~themis_ray.testing.agents`: apps in memory.
- :mod:`~themis_ray.testing.loop`: runs an arbiter with apps in memory.
- :mod:`~themis_ray.testing.policy_contract`: a test suite that every policy has to pass.
- :mod:`~themis_ray.testing.strategies`: Hypothesis strategies (needs ``hypothesis``).
"""

from __future__ import annotations

from themis_ray.testing.agents import JobSpec, SimpleAgent
from themis_ray.testing.clock import FakeClock
from themis_ray.testing.invariants import check_arbiter, snapshot
from themis_ray.testing.loop import History, InMemoryAgent, Loop, run
from themis_ray.testing.policy_contract import PolicyContract

__all__ = [
    "FakeClock",
    "History",
    "InMemoryAgent",
    "JobSpec",
    "Loop",
    "PolicyContract",
    "SimpleAgent",
    "check_arbiter",
    "run",
    "snapshot",
]
