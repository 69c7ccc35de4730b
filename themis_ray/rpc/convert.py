"""Between the core's values and the wire, both ways.

What arrives is checked here, whoever sent it: the error names the field and the way to mend it.
Durations become absolute times on the receiver's clock: pass ``now`` from the same clock that
the result will be compared with.
"""

from __future__ import annotations

from themis_ray.rpc.from_agent import (
    AgentEvent,
    agent_message,
    event_from,
    register_from,
    register_message,
)
from themis_ray.rpc.from_arbiter import (
    AppCommand,
    arbiter_message,
    command_from,
    welcome_from,
    welcome_message,
)

__all__ = [
    "AgentEvent",
    "AppCommand",
    "agent_message",
    "arbiter_message",
    "command_from",
    "event_from",
    "register_from",
    "register_message",
    "welcome_from",
    "welcome_message",
]
