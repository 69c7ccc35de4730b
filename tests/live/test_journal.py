"""Journals in files: written by a thread, set aside, torn, and read again."""

from __future__ import annotations

import gzip
import logging
from pathlib import Path

import pytest

from themis_ray.core import events as ev
from themis_ray.core.journal import Entry, Header, Line, header_of, write_line
from themis_ray.core.policies import ThemisPaper
from themis_ray.core.settings import ArbiterConfig
from themis_ray.errors import JournalError
from themis_ray.live.journal import Journal, parts_of
from themis_ray.live.journal_reader import read_journal

HEADER = header_of(ThemisPaper(), ArbiterConfig(), "r1", now_s=5.0, wall_s=1000.0)


def lines(path: Path) -> tuple[list[Line], list[str]]:
    warnings: list[str] = []
    return [line for _, line in read_journal(path, warnings.append)], warnings


def ticks(path: Path) -> list[float]:
    return [line.now_s for line in lines(path)[0] if isinstance(line, Entry)]


def record(path: Path, times: list[float], run: str = "r1", **options: int) -> Journal:
    header = header_of(ThemisPaper(), ArbiterConfig(), run, now_s=5.0, wall_s=1000.0)
    journal = Journal(path, header, **options)
    for time_s in times:
        journal.record(time_s, ev.Tick())
    journal.close()
    return journal


def test_what_is_recorded_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "folder" / "j.jsonl"
    journal = Journal(path, HEADER)
    journal.record(6.0, ev.AppLeft("a"), (), KeyError("a"))
    journal.close()
    assert journal.error is None
    assert lines(path) == ([HEADER, Entry(6.0, ev.AppLeft("a"), "KeyError")], [])
    journal.record(7.0, ev.Tick())  # after the end: not recorded, and no harm done
    assert ticks(path) == [6.0]


def test_large_files_are_packed_and_read_as_one(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    times = [float(i) for i in range(100)]
    record(path, times, max_bytes=600)
    parts = parts_of(path)
    assert len(parts) > 5
    assert {len(files) for files in parts.values()} == {1}
    assert {files[0].suffix for files in parts.values()} == {".gz"}
    read, warnings = lines(path)
    assert ticks(path) == times
    assert [line for line in read if isinstance(line, Header)] == [HEADER]
    assert warnings == []


def test_the_clock_of_each_part_can_be_read_off_its_header(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    record(path, [float(i) for i in range(5, 40)], max_bytes=600)
    newest = [x for x in path.read_text().splitlines() if '"journal"' in x]
    assert '"part":' in newest[0]
    last = lines(path)[0]
    for number in parts_of(path):  # only the newest is left
        parts_of(path)[number][0].unlink()
    [header, *_] = lines(path)[0]
    assert isinstance(header, Header)
    assert header.part > 1
    assert header.offset_s == HEADER.offset_s
    assert last[0] == HEADER


def test_only_so_many_parts_are_kept_and_that_is_told(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    record(path, [float(i) for i in range(100)], max_bytes=600, keep_parts=3)
    assert len(parts_of(path)) == 3
    read, warnings = lines(path)
    assert isinstance(read[0], Header)
    assert read[0].part > 1
    assert "are gone" in warnings[0]
    kept = ticks(path)
    assert kept == [float(i) for i in range(100)][-len(kept) :]


def test_a_part_that_is_missing_in_the_middle_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    record(path, [float(i) for i in range(100)], max_bytes=600)
    parts_of(path)[3][0].unlink()
    read, warnings = lines(path)
    assert [line.part for line in read if isinstance(line, Header)] == [1, 4]
    assert len(warnings) == 1


def test_a_restarted_arbiter_goes_on_after_half_a_line(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    record(path, [6.0, 7.0])
    path.write_bytes(path.read_bytes()[:-4])
    assert ticks(path) == [6.0]
    record(path, [8.0], run="r2")
    read, warnings = lines(path)
    assert [line.run for line in read if isinstance(line, Header)] == ["r1", "r2"]
    assert ticks(path) == [6.0, 8.0]
    assert len(warnings) == 1
    assert f"{path}, line 3: not JSON" in warnings[0]


def test_a_crash_at_any_byte_can_be_read(tmp_path: Path) -> None:
    """Whatever is whole is read, and no more; nothing is taken for something else."""
    path = tmp_path / "j.jsonl"
    record(path, [6.0, 7.25])
    whole = path.read_bytes()
    begin = len(write_line(HEADER))
    for size in range(begin, len(whole)):
        path.write_bytes(whole[:size])
        assert ticks(path) == [6.0, 7.25][: whole[begin : size + 1].count(b"\n")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"j.jsonl is empty; give the journal of an arbiter"),
        ("hello\n", r"j.jsonl, line 1: not JSON"),
        ('{"a": 1}\n', r"j.jsonl, line 1: not a line of an arbiter's journal"),
        (write_line(Entry(1.0, ev.Tick())), r"line 1: an event before any header"),
        (write_line(HEADER) + "{\n" + write_line(Entry(1.0, ev.Tick())), r"line 2: not JSON"),
        (write_line(HEADER) + "{\n", r"line 2: not JSON"),
        (write_line(HEADER) + "{\n{\n", r"line 2: not JSON"),
    ],
)
def test_what_is_no_journal_is_told_with_file_and_line(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "j.jsonl"
    path.write_text(text)
    with pytest.raises(JournalError, match=message):
        lines(path)


def test_files_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"none.jsonl: no such file"):
        lines(tmp_path / "none.jsonl")
    with pytest.raises(JournalError, match="is a directory"):
        lines(tmp_path)
    path = tmp_path / "j.jsonl"
    record(path, [6.0])
    packed = gzip.compress(path.read_bytes())
    (tmp_path / "j.jsonl.1.gz").write_bytes(packed[:-9])
    with pytest.raises(JournalError, match=r"j.jsonl.1.gz: not a whole gzip file"):
        lines(path)


def test_a_journal_that_cannot_be_opened_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        journal = record(tmp_path / "file" / "j.jsonl", [6.0, 7.0])
    assert journal.error
    assert [r.message.count("the arbiter goes on without it") for r in caplog.records] == [1]


def test_a_journal_that_can_no_longer_be_written_is_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """/dev/full takes no byte: as a disk that has filled up."""
    journal = Journal(Path("/dev/full"), HEADER)
    with caplog.at_level(logging.WARNING):
        for i in range(100):
            journal.record(float(i), ev.Tick())
        journal.close()
    assert journal.error == "No space left on device"
    assert len(caplog.records) <= 1
