"""A journal fed to the core again gives the decisions that were made, or says where not."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from tests.sim.recorded import RecordedArbiter, record, save
from themis_ray.core.journal import Entry, Line
from themis_ray.core.policies import POLICIES, Drf, Gandiva, ThemisPaper, make_policy
from themis_ray.live.cluster_watch import ClusterWatch
from themis_ray.live.driver import LiveDriver
from themis_ray.live.journal_reader import read_journal
from themis_ray.live.snapshot import explanation, snapshot
from themis_ray.sim.replay import Replay
from themis_ray.testing.invariants import snapshot as books
from themis_ray.testing.policies import FirstCome


def replayed(path: Path, **options: object) -> Replay:
    replay = Replay(**options)  # type: ignore[arg-type]
    for place, line in read_journal(path, pytest.fail):
        replay.take(place, line)
    return replay


@pytest.mark.parametrize("name", list(POLICIES))
def test_every_policy_decides_the_same_again(name: str, tmp_path: Path) -> None:
    arbiter = record(make_policy(name), 400)
    entries = [line for line in arbiter.lines if isinstance(line, Entry)]
    assert arbiter.rounds > 3
    replay = replayed(save(tmp_path / "j.jsonl", arbiter.lines))
    assert [str(parting) for parting in replay.partings] == []
    assert replay.events == len(entries) > 100


def test_refused_events_are_refused_again(tmp_path: Path) -> None:
    arbiter = record(ThemisPaper(), 120)
    refused = {line.error for line in arbiter.lines if isinstance(line, Entry)} - {""}
    assert "BidError" in refused
    assert not replayed(save(tmp_path / "j.jsonl", arbiter.lines)).partings


def test_options_and_seeds_come_from_the_header(tmp_path: Path) -> None:
    policy = ThemisPaper(Fraction(1, 3), min_bidders=2, payment="gpus", leftover="random", seed=7)
    path = save(tmp_path / "j.jsonl", record(policy, 200).lines)
    assert not replayed(path).partings
    [parting] = replayed(path, policy=replace(policy, fairness_knob=Fraction(4, 5))).partings
    assert parting.run == 1


def test_it_is_told_where_another_policy_parts(tmp_path: Path) -> None:
    lines = record(Drf(), 200).lines
    path = save(tmp_path / "j.jsonl", lines)
    [parting] = replayed(path, policy=Gandiva()).partings
    # Up to there, and not beyond, both do the same.
    before = [*lines[: parting.event]]
    assert not replayed(save(tmp_path / "k.jsonl", before), policy=Gandiva()).partings
    assert parting.place == f"{path}, line {parting.event + 1}"
    assert parting.recorded != parting.replayed
    assert "drf" not in parting.replayed.lower()
    assert f"event {parting.event} of run 1 ({parting.kind})" in str(parting)


def test_a_policy_without_a_name_can_be_given(tmp_path: Path) -> None:
    path = save(tmp_path / "j.jsonl", record(FirstCome(), 200).lines)
    assert not replayed(path, policy=FirstCome()).partings


def _altered(lines: list[Line], number: int, **changes: object) -> list[Line]:
    entry = lines[number]
    assert isinstance(entry, Entry)
    return [*lines[:number], replace(entry, **changes), *lines[number + 1 :]]  # type: ignore[arg-type]


def test_any_change_of_a_record_is_found(tmp_path: Path) -> None:
    lines = record(ThemisPaper(), 120).lines
    decided = next(i for i, x in enumerate(lines) if isinstance(x, Entry) and x.said)
    entry = lines[decided]
    assert isinstance(entry, Entry)
    for changes, words in (
        ({"digest": "0" * 16}, "asking or offering other figures"),
        ({"digest": "0" * 16, "said": ()}, "the arbiter did nothing; now it does "),
        ({"error": "BidError", "digest": ""}, "did refuse it (BidError); now it does take it: "),
    ):
        path = save(tmp_path / "j.jsonl", _altered(lines, decided, **changes))
        [parting] = replayed(path).partings
        assert parting.event == decided
        assert words in str(parting)


def test_runs_are_replayed_one_by_one(tmp_path: Path) -> None:
    first, second = record(ThemisPaper(), 200), record(Drf(), 200)
    broken = _altered(first.lines, 30, digest="0" * 16)
    path = save(tmp_path / "j.jsonl", [*broken, *second.lines])
    replay = replayed(path)
    assert replay.runs == 2
    assert [(p.run, p.event) for p in replay.partings] == [(1, 30)]
    assert replay.skipped == len(broken) - 31
    assert replay.events == 30 + len(second.lines) - 1


def test_a_restarted_arbiter_waits_as_it_did(tmp_path: Path) -> None:
    arbiter = RecordedArbiter(ThemisPaper(), hold_until_s=50.0)
    arbiter.hold_rounds_until(50.0)
    _fill(arbiter)
    path = save(tmp_path / "j.jsonl", arbiter.lines)
    assert not replayed(path).partings
    forgotten = [replace(arbiter.lines[0], hold_until_s=None), *arbiter.lines[1:]]  # type: ignore[arg-type]
    assert replayed(save(path, forgotten)).partings


def _fill(arbiter: RecordedArbiter) -> None:
    from tests.sim.recorded import MACHINES, busy_agents
    from themis_ray.testing.loop import Loop

    Loop(arbiter, busy_agents(), machines=MACHINES).run(200)


def test_a_run_without_its_beginning_is_passed_over(tmp_path: Path) -> None:
    lines = record(ThemisPaper(), 60).lines
    path = save(tmp_path / "j.jsonl", [replace(lines[0], part=2), *lines[5:]])  # type: ignore[arg-type]
    warnings: list[str] = []
    replay = Replay()
    for place, line in read_journal(path, warnings.append):
        replay.take(place, line)
    assert (replay.events, replay.skipped) == (0, len(lines) - 5)
    assert len(warnings) == 1


def test_looking_at_an_arbiter_changes_nothing() -> None:
    """Not by a rounding error: what is looked at between events must replay to the same."""
    arbiter = record(ThemisPaper(), 75)
    driver = LiveDriver(arbiter, ClusterWatch("GPU"), lambda app, command: None)
    before = books(arbiter)
    assert arbiter.state.apps
    document = snapshot(driver, 0.0)
    for app in document["apps"]:
        explanation(driver, app["id"])
        assert (
            app["attained_gpu_s"] > arbiter.state.apps[app["id"]].attained_gpu_s or not app["held"]
        )
    assert books(arbiter) == before
