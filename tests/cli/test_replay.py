"""``themis replay`` on journals of arbiters in memory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.sim.recorded import record, save
from themis_ray.cli.main import app
from themis_ray.core.journal import Entry, Header, Line
from themis_ray.core.policies import ThemisPaper
from themis_ray.testing.agents import JobSpec, SimpleAgent


@pytest.fixture(scope="module")
def lines() -> list[Line]:
    """Three apps that end, under a policy with options of its own."""
    agents = [
        SimpleAgent("a", [JobSpec(300, 1)] * 4, restart_s=2),
        SimpleAgent("b", [JobSpec(500, 2)] * 3, joins_s=10, weight=2.0),
        SimpleAgent("c", [JobSpec(200, 4)] * 2, joins_s=20.25, releases="at expiry"),
    ]
    arbiter = record(ThemisPaper(min_bidders=3, payment="time", seed=4), 1500, agents)
    assert not arbiter.state.apps
    return arbiter.lines


@pytest.fixture
def journal(lines: list[Line], tmp_path: Path) -> str:
    return str(save(tmp_path / "j.jsonl", lines))


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["replay", *arguments])


def document(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    out: dict[str, Any] = json.loads(result.stdout)
    return out


def test_check_says_that_the_decisions_are_the_same(journal: str, lines: list[Line]) -> None:
    result = run(journal, "--check")
    assert result.exit_code == 0, result.output
    assert result.stdout == (
        f"the same decisions: {len(lines) - 1} events in 1 runs of the arbiter\n"
    )
    assert document(journal, "--check") == {
        "journal": journal,
        "same": True,
        "runs": 1,
        "events": len(lines) - 1,
        "skipped": 0,
        "partings": [],
        "warnings": [],
    }


def test_check_says_where_they_part_and_exits_with_1(lines: list[Line], tmp_path: Path) -> None:
    at = next(i for i, x in enumerate(lines) if isinstance(x, Entry) and x.said)
    broken = replace(lines[at], digest="0" * 16)  # type: ignore[arg-type]
    path = str(save(tmp_path / "j.jsonl", [*lines[:at], broken, *lines[at + 1 :]]))  # type: ignore[list-item]
    result = run(path, "--check")
    assert result.exit_code == 1
    assert f"{path}, line {at + 1}: event {at} of run 1" in result.stderr
    result = run(path, "--check", "--json")
    assert result.exit_code == 1
    [parting] = json.loads(result.stdout)["partings"]
    assert (parting["run"], parting["event"]) == (1, at)


def test_check_needs_the_beginning_of_a_run(lines: list[Line], tmp_path: Path) -> None:
    assert isinstance(lines[0], Header)
    path = save(tmp_path / "j.jsonl", [replace(lines[0], part=2), *lines[50:]])
    result = run(str(path), "--check")
    assert result.exit_code == 2
    assert "the beginning of every run is gone" in result.stderr


def test_what_if_stands_beside_what_happened(journal: str) -> None:
    answer = document(journal, "--policy", "drf,yarn-cs")
    assert list(answer["policies"]) == ["themis-paper", "drf", "yarn-cs"]
    assert answer["recorded_policy"] == "themis-paper"
    assert (answer["gpus"], answer["jobs"], answer["lease_s"], answer["seed"]) == (11, 9, 60, 4)
    assert answer["notes"] == []
    for figures in (answer["live"], *answer["policies"].values()):
        assert [one["id"] for one in figures["apps"]] == ["a", "b", "c"]
        assert figures["judge"] == "fluid"
    # The same work is done in all of them, and none is done while nobody is there.
    work_hours = (4 * 300 + 3 * 500 + 2 * 200) / 3600
    for figures in (answer["live"], *answer["policies"].values()):
        assert figures["gpu_hours"] >= work_hours * (1 - 1e-6)
        assert figures["utilisation"] <= 1
    assert all(one["reported_r"] > 0 for one in answer["live"]["apps"])


def test_the_simulation_comes_near_to_what_happened(journal: str) -> None:
    """The recorded policy, simulated, is the measure of how far the others can be trusted."""
    answer = document(journal)
    assert list(answer["policies"]) == ["themis-paper"]
    live, simulated = answer["live"], answer["policies"]["themis-paper"]
    assert simulated["avg_jct_s"] == pytest.approx(live["avg_jct_s"], rel=0.3)
    assert simulated["makespan_s"] == pytest.approx(live["makespan_s"], rel=0.3)


def test_the_recorded_grid_is_scaled_with_the_lease(tmp_path: Path, lines: list[Line]) -> None:
    def rounds(grid_s: float, *options: str) -> int:
        header = lines[0]
        assert isinstance(header, Header)
        on_grid = replace(header, config=replace(header.config, lease_grid_s=grid_s))
        journal = save(tmp_path / "g.jsonl", [on_grid, *lines[1:]])
        policies = document(str(journal), *options)["policies"]
        return int(policies["themis-paper"]["rounds"])

    # On a grid of 60 s, leases of 15 s would last 60 s, too.
    assert rounds(60, "--lease", "15s") > 2 * rounds(60)


def test_options_change_the_simulation(journal: str) -> None:
    usual = document(journal)
    assert document(journal) == usual
    longer = document(journal, "--lease", "2m")
    assert longer["lease_s"] == 120
    assert longer["policies"] != usual["policies"]
    assert longer["live"] == usual["live"]
    costly = document(journal, "--restart", "30s")
    assert (
        costly["policies"]["themis-paper"]["gpu_hours"]
        > (usual["policies"]["themis-paper"]["gpu_hours"])
    )
    judged = document(journal, "--judge", "paper")
    assert judged["live"]["max_r"] == usual["live"]["max_r_by_judge"]["paper"]
    assert document(journal, "--seed", "9")["seed"] == 9


def test_the_table_has_a_row_for_what_happened(
    journal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    result = run(journal, "--policy", "drf")
    assert result.exit_code == 0, result.output
    for words in ("live: themis-paper", "drf", "as it reported", "3 apps, 9 jobs of j.jsonl"):
        assert words in result.stdout


def test_the_trace_can_be_simulated(journal: str, tmp_path: Path) -> None:
    trace = tmp_path / "out.csv"
    result = run(journal, "--to-trace", str(trace))
    assert result.exit_code == 0, result.output
    assert "3 apps with 9 jobs are in" in result.stdout
    assert "machines came and went" in result.stdout
    cluster = str(tmp_path / "out.yaml")
    arguments = ["simulate", "--cluster", cluster, "--trace", str(trace), "--policy", "drf"]
    simulated = CliRunner().invoke(app, [*arguments, "--json"])
    assert simulated.exit_code == 0, simulated.output
    assert json.loads(simulated.stdout)["jobs"] == 9


def test_half_a_line_at_the_end_is_passed_over(journal: str) -> None:
    with Path(journal).open("a") as file:
        file.write('{"v":1,"now"')
    result = run(journal, "--check")
    assert result.exit_code == 0
    assert "passed over" in result.stderr
    assert "passed over" in document(journal)["notes"][0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; give the journal of an arbiter"),
        ("app_id,job_id\n", "line 1: not JSON"),
        ('{"machines": []}\n', "line 1: not a line of an arbiter's journal"),
    ],
)
@pytest.mark.parametrize("options", [[], ["--check"]])
def test_what_is_no_journal_exits_with_2(
    journal: str, options: list[str], text: str, message: str
) -> None:
    Path(journal).write_text(text)
    refused(message, journal, *options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policy", "fair"], "--policy: no policy 'fair'; there are: themis"),
        (["--policy", "drf,drf"], "'drf' stands twice"),
        (["--lease", "soon"], "--lease: 'soon' is not a time"),
        (["--restart", "soon"], "--restart: 'soon' is not a time"),
        (["--judge", "me"], "--judge: 'me' is unknown; use fluid, exclusive, paper"),
        (["--to-trace", "/none/x.csv"], "--to-trace: /none/x.csv: no such file"),
        (["--to-trace", "x.yaml"], "use a name in .csv"),
    ],
)
def test_wrong_options_exit_with_2(journal: str, options: list[str], message: str) -> None:
    refused(message, journal, *options)


def refused(message: str, *arguments: str) -> None:
    result = run(*arguments, "--json")
    assert result.exit_code == 2
    assert message in result.stderr
    assert json.loads(result.stdout)["error"]["exit_code"] == 2


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    result = run(str(tmp_path / "none.jsonl"))
    assert result.exit_code == 2
    assert "none.jsonl: no such file or directory; give the path of" in result.stderr


def test_a_recorded_policy_that_is_no_more(lines: list[Line], tmp_path: Path) -> None:
    assert isinstance(lines[0], Header)
    path = str(save(tmp_path / "j.jsonl", [replace(lines[0], policy="old"), *lines[1:]]))
    for options in ([], ["--check"]):
        result = run(path, *options)
        assert result.exit_code == 2
        assert "no policy 'old'" in result.stderr
    answer = document(path, "--policy", "drf")
    assert list(answer["policies"]) == ["drf"]
    assert "the recorded policy is not simulated: no policy 'old'" in answer["notes"][0]
