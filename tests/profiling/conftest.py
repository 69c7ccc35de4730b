from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.profiling import nvml_machines
from tests.ray_process import ray_cluster
from themis_ray.live.placement import RACK_LABEL


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


@pytest.fixture(scope="package")
def two_racks() -> Iterator[Any]:
    """Two nodes of two logical GPUs each, in a rack each."""
    labels = ({RACK_LABEL: "r0"}, {RACK_LABEL: "r1"})
    with ray_cluster([{"num_cpus": 2, "num_gpus": 2, "labels": rack} for rack in labels]) as found:
        yield found
