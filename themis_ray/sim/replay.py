"""Feeds a journal to the core again: the decisions must be the ones that were made.

The core is a pure function of its events and their times, so any difference means that the code
(or a library under it) has changed since, or that a decision hung on something else; an auction
that ran into its time limit is the one case known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from themis_ray.core.arbiter import Arbiter
from themis_ray.core.commands import Command
from themis_ray.core.journal import Entry, Header, Line
from themis_ray.core.policies import Policy


@dataclass(frozen=True, slots=True)
class Parting:
    """Where a replay parts from what was recorded.

    Attributes:
        run: The number of the run, from 1.
        event: The number of the event within it, from 1.
        place: File and line.
        now_s: Its time, on the arbiter's clock.
        kind: What kind of event it is.
        recorded: What the arbiter did then.
        replayed: What it does now.
    """

    run: int
    event: int
    place: str
    now_s: float
    kind: str
    recorded: str
    replayed: str

    def __str__(self) -> str:
        return (
            f"{self.place}: event {self.event} of run {self.run} ({self.kind}): the arbiter did "
            f"{self.recorded}; now it does {self.replayed}"
        )


@dataclass(slots=True)
class Replay:
    """Replays a journal, line by line; see :meth:`take`.

    Attributes:
        policy: Used instead of the recorded one; for policies that have no name.
        runs: Runs begun so far.
        events: Events replayed so far.
        skipped: Events of runs whose beginning is gone, and of runs after they have parted.
        partings: Where a run parted; a run is not followed beyond.
    """

    policy: Policy | None = None
    runs: int = 0
    events: int = 0
    skipped: int = 0
    partings: list[Parting] = field(default_factory=list)
    _arbiter: Arbiter | None = None
    _event: int = 0

    def take(self, place: str, line: Line) -> None:
        """Take in the next line.

        Args:
            place: File and line, for messages.
            line: A header begins a run with a fresh arbiter.

        Raises:
            ConfigError: This version does not have the recorded policy or one of its options.
        """
        if isinstance(line, Header):
            self.runs += 1
            self._event = 0
            self._arbiter = self._start(line) if line.part == 1 else None
        elif self._arbiter is None:
            self.skipped += 1
        else:
            self._event += 1
            self.events += 1
            self._compare(self._arbiter, place, line)

    def _start(self, header: Header) -> Arbiter:
        arbiter = Arbiter(self.policy or header.make_policy(), header.config)
        if header.hold_until_s is not None:
            arbiter.hold_rounds_until(header.hold_until_s)
        return arbiter

    def _compare(self, arbiter: Arbiter, place: str, entry: Entry) -> None:
        commands: Sequence[Command] = ()
        failed: BaseException | None = None
        try:
            commands = arbiter.handle(entry.event, entry.now_s)
        except Exception as error:  # live, too, it was caught and the arbiter went on
            failed = error
        now = Entry.of(entry.now_s, entry.event, commands, failed)
        if (now.error, now.digest) != (entry.error, entry.digest):
            recorded, replayed = describe_difference(entry, now)
            kind = type(entry.event).__name__
            self.partings.append(
                Parting(self.runs, self._event, place, entry.now_s, kind, recorded, replayed)
            )
            self._arbiter = None


def describe_difference(recorded: Entry, replayed: Entry) -> tuple[str, str]:
    """In which way two entries of one event differ, in words for each."""
    if recorded.error or replayed.error:
        return _outcome(recorded), _outcome(replayed)
    then, now = list(recorded.said), list(replayed.said)
    while then and now and then[0] == now[0]:
        del then[0], now[0]
    if not then and not now:
        return (
            "what the journal says, asking or offering other figures",
            f"that with the digest {replayed.digest} instead of {recorded.digest}",
        )
    words = _in_words(then), _in_words(now)
    # What is left out of the words may be just what differs.
    return words if words[0] != words[1] else (json.dumps(then[0]), json.dumps(now[0]))


def _outcome(entry: Entry) -> str:
    if entry.error:
        return f"refuse it ({entry.error})"
    return "take it: " + _in_words(entry.said) if entry.said else "take it"


def _in_words(said: Sequence[Mapping[str, Any]], most: int = 3) -> str:
    """Some commands, shortly."""
    if not said:
        return "nothing"
    words = [_command_in_words(document) for document in said[:most]]
    if len(said) > most:
        words.append(f"and {len(said) - most} more")
    return ", ".join(words)


def _command_in_words(document: Mapping[str, Any]) -> str:
    match document:
        case {"kind": "LeasesChanged", "app": app}:
            leases = [_lease_in_words(lease) for lease in document.get("leases", ())]
            return f"lease {app} [{'; '.join(leases) or 'nothing'}]"
        case {"kind": "Decided", "round_id": number, "reasons": reasons}:
            who = [f"{app} {_reason_in_words(reason)}" for app, reason in reasons.items()]
            return f"decide round {number} ({'; '.join(who) or 'nobody was there'})"
        case {"kind": kind, "app": app, "group": group}:
            return f"{kind} {group} of {app}"
    return str(document)


def _lease_in_words(lease: Mapping[str, Any]) -> str:
    pending = lease.get("pending")
    return (
        f"{lease['id']} on {_gpus(lease['held'])}"
        + (f", awaiting {_gpus(pending)}" if pending else "")
        + f", until {lease['expires_s']}"
        + (", final" if lease.get("final") else "")
    )


def _reason_in_words(reason: Mapping[str, Any]) -> str:
    gpus = reason.get("gpus")
    return str(reason["kind"]) + (f" {_gpus(gpus)}" if isinstance(gpus, dict) else "")


def _gpus(counts: Mapping[str, int]) -> str:
    return " + ".join(f"{machine}:{count}" for machine, count in counts.items()) or "nothing"
