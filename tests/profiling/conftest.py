from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import nvml_machines


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The stand-in for NVML, of a new and of an old driver."""
    if nvml_machines.compiler() is None:
        pytest.skip("no C compiler (cc or gcc) to build the stand-in for NVML with")
    return {
        "new": nvml_machines.build(tmp_path_factory.mktemp("nvml")),
        "old": nvml_machines.build(tmp_path_factory.mktemp("nvml-old"), "-DOLD_DRIVER"),
    }


@pytest.fixture
def machine(
    libraries: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> nvml_machines.Machine:
    """Gives this machine the GPUs of a description."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def describe(lines: Iterable[str]) -> Path:
        path = tmp_path / "machine.txt"
        path.write_text("\n".join(lines) + "\n")
        monkeypatch.setenv("NVML_STANDIN", str(path))
        nvml_machines.load(monkeypatch, libraries["new"])
        return path

    return describe
