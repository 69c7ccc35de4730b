"""``themis timeline``: every placement group of a journal is drawn, on GPUs of its own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.sim.recorded import MACHINES, record, save
from themis_ray.cli.main import app
from themis_ray.core.policies import Drf
from themis_ray.sim.replay_history import History


@pytest.fixture
def journal(tmp_path: Path) -> str:
    return str(save(tmp_path / "j.jsonl", record(Drf(), 400).lines))


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["timeline", *arguments])


def test_no_gpu_is_held_twice_and_all_gpu_time_is_there(journal: str) -> None:
    result = run(journal, "--json")
    assert result.exit_code == 0, result.output
    held = json.loads(result.stdout)["held"]
    sizes = {machine.id: machine.gpus for machine in MACHINES} | {"m3": 1}
    lanes: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for bar in held:
        assert bar["lane"] < sizes[bar["machine"]]
        lanes.setdefault((bar["machine"], bar["lane"]), []).append((bar["begin_s"], bar["end_s"]))
    for times in lanes.values():
        for (_, end), (begin, _) in zip(sorted(times), sorted(times)[1:], strict=False):
            assert end <= begin
    history = History()
    for line in record(Drf(), 400).lines:
        history.take("", line)
    stays = [stay for one in history.finish().apps for stay in one.stays]
    gpu_s = sum(s.gpus.size * ((s.end_s or s.begin_s) - s.begin_s) for s in stays)
    assert sum(bar["end_s"] - bar["begin_s"] for bar in held) == pytest.approx(gpu_s)
    assert gpu_s > 1000


def test_the_page_stands_alone(journal: str, tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    page = tmp_path / "t.html"
    result = run(journal, "--out", str(page))
    assert result.exit_code == 0, result.output
    text = page.read_text()
    assert not re.search(r"<(script|link)[^>]+(src|href)=", text)
    for words in ("Who held which machine", "GPUs by app", "m2 #1", "rounds of drf"):
        assert words in text


def test_bad_input_exits_with_2(journal: str) -> None:
    for arguments, message in (
        ([journal], "name a page to write with --out FILE.html"),
        ([journal, "--out", "/none/t.html"], "--out: /none/t.html: no such file"),
        (["none.jsonl", "--json"], "none.jsonl: no such file"),
    ):
        result = run(*arguments)
        assert result.exit_code == 2
        assert message in result.stderr
