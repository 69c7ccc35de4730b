"""The journal: every event that an arbiter took in, with its time, and what it decided.

A journal is a sequence of lines, each one JSON object. A :class:`Header` opens a run of an arbiter
(one incarnation of it) and each further part of it; an :class:`Entry` is one event. Feeding the
events of a run to a fresh :class:`~themis_ray.core.arbiter.Arbiter` with the header's policy and
times must give the same decisions, since the core is a pure function of them; see
:mod:`themis_ray.sim.replay`. This module knows the lines; files are
:mod:`themis_ray.live.journal`'s.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args, get_type_hints

from themis_ray.core import events as ev
from themis_ray.core.cluster import Machine
from themis_ray.core.commands import (
    Command,
    CreateGroup,
    Decided,
    LeasesChanged,
    RequestReport,
    SendOffer,
)
from themis_ray.core.encoding import decode, encode
from themis_ray.core.policies import POLICIES, Policy, make_policy
from themis_ray.core.settings import ArbiterConfig
from themis_ray.errors import ConfigError, JournalError

MARK = "themis"
VERSION = 1

EVENTS: Mapping[str, type[Any]] = {kind.__name__: kind for kind in get_args(ev.Event)}
# Of what follows from events alone, the digest is kept and not the text.
UNSAID = (RequestReport, SendOffer, CreateGroup)


@dataclass(frozen=True, slots=True)
class Header:
    """What an arbiter was started with.

    Attributes:
        policy: The policy's name.
        options: The policy's own options, encoded.
        config: The arbiter's times.
        run: Tells the runs of an arbiter apart; all parts of a run have the same.
        part: Counts the parts of a run, from 1; a new one begins when a file has grown too large.
        now_s: When this part began, on the arbiter's clock.
        wall_s: The same instant, in seconds since 1970 (UTC): clocks of two runs may differ.
        hold_until_s: No round was held before this time, since the arbiter had been restarted.
        unit: What was leased.
        software: The version of the package that wrote it.
        machines: The machines when this part began; empty in the first, which tells of them.
    """

    policy: str
    options: Mapping[str, Any]
    config: ArbiterConfig
    run: str
    part: int = 1
    now_s: float = 0.0
    wall_s: float = 0.0
    hold_until_s: float | None = None
    unit: str = "GPU"
    software: str = ""
    machines: tuple[Machine, ...] = ()

    @property
    def offset_s(self) -> float:
        """What to add to the arbiter's clock for seconds since 1970."""
        return self.wall_s - self.now_s

    def make_policy(self) -> Policy:
        """The policy, with the options that it had.

        Raises:
            ConfigError: This version has no such policy, or it lacks one of the options.
        """
        cls = POLICIES.get(self.policy)
        if cls is None:
            return make_policy(self.policy)  # raises, naming what there is
        return make_policy(self.policy, **options_of(cls, self.options))


@dataclass(frozen=True, slots=True)
class Entry:
    """One event.

    Attributes:
        now_s: When it was handed to the core, on the arbiter's clock.
        event: The event.
        error: The kind of error with which it was refused; empty when it was not.
        digest: A digest of all commands that it led to; empty when there were none.
        said: Those of the commands that tell of decisions, encoded, each with its ``kind``.
    """

    now_s: float
    event: ev.Event
    error: str = ""
    digest: str = ""
    said: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def of(
        cls,
        now_s: float,
        event: ev.Event,
        commands: Sequence[Command] = (),
        error: BaseException | None = None,
    ) -> Entry:
        """The entry of an event that has been dealt with."""
        name = type(error).__name__ if error is not None else ""
        return cls(now_s, event, name, digest(commands), said(commands))


Line = Header | Entry


def header_of(policy: Policy, config: ArbiterConfig, run: str, **more: Any) -> Header:
    """The header for an arbiter that starts.

    Args:
        policy: Its policy; its dataclass fields are its options.
        config: Its times.
        run: See :class:`Header`.
        **more: Further fields of :class:`Header`.
    """
    options: dict[str, Any] = {}
    if dataclasses.is_dataclass(policy):
        options = {f.name: encode(getattr(policy, f.name)) for f in dataclasses.fields(policy)}
    return Header(policy.name, options, config, run, **more)


