import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from themis_ray.cli.main import app
from themis_ray.reproduce import runner
from themis_ray.reproduce.outcome import Outcome
from themis_ray.reproduce.registry import FIGURES
from themis_ray.reproduce.runs import Run

# Some of each kind: nothing to simulate, lies, gangs.
ASKED = ("themis-table-3", "themis-fig-18", "tiresias-table-1")


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["reproduce", *arguments])


def quick(folder: Path, *arguments: str) -> Any:
    return run("--quick", "--jobs", "1", "--cache", str(folder / "cache"), *ASKED, *arguments)


def test_quick_figures_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "docs" / "page.md"
    first = quick(tmp_path, "--json", "--out", str(page))
    assert first.exit_code == 0, first.output
    document = json.loads(first.stdout)
    assert (document["size"], document["seeds"]) == ("quick", 1)
    assert sorted(document["figures"]) == sorted(ASKED)
    bids = document["figures"]["themis-table-3"]
    assert bids["values"]["r"]["4 GPUs"]["mean"] == 1.064
    assert bids["values"]["r"]["4 GPUs"]["published"] == 1
    assert [claim["holds"] for claim in bids["claims"]] == [True, True]
    table = document["figures"]["tiresias-table-1"]["values"]
    assert table["srsf"]["average"]["mean"] == 1.0
    assert table["sf"]["p95"]["published"] == 3.45

    text = page.read_text()
    for name in ASKED:
        assert f'<a id="{name}"></a>' in text
    assert "Written by `themis reproduce themis-table-3" in text
    assert "1.064 [1]" in text
    plots = page.with_suffix(".html").read_text()
    assert page.with_suffix(".html").name in text
    assert plots.count('id="plot') == 2  # the bid table has none
    assert "http://" not in text

    # Again, from what is kept: not a single run, the same bytes.
    def forbidden(run: Run) -> Outcome:
        raise AssertionError(f"{run.title} is known")

    monkeypatch.setattr(runner, "execute", forbidden)
    assert quick(tmp_path, "--json").stdout == first.stdout
    said = quick(tmp_path)
    assert said.exit_code == 0
    assert "0.1" not in said.stderr.splitlines()[-1]
    assert "known already" in said.stderr
    assert "Table 3: bids of the worked example" in said.stdout


def test_an_unknown_figure_is_refused_with_the_list() -> None:
    result = run("themis-fig-99", "--json")
    assert result.exit_code == 2
    for figure in FIGURES:
        assert figure.name in result.stderr
    assert json.loads(result.stdout)["error"]["exit_code"] == 2


def test_the_list() -> None:
    result = run("--list", "tiresias", "--json")
    assert list(json.loads(result.stdout)["figures"]) == [
        figure.name for figure in FIGURES if figure.name.startswith("tiresias")
    ]
    assert "themis-fig-9 " in run("--list").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--quick", "--full"), "exclude each other"),
        (("--traces", "/nowhere"), "no such folder"),
        (("--seeds", "0"), "equal to 1"),
    ],
)
def test_bad_options_are_refused(arguments: tuple[str, ...], said: str) -> None:
    result = run("themis-table-3", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
