"""What happened to an arbiter, to text and back."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from themis_ray.core import events as ev
from themis_ray.core.arbiter import Arbiter
from themis_ray.core.cluster import Machine
from themis_ray.core.encoding import encode
from themis_ray.core.journal import (
    EVENTS,
    Entry,
    Header,
    header_of,
    read_line,
    said,
    write_line,
)
from themis_ray.core.policies import POLICIES, ThemisPaper, TiresiasL
from themis_ray.core.settings import ArbiterConfig
from themis_ray.errors import ConfigError, JournalError
from themis_ray.testing.agents import JobSpec, SimpleAgent
from themis_ray.testing.loop import run
from themis_ray.testing.policies import FirstCome
from themis_ray.testing.strategies import allocations, events, reports

CONFIG = ArbiterConfig(lease_s=60, notice_s=5, min_lease_s=0)


def again(line: Header | Entry) -> Header | Entry:
    text = write_line(line)
    assert text.endswith("\n")
    assert text.count("\n") == 1
    return read_line(text, "here")


@pytest.mark.parametrize("kind", EVENTS.values())
@settings(max_examples=20)
@given(st.data(), st.floats(allow_nan=False))
def test_every_event_comes_back_as_it_was(kind: type[Any], data: st.DataObject, now: float) -> None:
    event = data.draw(events(kind))
    assert type(event) is kind
    line = again(Entry(now, event))
    assert line == Entry(now, event)
    assert repr(line) == repr(Entry(now, event))  # equal is not enough: 0.0 equals -0.0


@pytest.mark.parametrize("value", [math.inf, -math.inf, -0.0, 5e-324, 0.1, 1e308])
def test_numbers_are_exact_and_the_text_is_plain_json(value: float) -> None:
    report = ev.AppReport(math.inf, value, 1.0, 1, elapsed_s=value)
    text = write_line(Entry(value, ev.Reported("a", report)))
    json.loads(text, parse_constant=pytest.fail)
    line = read_line(text, "here")
    assert repr(line) == repr(Entry(value, ev.Reported("a", report)))


def test_none_is_not_zero() -> None:
    reports_ = [ev.AppReport(1, 1, 1, 0, elapsed_s=e) for e in (None, 0.0)]
    back = [again(Entry(0.0, ev.Reported("a", r))) for r in reports_]
    assert [x.event.report.elapsed_s for x in back] == [None, 0.0]  # type: ignore[union-attr]


@pytest.mark.parametrize("name", list(POLICIES))
def test_every_policy_is_made_again(name: str) -> None:
    policy = POLICIES[name]()
    header = header_of(policy, CONFIG, "r1", part=2, now_s=5.5, hold_until_s=6.0, unit="CPU")
    back = again(header)
    assert back == header
    assert isinstance(back, Header)
    made = back.make_policy()
    assert type(made) is type(policy)
    assert vars(made) == vars(policy)


def test_options_of_a_policy_are_exact() -> None:
    paper = ThemisPaper(Fraction("0.7"), min_bidders=3, payment="time", seed=9)
    tiresias = TiresiasL(thresholds=(10.0, 1e6), starve_limit_s=math.inf, skews={"x": 0.5})
    for policy in (paper, tiresias):
        header = again(header_of(policy, CONFIG, "r"))
        assert isinstance(header, Header)
        assert header.make_policy() == policy


def test_a_policy_of_another_version_is_told() -> None:
    with pytest.raises(ConfigError, match=r"no option 'beta' in this version"):
        Header("themis-paper", {"beta": 1.0}, CONFIG, "r").make_policy()
    with pytest.raises(ConfigError, match="no policy 'first-come'"):
        header_of(FirstCome(), CONFIG, "r").make_policy()


def test_a_decision_is_kept_in_words_and_as_a_digest() -> None:
    agents = [SimpleAgent(a, [JobSpec(100, 2)], restart_s=1) for a in ("a", "b")]
    history = run(Arbiter(ThemisPaper(), CONFIG), agents, 300, machines=[Machine("m0", 2)])
    kinds = {document["kind"] for _, command in history.commands for document in said([command])}
    assert kinds == {"LeasesChanged", "Decided", "RemoveGroup"}
    entry = Entry.of(1.0, ev.Tick(), [command for _, command in history.commands])
    assert again(entry) == entry
    assert len(entry.digest) == 16
    fewer = Entry.of(1.0, ev.Tick(), [command for _, command in history.commands[:-1]])
    assert fewer.digest != entry.digest


GOOD = json.loads(write_line(Entry(1.0, ev.AppLeft("a"))))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"f, line 3: not JSON: .*column 2"),
        ("[]", "f, line 3: not a line of an arbiter's journal"),
        ('{"a": 1}', "f, line 3: not a line of an arbiter's journal"),
        ({**GOOD, "v": 2}, "version 2 of the journal's format; this themis_ray reads version 1"),
        ({"v": 1, "journal": "tax"}, "a journal of something else"),
        ({**GOOD, "event": "AppSlept"}, "no event 'AppSlept'; there are: ClusterChanged"),
        ({**GOOD, "event": []}, r"no event \[\]"),
        ({**GOOD, "of": {}}, r"f, line 3: AppLeft.app is missing"),
        ({**GOOD, "of": {"app": 5}}, r"f, line 3: AppLeft.app: 5 is not str"),
        ({**GOOD, "of": {"app": "a", "x": 1}}, "AppLeft has no field 'x' in this version"),
        ({**GOOD, "now": "soon"}, r"f, line 3.now: 'soon' is not a number"),
        ({**GOOD, "now": True}, r"True is not a number"),
        ({**GOOD, "more": 1}, "no field 'more'"),
    ],
)
def test_a_broken_line_is_told_with_its_place(text: Any, message: str) -> None:
    with pytest.raises(JournalError, match=message):
        read_line(text if isinstance(text, str) else json.dumps(text), "f, line 3")


@settings(max_examples=20)
@given(reports(), allocations())
def test_values_that_the_core_refuses_are_told_with_their_place(
    report: ev.AppReport, gpus: Any
) -> None:
    entry = json.loads(write_line(Entry(0.0, ev.Reported("a", report))))
    entry["of"]["report"]["r"] = "nan"
    with pytest.raises(JournalError, match=r"f, line 1: Reported.report: r = nan"):
        read_line(json.dumps(entry), "f, line 1")
    entry["of"]["report"]["r"] = 1.0
    entry["of"]["report"]["pinned"] = {**gpus, "m9": -1}
    with pytest.raises(JournalError, match=r"pinned: -1 GPUs on machine 'm9'"):
        read_line(json.dumps(entry), "f, line 1")


def test_only_values_of_the_core_are_taken() -> None:
    with pytest.raises(TypeError, match="a complex has no place in a journal"):
        encode({"x": 1j})