def options_of(cls: type[Policy], options: Mapping[str, Any]) -> dict[str, Any]:
    """A policy's options from their encoded form.

    Raises:
        ConfigError: The policy has no such option in this version.
    """
    known: list[str] = []
    if dataclasses.is_dataclass(cls):
        known = [f.name for f in dataclasses.fields(cls)]
    for name in options:
        if name not in known:
            raise ConfigError(
                f"policy {cls.name!r} has no option {name!r} in this version of themis_ray; replay "
                "the journal with the version that wrote it"
            )
    hints = get_type_hints(cls)
    return {name: decode(hints[name], value, name) for name, value in options.items()}


def digest(commands: Sequence[Command]) -> str:
    """A short digest of commands: equal commands have equal digests."""
    if not commands:
        return ""
    text = json.dumps([[type(c).__name__, encode(c)] for c in commands], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def said(commands: Sequence[Command]) -> tuple[Mapping[str, Any], ...]:
    """The commands that tell of decisions, as documents."""
    decided = any(isinstance(command, Decided) for command in commands)
    out = []
    for command in commands:
        if not isinstance(command, UNSAID):
            document = {"kind": type(command).__name__, **encode(command)}
            if decided and isinstance(command, LeasesChanged):
                del document["reason"]  # the round's own word has it
            out.append(document)
    return tuple(out)


# -- lines --------------------------------------------------------------------------------


def document_of(line: Line) -> dict[str, Any]:
    """A line as a JSON-ready document."""
    if isinstance(line, Header):
        return {"v": VERSION, "journal": MARK, **encode(line)}
    out = {
        "v": VERSION,
        "now": encode(line.now_s),
        "event": type(line.event).__name__,
        "of": encode(line.event),
    }
    for name in ("error", "digest", "said"):
        if getattr(line, name):
            out[name] = encode(getattr(line, name))
    return out


def line_from(document: Any, where: str) -> Line:
    """A line from its document.

    Args:
        document: What :func:`document_of` made.
        where: File and line, for messages.

    Raises:
        JournalError: It is not a line of a journal, or one of another version.
    """
    if not isinstance(document, dict) or "v" not in document:
        raise JournalError(f"{where}: not a line of an arbiter's journal")
    rest = dict(document)
    version = rest.pop("v")
    if version != VERSION:
        raise JournalError(
            f"{where}: version {version!r} of the journal's format; this themis_ray reads version "
            f"{VERSION}: use the version that wrote it"
        )
    if "journal" in rest:
        if rest.pop("journal") != MARK:
            raise JournalError(f"{where}: a journal of something else")
        header: Header = decode(Header, rest, where)
        return header
    return _entry_from(rest, where)


def _entry_from(document: Mapping[str, Any], where: str) -> Entry:
    name = document.get("event")
    kind = EVENTS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise JournalError(f"{where}: no event {name!r}; there are: {', '.join(EVENTS)}")
    plain: _PlainEntry = decode(_PlainEntry, document, where)
    event = decode(kind, plain.of, f"{where}: {name}")
    return Entry(plain.now, event, plain.error, plain.digest, plain.said)


@dataclass(frozen=True, slots=True)
class _PlainEntry:
    """An entry's document."""

    now: float
    event: str
    of: Mapping[str, Any]
    error: str = ""
    digest: str = ""
    said: tuple[Mapping[str, Any], ...] = field(default=())


def write_line(line: Line) -> str:
    """A line as text, with its line break."""
    return json.dumps(document_of(line), separators=(",", ":"), allow_nan=False) + "\n"


def read_line(text: str, where: str) -> Line:
    """A line from its text.

    Raises:
        JournalError: It cannot be read; the message begins with ``where``.
    """
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise JournalError(f"{where}: not JSON: {error.msg} (column {error.colno})") from error
    return line_from(document, where)
