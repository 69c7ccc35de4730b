"""A short lease whose GPUs its last holder has not left by the lease's end.

The events are those of a live run on a machine so slow that it took the last holder longer to leave
than the next one had paid for (``data/awaited_lease.jsonl``, a journal without its digests).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from themis_ray.core import events as ev
from themis_ray.core.arbiter import Arbiter
from themis_ray.core.commands import RemoveGroup
from themis_ray.core.journal import Entry, Header
from themis_ray.live.journal_reader import read_journal

JOURNAL = Path(__file__).resolve().parent / "data" / "awaited_lease.jsonl"


@pytest.mark.timeout(60)
def test_it_ends_and_the_arbiter_goes_on() -> None:
    core: Arbiter | None = None
    now = 0.0
    for _, line in read_journal(JOURNAL, pytest.fail):
        if isinstance(line, Header):
            core = Arbiter(line.make_policy(), line.config)
        elif isinstance(line, Entry):
            assert core is not None
            now = line.now_s
            core.handle(line.event, now)
    assert core is not None
    awaited = [x for x in core.state.apps["second"].leases.values() if x.pending]
    assert [x.held.size for x in awaited] == [0]
    # The first app never leaves: its groups go by force after the grace.
    removed = set()
    while len(removed) < 2:
        due = core.wakeup_s()
        assert due is not None
        now = max(now + 0.001, due)
        out = core.handle(ev.Tick(), now)
        removed |= {command.group for command in out if isinstance(command, RemoveGroup)}
        if now > awaited[0].expires_s:
            assert awaited[0].id not in core.state.apps["second"].leases
    assert {name.split("/")[0] for name in removed} == {"first"}
