import contextlib
import json
import sys
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

import themis_ray.live
from themis_ray.cli import doctor
from themis_ray.cli.main import app
from themis_ray.errors import ArbiterUnavailableError
from themis_ray.live import ray_version
from themis_ray.profiling import nvml
from themis_ray.profiling.topology import Gpu, Link, MigInstance, Topology


@pytest.fixture(autouse=True)
def lonely_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No cluster, no token, no authentication mode, whatever this machine has."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    pretend_client(monkeypatch, ArbiterUnavailableError("no Ray cluster runs on this machine"))


def pretend_client(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    """Have the arbiter's client give ``answer``, or raise it."""

    def status() -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    client = SimpleNamespace(status=status, joined=contextlib.nullcontext)
    monkeypatch.setitem(sys.modules, "themis_ray.live.client", client)
    monkeypatch.setattr(themis_ray.live, "client", client, raising=False)


def test_a_healthy_machine_passes() -> None:
    result = CliRunner().invoke(app, ["doctor", "--json"])
    document = json.loads(result.stdout)
    assert result.exit_code == 0, document
    assert document["healthy"] is True
    assert {check["outcome"] for check in document["checks"]} <= {"ok", "note"}
    assert [check["name"] for check in document["checks"]] == [
        "python", "ray", "grpc", "nvml", "topology", "clock", "torch", "torchvision", "mlflow",
        "plotly", "access", "arbiter",
    ]  # fmt: skip


def test_the_table_names_each_check() -> None:
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0
    assert "nvml" in result.stdout
    assert "no Ray cluster" in result.stdout


def test_an_old_ray_fails_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_version, "check_ray_version", lambda: _raise_old())
    result = CliRunner().invoke(app, ["doctor", "--json"])
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert document["healthy"] is False
    ray = document["checks"][1]
    assert "2.9.0 is too old" in ray["found"]
    assert ray["remedy"].startswith("pip install")


def _raise_old() -> str:
    from themis_ray.errors import UnsupportedRayError

    raise UnsupportedRayError("Ray 2.9.0 is too old")


def test_an_old_python_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 1, "final", 0))
    assert doctor.check_python().outcome == "fail"


class FakeNvml:
    """A stand-in for this package's reader of NVML, which has tests of its own."""

    def __init__(self, notes: tuple[str, ...] = (), topology: Topology | None = None) -> None:
        self.available = topology is not None
        self.notes = notes
        self.driver = "570.1"
        self._topology = topology or Topology()

    def __call__(self) -> Any:
        return contextlib.nullcontext(self)

    def devices(self) -> tuple[Gpu, ...]:
        return self._topology.gpus

    def sample(self, device: Any) -> None:
        pass

    def topology(self) -> Topology:
        return self._topology


def gpus(count: int, **changes: Any) -> tuple[Gpu, ...]:
    return tuple(replace(Gpu(i, None, "H200", None, None, False), **changes) for i in range(count))


PAIRS = Topology(gpus(4), {(0, 1): Link.NVLINK, (2, 3): Link.NVLINK})


def test_nvml_and_the_topology_that_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "Nvml", FakeNvml(topology=PAIRS))
    assert doctor.check_nvml() == doctor.Check("nvml", "ok", "4 GPUs, driver 570.1")
    found = "4 x H200; 2 slots by NVLink: 0 1 | 2 3"
    assert doctor.check_topology() == doctor.Check("topology", "ok", found)


def test_counters_that_are_refused_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    note = "PCIe traffic of GPU 0 cannot be read: Insufficient Permissions"
    monkeypatch.setattr(nvml, "Nvml", FakeNvml((note,), Topology(gpus(1))))
    check = doctor.check_nvml()
    assert (check.outcome, check.found) == ("note", f"1 GPU, driver 570.1; {note}")
    assert doctor.check_topology().found == "1 x H200"


def test_mig_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    slices = tuple(MigInstance(i, f"MIG-{i}", "1g", None) for i in range(2))
    topology = Topology(gpus(1, mig=True, instances=slices))
    monkeypatch.setattr(nvml, "Nvml", FakeNvml(topology=topology))
    check = doctor.check_topology()
    assert (check.outcome, check.found) == ("note", "1 x H200; MIG on GPU 0: 2 instances")


def test_nvml_that_does_not_start_is_a_plain_line(monkeypatch: pytest.MonkeyPatch) -> None:
    note = "NVML cannot be read: Driver/library version mismatch"
    monkeypatch.setattr(nvml, "Nvml", FakeNvml((note,)))
    check = doctor.check_nvml()
    assert (check.outcome, check.found) == ("note", note)
    assert "step times" in check.remedy
    assert doctor.check_topology().outcome == "note"


def test_a_missing_pynvml_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "Nvml", FakeNvml(("No module named 'pynvml'",)))
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    assert doctor.check_nvml().outcome == "note"
    assert doctor.check_nvml().remedy == "pip install nvidia-ml-py"


def test_generated_code_that_refuses_the_runtime_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "themis_ray.rpc._generated.themis_pb2_grpc", None)
    check = doctor.check_rpc()
    assert check.outcome == "fail"
    assert check.remedy.startswith("pip install -U grpcio")


def test_a_coarse_clock_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    coarse = SimpleNamespace(monotonic=True, resolution=0.1)
    monkeypatch.setattr(doctor.time, "get_clock_info", lambda name: coarse)
    assert doctor.check_clock().outcome == "fail"


def test_a_missing_extra_comes_with_the_line_that_mends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "version", version)
    check = doctor.check_extra("plotly", "plotly", "plot", "figures")
    assert check.outcome == "note"
    assert check.remedy == "pip install 'themis_ray[plot]'"


@pytest.mark.parametrize(
    ("environment", "token", "outcome", "words"),
    [
        ({}, False, "note", "not set; token: none"),
        ({}, True, "note", "auth_token"),
        ({"RAY_AUTH_MODE": "disabled"}, False, "ok", "without a token"),
        ({"RAY_AUTH_MODE": "token"}, True, "ok", "auth_token"),
        ({"RAY_AUTH_MODE": "token"}, False, "fail", "there is no token"),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "t"}, False, "ok", "from RAY_AUTH_TOKEN"),
        ({"RAY_AUTH_MODE": "yes"}, False, "fail", "RAY_AUTH_MODE=yes"),
    ],
)
def test_access(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    environment: dict[str, str],
    token: bool,
    outcome: str,
    words: str,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if token:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text("secret")
    check = doctor.check_access()
    assert check.outcome == outcome
    assert words in check.found
    assert "secret" not in check.found + check.remedy


@pytest.mark.parametrize(
    ("answer", "outcome", "words"),
    [
        ({"policy": "themis", "apps": [{}], "nodes": []}, "ok", "policy themis, 1 apps, 0 nodes"),
        (ArbiterUnavailableError("no arbiter answers"), "note", "no arbiter answers"),
        (ConnectionError("refused"), "note", "ConnectionError: refused"),
    ],
)
def test_the_arbiter_is_asked(
    monkeypatch: pytest.MonkeyPatch, answer: Any, outcome: str, words: str
) -> None:
    pretend_client(monkeypatch, answer)
    check = doctor.check_arbiter()
    assert check.outcome == outcome
    assert words in check.found
