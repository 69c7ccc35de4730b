import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from themis_ray.cli.main import app
from themis_ray.errors import MissingExtraError
from themis_ray.reporting import sim_plots
from themis_ray.sim.cluster_file import load_cluster
from themis_ray.sim.study import Study, run_all
from themis_ray.sim.traces import load_trace

CLUSTER = """
name: small
machines: [{count: 2, gpus: 2}]
models: {vgg16: {rack: 1.3, cluster: 1.5}}
"""
TRACE = """\
app_id,job_id,arrival_s,tuner,model,max_gpus,iterations,serial_iter_s,min_gpus
a,0,0,single,vgg16,2,600,1,1
b,0,60,successive_halving,resnet50,1,300,1,1
b,1,60,successive_halving,resnet50,1,300,1,1
c,0,90,single,vgg16,4,900,1,4
"""
FIGURES = {
    *("judge", "max_r", "min_r", "median_r", "p95_r", "p99_r", "mean_r", "jain_r"),
    *("fraction_r_le_1", "gpu_hours", "avg_jct_s", "median_jct_s", "p95_jct_s", "p99_jct_s"),
    *("makespan_s", "avg_queue_s", "median_queue_s", "p95_queue_s", "preemptions"),
    *("mean_placement_score", "utilisation", "rounds", "apps"),
}


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "c.yaml").write_text(CLUSTER)
    (tmp_path / "t.csv").write_text(TRACE)
    return ["--cluster", str(tmp_path / "c.yaml"), "--trace", str(tmp_path / "t.csv")]


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["simulate", *arguments])


