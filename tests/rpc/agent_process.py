"""A driver of its own process: ``agent_process.py ADDRESS TOKEN APP``; one line per state."""

import sys
import threading

from themis_ray.core.events import AppReport
from themis_ray.rpc.client import AgentClient
from themis_ray.rpc.messages import Endpoint, RegisterRequest

address, token, app = sys.argv[1:]
client = AgentClient(
    lambda: Endpoint(address, token),
    lambda: RegisterRequest(app, AppReport(1.0, 1.0, 1.0, 1)),
    lambda command: None,
    lambda state, message: print(state.value, flush=True),
)
client.connect(20)
threading.Event().wait()
