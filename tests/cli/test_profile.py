"""themis profile, with the measuring left out: tests/profiling has that."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from themis_ray.cli import profile as command
from themis_ray.cli.main import app
from themis_ray.core.cluster import Level, Machine
from themis_ray.core.slowdown import Signature
from themis_ray.profiling import profiler
from themis_ray.profiling.placements import plan
from themis_ray.profiling.profile_file import Measured, ModelProfile, load_profiles, with_slowdowns

pytest.importorskip("torchvision")

MACHINES = (Machine("a", 2, "r0"), Machine("b", 2, "r1"))
CLUSTER = profiler.ClusterFound("GPU", MACHINES, {"a": "n0", "b": "n1"})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every job and the numbers of GPUs that were asked for; the times are made up."""
    calls: list[Any] = []

    def profile_model(job: Any, counts: Any, cluster: Any, on_steps: Any) -> ModelProfile:
        calls.append((job, counts))
        chosen = plan(cluster.machines, counts)
        for placement in chosen.placements:
            on_steps(placement, 0)
            on_steps(placement, job.iterations)
        times = [
            Measured(p.signature, 0.5 + 0.1 * p.signature.level, 0.01, job.iterations)
            for p in chosen.placements
        ]
        return ModelProfile(
            skew=0.743, measured=with_slowdowns(times), not_measured=list(chosen.missing)
        )

    monkeypatch.setattr(profiler, "profile_model", profile_model)
    monkeypatch.setattr(profiler, "look_around", lambda: CLUSTER)
    monkeypatch.setattr(command, "_connected", lambda *_: contextlib.nullcontext())
    return calls


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["profile", *arguments])


def test_a_table_with_both_priors_and_what_is_missing(asked: list[Any], tmp_path: Path) -> None:
    file = str(tmp_path / "p.yaml")
    result = run("vgg16", "--gpus", "2", "--iterations", "7", "--output", file)
    assert result.exit_code == 0, result.output
    ((job, counts),) = asked
    assert counts == [1, 2]  # S is relative to one GPU
    assert job.config == {"model": "vgg16", "global_batch": 32, "image_size": 32}
    assert job.iterations == 7
    row = next(line for line in result.stdout.splitlines() if "1+1/cluster" in line)
    # 0.8 s on two GPUs against 0.5 s on one.
    assert [cell.strip() for cell in row.split("│")[2:7]] == ["0.8", "0.01", "3.2", "1.3", "1.523"]
    assert "74% of the bytes" in " ".join(result.stdout.split())
    assert "not measured: 2 GPUs on two machines of a rack" in result.stdout
    table = load_profiles(file).tables()["vgg16"]
    assert table.s(Signature((1, 1), Level.CLUSTER)) == pytest.approx(3.2)


def test_json_and_a_file_that_keeps_other_models(asked: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(yaml.safe_dump({"format": 1, "models": {"resnet50": {"skew": 0.1}}}))
    result = run("alexnet", "--width", "64", "--output", str(file), "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert (document["model"], document["file"]) == ("alexnet", str(file))
    assert [m["placement"] for m in document["measured"]] == [
        "1",
        "2",
        "1+1/cluster",
        "2+2/cluster",
    ]
    assert set(load_profiles(file).models) == {"resnet50", "alexnet"}
    assert asked[0][0].config["width"] == 64


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["vgg61"], "did you mean vgg19 or vgg16"),
        (["vgg16", "--gpus", "1,two"], "--gpus 1,two"),
        (["vgg16", "--gpus", "0"], "numbers of GPUs"),
        (["resnet50", "--width", "9"], "width"),
        (["alexnet", "--image-size", "32"], "at least 63"),
    ],
)
def test_bad_input_is_found_before_any_measuring(
    asked: list[Any], arguments: list[str], words: str
) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in result.output
    assert asked == []


def test_a_file_of_something_else_is_not_overwritten(asked: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "notes.yaml"
    file.write_text("mine: 1\n")
    result = run("vgg16", "--output", str(file))
    assert result.exit_code == 2
    assert "notes.yaml: mine" in result.output
    assert asked == []
    assert file.read_text() == "mine: 1\n"


def test_a_file_that_could_not_be_written_is_found_before_the_measuring(
    asked: list[Any], tmp_path: Path
) -> None:
    result = run("vgg16", "--output", str(tmp_path / "no" / "p.yaml"))
    assert result.exit_code == 2
    assert "p.yaml: it cannot be written" in result.output
    assert asked == []


def test_a_busy_cluster_leaves_the_file_as_it_was(
    asked: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiler, "look_around", lambda: profiler.ClusterFound("GPU", (), {}))
    file = tmp_path / "p.yaml"
    file.write_text(yaml.safe_dump({"format": 1, "models": {"vgg16": {"skew": 0.1}}}))
    before = file.read_text()
    result = run("vgg16", "--gpus", "1,2", "--output", str(file))
    assert result.exit_code == 1
    assert "free GPUs: none" in result.output
    assert "nothing could be measured" in result.output
    assert "2 GPUs: the cluster has none free" in result.output
    assert file.read_text() == before


def test_a_model_too_large_for_one_gpu(
    asked: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = [Measured(Signature((2,), Level.SLOT), 0.5, 0.01, 3)]
    found = ModelProfile(measured=with_slowdowns(times), settings={"device": "cpu"})
    monkeypatch.setattr(profiler, "profile_model", lambda *_: found)
    result = run("vgg16", "--output", str(tmp_path / "p.yaml"))
    assert result.exit_code == 0, result.output
    assert "S(G) is relative to 2 GPUs" in result.output
    assert "share its cores" in result.output


def test_what_is_measured_of_one_gpu_has_no_prior() -> None:
    assert command.priors(Signature((1,), Level.SLOT), 0.5) == ("1", "1")
    assert command.priors(Signature((2,), Level.RACK), None) == ("1.1", "")