def test_json_has_all_figures_of_all_policies(files: list[str]) -> None:
    result = run(*files, "--policy", "themis-paper,drf", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert list(document["policies"]) == ["themis-paper", "drf"]
    assert (document["cluster"], document["gpus"], document["jobs"]) == ("small", 4, 4)
    for figures in document["policies"].values():
        assert set(figures) >= FIGURES
        assert [sorted(one) for one in figures["apps"]] == [["gpu_hours", "id", "jct_s", "r"]] * 3
        assert [one["id"] for one in figures["apps"]] == ["a", "b", "c"]


def test_the_same_inputs_give_the_same_bytes_in_other_processes(files: list[str]) -> None:
    command = [sys.executable, "-m", "themis_ray", "simulate", *files, "--json", "--seed", "3"]
    command += ["--policy", "themis,themis-paper,tiresias-l"]
    outputs = [
        subprocess.run(
            command, capture_output=True, check=True, env={"PYTHONHASHSEED": hash_seed}
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("width", [None, "200", "60"])
def test_the_table_shows_all_figures_whole_however_narrow(
    files: list[str], monkeypatch: pytest.MonkeyPatch, width: str | None
) -> None:
    if width is None:
        monkeypatch.delenv("COLUMNS", raising=False)
    else:
        monkeypatch.setenv("COLUMNS", width)
    result = run(*files, "--policy", "drf, srtf")
    assert result.exit_code == 0
    figures = json.loads(run(*files, "--policy", "drf, srtf", "--json").stdout)["policies"]
    cells = {cell.strip() for cell in re.split("[┃│\n]", result.stdout)}
    assert {"policy", "max r", "median r", "p95 JCT (s)", "in use"} <= cells
    for name, values in figures.items():
        assert {name, f"{values['avg_jct_s']:,.0f}", f"{values['p95_jct_s']:,.0f}"} <= cells
    assert "…" not in result.stdout
    if width == "60":
        table = [line for line in result.stdout.splitlines() if line.startswith("│")]
        assert max(map(len, table)) <= 60


def test_recalls_can_be_turned_off_and_a_factor_below_one_is_refused(files: list[str]) -> None:
    never = run(*files, "--policy", "themis", "--recall-factor", "inf", "--json")
    assert never.exit_code == 0, never.output
    refused = run(*files, "--policy", "themis", "--recall-factor", "0.5")
    assert refused.exit_code == 2
    assert "--recall-factor 0.5; use 1 or more, or inf for never" in refused.output


def test_generated_workloads_can_be_saved_and_read_again(files: list[str], tmp_path: Path) -> None:
    saved = tmp_path / "w.csv"
    spec = "w2:seed=4,apps=3,length=0.05,gpus=4"
    drf = ("--policy", "drf", "--json")
    first = run(*files[:2], "--trace", spec, *drf, "--save-trace", str(saved))
    again = run(*files[:2], "--trace", str(saved), *drf)
    assert first.exit_code == 0, first.output
    assert json.loads(first.stdout)["policies"] == json.loads(again.stdout)["policies"]


def test_the_judge_is_the_one_asked_for(files: list[str]) -> None:
    for judge in ("fluid", "exclusive", "paper"):
        result = run(*files, "--policy", "drf", "--judge", judge, "--json")
        figures = json.loads(result.stdout)["policies"]["drf"]
        assert figures["judge"] == judge
        assert figures["max_r"] == figures["max_r_by_judge"][judge]


def test_no_restart_cost_makes_jobs_shorter(files: list[str]) -> None:
    def gpu_hours(*more: str) -> float:
        result = run(*files, "--policy", "drf", "--json", *more)
        return float(json.loads(result.stdout)["policies"]["drf"]["gpu_hours"])

    assert gpu_hours("--restart", "0") < gpu_hours("--restart", "10s") < gpu_hours()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policy", "fair"], "no policy 'fair'; there are: themis, themis-paper"),
        (["--policy", "drf,drf"], "'drf' stands twice"),
        (["--policy", ","], "names none"),
        (["--lease", "soon"], "--lease: 'soon' is not a time"),
        (["--restart", "-1"], "--restart: '-1' is not a time"),
        (["--judge", "me"], "--judge: 'me' is unknown; use fluid, exclusive, paper"),
        (["--ideal", "me"], "--ideal: 'me' is unknown"),
        (["--payment", "cash"], "--payment: 'cash' is unknown; use time, gpus"),
        (["--fairness-knob", "1.5"], "use a number from 0 to 1"),
        (["--trace", "none.csv"], "none.csv: no such file"),
        (["--trace", "w1:apps=x"], "apps='x' is not a whole number"),
        (["--cluster", "none.yaml"], "none.yaml: no such file"),
        (["--format", "xml"], "no trace format 'xml'"),
        (["--plot", "/none/p.html"], "--plot: /none/p.html: no folder /none"),
        (["--plot", "/tmp"], "--plot: /tmp is a folder"),
        (["--save-trace", "/none/t.csv"], "--save-trace: /none/t.csv: no such file"),
    ],
)
def test_bad_input_is_explained_and_exits_with_2(
    files: list[str], options: list[str], message: str
) -> None:
    result = run(*files, *options, "--json")
    assert result.exit_code == 2
    assert message in result.stderr
    assert json.loads(result.stdout)["error"]["exit_code"] == 2


def test_who_cannot_save_in_time_is_told_before_the_run(files: list[str]) -> None:
    told = run(*files, "--policy", "best-effort", "--json", "--restart", "5m")
    assert "a checkpoint of resnet50 takes 67 s, longer than --notice and --grace" in told.stderr
    assert json.loads(told.stdout)["policies"]
    untold = run(*files, "--policy", "best-effort", "--json", "--restart", "5m", "--grace", "1m")
    assert untold.stderr == ""


def test_the_page_stands_alone(files: list[str], tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    page = tmp_path / "p.html"
    result = run(*files, "--policy", "drf,srtf", "--plot", str(page), "--json")
    assert result.exit_code == 0, result.output
    text = page.read_text()
    assert not re.search(r"<(script|link)[^>]+(src|href)=", text)
    for words in (
        "Finish-time fairness",
        "Completion time",
        "Placement score",
        "GPUs by app, srtf",
    ):
        assert words in text


def test_a_missing_plotly_is_named_before_the_run(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(MissingExtraError, match=r"themis_ray\[plot\]"):
        sim_plots.check_plotly()
    assert run(*files, "--plot", str(tmp_path / "p.html")).exit_code == 1


def test_measured_profiles_take_the_place_of_the_clusters(files: list[str], tmp_path: Path) -> None:
    """Twelve hundred GPU-seconds on two GPUs of a rack: S of 1.3 by the cluster, 3 as measured."""
    trace = tmp_path / "one.csv"
    trace.write_text(TRACE.splitlines()[0] + "\nc,0,0,single,vgg16,4,1200,1,4\n")
    profile = tmp_path / "p.yaml"
    profile.write_text(
        "models: {vgg16: {measured: [{placement: 2+2/rack, iter_s: 1, slowdown: 3}]}}"
    )
    arguments = [*files[:2], "--trace", str(trace), "--policy", "best-effort", "--json"]
    times = []
    for more in ([], ["--profiles", str(profile)]):
        result = run(*arguments, "--restart", "0", *more)
        assert result.exit_code == 0, result.output
        times.append(json.loads(result.stdout)["policies"]["best-effort"]["makespan_s"])
    assert times == [pytest.approx(1200 * 1.3 / 4), pytest.approx(1200 * 3 / 4)]


def test_a_wrong_profile_file_is_bad_input(files: list[str], tmp_path: Path) -> None:
    result = run(*files, "--profiles", str(tmp_path / "none.yaml"))
    assert result.exit_code == 2
    assert "themis profile MODEL" in result.output


def test_progress_is_shown_on_a_terminal(files: list[str]) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "themis_ray", "simulate", *files, "--json", "--policy", "drf"]
    environment = {**os.environ, "TERM": "xterm"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, env=environment)
    os.close(theirs)
    said = b""
    with contextlib.suppress(OSError):  # that is how its end is told
        while more := os.read(ours, 65536):
            said += more
    os.close(ours)
    assert done.returncode == 0
    assert list(json.loads(done.stdout)["policies"]) == ["drf"]
    assert b"drf" in said
    assert b"/3" in said


def test_each_policys_apps_are_counted_as_they_finish(files: list[str]) -> None:
    counted: list[tuple[str, int]] = []
    cluster, trace = load_cluster(files[1]), load_trace(files[3])
    runs = run_all(Study(cluster, trace), ["drf", "srtf"], lambda *of: counted.append(of))
    assert counted == [(policy, n) for policy in ("drf", "srtf") for n in (1, 2, 3)]
    assert [len(result.apps) for result, _ in runs] == [3, 3]
