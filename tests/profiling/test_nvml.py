"""The real pynvml against a stand-in for NVML's shared library."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.profiling import nvml_machines as m
from themis_ray.cli import doctor
from themis_ray.profiling.nvml import Nvml, Sample
from themis_ray.profiling.topology import Link

COUNTERS = [
    "set 0 util 57",
    "set 0 mem_used 3000000000",
    "set 0 pcie_tx 1000",
    "set 0 pcie_rx 2000",
    "set 0 nvl_tx 10",
    "set 0 nvl_rx 20",
    "set 0 clock 1410",
    "set 0 power 250500",
    "set 0 heat 61",
    "set 0 throttle 36",
]
PAIR = [*m.gpus(2), *m.nvlinks([(0, 1)])]


def test_nvlink_pairs_across_two_sockets(machine: m.Machine) -> None:
    near = m.ancestors(4, {m.PIX: 2, m.NODE: 2})
    machine([*m.gpus(4), *near, *m.nvlinks([(0, 1), (0, 1), (2, 3)])])
    with Nvml() as nvml:
        found = nvml.topology()
    assert found.driver == "570.1"
    assert [(g.index, g.name, g.uuid, g.mig, g.nvlinks) for g in found.gpus] == [
        (0, "Stand-in 0", "GPU-0000", False, 2),
        (1, "Stand-in 1", "GPU-0001", False, 2),
        (2, "Stand-in 2", "GPU-0002", False, 1),
        (3, "Stand-in 3", "GPU-0003", False, 1),
    ]
    assert found.gpus[0].memory_bytes == 1 << 34
    assert found.gpus[0].bus_id == "00000000:10:00.0"
    assert found.link(1, 0) is found.link(2, 3) is Link.NVLINK
    assert found.link(1, 2) is Link.SYSTEM
    assert found.slots == 2
    assert found.notes == ()


def test_gpus_on_an_nvswitch_are_one_slot(machine: m.Machine) -> None:
    machine([*m.gpus(8), *m.ancestors(8, {m.NODE: 4}), *m.switched(8)])
    with Nvml() as nvml:
        found = nvml.topology()
    assert set(found.links.values()) == {Link.NVLINK}
    assert found.slots == 1


def test_pcie_switches_make_slots(machine: m.Machine) -> None:
    machine([*m.gpus(8), *m.ancestors(8, {m.PIX: 2, m.PHB: 4})])
    with Nvml() as nvml:
        found = nvml.topology()
    assert [found.link(0, i) for i in (1, 2, 4)] == [Link.SWITCH, Link.BRIDGE, Link.SYSTEM]
    assert found.slots == 4
    assert found.notes == ()  # having no NVLink is nothing to complain of


def test_every_counter_in_its_unit(machine: m.Machine) -> None:
    machine([*PAIR, *COUNTERS])
    with Nvml() as nvml:
        first, second = (nvml.sample(nvml.devices()[0]) for _ in range(2))
    assert first == Sample(
        utilisation=0.57,
        memory_bytes=3_000_000_000,
        pcie_tx_bytes_s=1000 * 1024,
        pcie_rx_bytes_s=2000 * 1024,
        nvlink_tx_bytes=first.nvlink_tx_bytes,
        nvlink_rx_bytes=first.nvlink_rx_bytes,
        sm_clock_mhz=1410,
        power_w=250.5,
        temperature_c=61,
        throttled=("power cap", "heat (software)"),
    )
    assert first.nvlink_tx_bytes is not None
    assert second.nvlink_tx_bytes is not None
    assert second.nvlink_tx_bytes - first.nvlink_tx_bytes == 10 * 1024


def counted(monkeypatch: pytest.MonkeyPatch, function: str) -> list[Any]:
    """Every call of one of pynvml's functions from now on."""
    calls: list[Any] = []
    real = getattr(pynvml, function)

    def ask(*arguments: Any) -> Any:
        calls.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(pynvml, function, ask)
    return calls


@pytest.mark.parametrize(
    ("function", "fields"),
    [
        ("nvmlDeviceGetUtilizationRates", ["utilisation"]),
        ("nvmlDeviceGetMemoryInfo", ["memory_bytes"]),
        ("nvmlDeviceGetPcieThroughput", ["pcie_tx_bytes_s", "pcie_rx_bytes_s"]),
        ("nvmlDeviceGetFieldValues", ["nvlink_tx_bytes", "nvlink_rx_bytes"]),
        ("nvmlDeviceGetClockInfo", ["sm_clock_mhz"]),
        ("nvmlDeviceGetPowerUsage", ["power_w"]),
        ("nvmlDeviceGetTemperature", ["temperature_c"]),
    ],
)
@pytest.mark.parametrize("code", [m.NO_PERMISSION, m.NOT_SUPPORTED, m.NO_FUNCTION])
def test_what_is_refused_is_none_and_said_once(
    machine: m.Machine,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    function: str,
    fields: list[str],
    code: int,
) -> None:
    machine([*PAIR, *COUNTERS, m.fail(function, code)])
    asked = counted(monkeypatch, function)
    with Nvml() as nvml, caplog.at_level(logging.WARNING):
        devices = nvml.devices()
        samples = [nvml.sample(device) for device in devices * 3]
        notes = nvml.notes
    whole = {name for name in Sample.__slots__ if getattr(samples[0], name) is None}
    assert whole == set(fields)
    assert len(notes) == 1
    assert "of GPU 0, 1 cannot be read: " in notes[0]
    assert len(caplog.records) == 1
    assert len(asked) == 2  # of each GPU once


@pytest.mark.parametrize("code", [m.NO_PERMISSION, m.NOT_SUPPORTED])
def test_throttling_that_is_refused_is_not_asked_for_by_its_old_name(
    machine: m.Machine, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    machine([*PAIR, m.fail("nvmlDeviceGetCurrentClocksEventReasons", code)])
    asked = counted(monkeypatch, "nvmlDeviceGetCurrentClocksThrottleReasons")
    with Nvml() as nvml:
        assert nvml.sample(nvml.devices()[0]).throttled is None
        assert len(nvml.notes) == 1
    assert asked == []


def test_a_failure_that_passes_is_asked_again(machine: m.Machine) -> None:
    path = machine([*PAIR, *COUNTERS])
    path.write_text(path.read_text() + m.fail("nvmlDeviceGetPowerUsage", m.UNKNOWN, after=1) + "\n")
    with Nvml() as nvml:
        device = nvml.devices()[0]
        assert [nvml.sample(device).power_w for _ in range(2)] == [250.5, None]
        assert len(nvml.notes) == 1
        assert ("power", "GPU 0") not in nvml._never


def test_a_gpu_that_falls_off_the_bus(machine: m.Machine) -> None:
    machine([*PAIR, *COUNTERS, m.fail("nvmlDeviceGetUtilizationRates", m.LOST, index=0, after=1)])
    with Nvml() as nvml:
        lost, well = nvml.devices()
        assert nvml.sample(lost).utilisation == 0.57
        assert nvml.sample(lost).memory_bytes is None
        assert nvml.sample(lost) == Sample()
        assert nvml.sample(well).utilisation == 0
        assert nvml.notes == ("anything of GPU 0 cannot be read: GPU is lost",)


def test_a_gpu_without_a_handle_is_left_out(machine: m.Machine) -> None:
    machine([*m.gpus(3), m.fail("nvmlDeviceGetHandleByIndex_v2", m.NO_PERMISSION, index=1)])
    with Nvml() as nvml:
        assert [device.index for device in nvml.devices()] == [0, 2]
        assert "of GPU 1 cannot be read: Insufficient Permissions" in nvml.notes[0]


@pytest.mark.parametrize(
    "function",
    [
        "nvmlDeviceGetTopologyCommonAncestor",
        "nvmlDeviceGetPciInfo_v3",
        "nvmlDeviceGetNvLinkState",
        "nvmlDeviceGetNvLinkRemotePciInfo_v2",
        "nvmlDeviceGetName",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetMemoryInfo",
        "nvmlSystemGetDriverVersion",
    ],
)
def test_a_topology_with_gaps(machine: m.Machine, function: str) -> None:
    machine([*m.gpus(4), *m.nvlinks([(0, 1), (2, 3)]), m.fail(function, m.NO_PERMISSION)])
    with Nvml() as nvml:
        found = nvml.topology()
    assert len(found.gpus) == 4
    assert found.slots in (1, 2)
    assert len(found.notes) == 1
    assert "Insufficient Permissions" in found.notes[0]


@pytest.mark.parametrize("code", [m.MISMATCH, m.NO_PERMISSION, 9])
def test_an_nvml_that_does_not_start(machine: m.Machine, code: int) -> None:
    machine([*PAIR, m.fail("nvmlInitWithFlags", code)])
    with Nvml() as nvml:
        assert not nvml.available
        assert nvml.devices() == nvml.visible() == ()
        assert nvml.topology().slots == 1
        (note,) = nvml.notes
    assert note == f"NVML cannot be read: {pynvml.NVMLError(code)}"


def test_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", _no_such_library)
    nvml = Nvml()
    assert nvml.notes == ("NVML cannot be read: NVML Shared Library Not Found",)


def _no_such_library(name: str) -> None:
    raise OSError(f"{name}: cannot open shared object file")


def test_no_pynvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    nvml = Nvml()
    assert not nvml.available
    assert len(nvml.notes) == 1


def test_an_old_driver_knows_throttling_by_its_old_name(
    machine: m.Machine, libraries: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine([*PAIR, *COUNTERS])
    m.load(monkeypatch, libraries["old"])
    with Nvml() as nvml:
        assert nvml.sample(nvml.devices()[0]).throttled == ("power cap", "heat (software)")
        assert nvml.notes == ()


def test_mig_instances(machine: m.Machine) -> None:
    machine([*m.gpus(2), "set 0 mem_used 5000", "mig 0 2"])
    with Nvml() as nvml:
        sliced, whole = nvml.topology().gpus
        device = nvml.instances(nvml.devices()[0])[1]
        assert device.label == "GPU 0 MIG 1"
        sample = nvml.sample(device)
        notes = nvml.notes
    assert (sliced.mig, whole.mig) == (True, False)
    assert [i.uuid for i in sliced.instances] == ["MIG-0000-0", "MIG-0000-1"]
    assert sliced.instances[0].memory_bytes == (1 << 34) // 7
    assert (sample.utilisation, sample.memory_bytes) == (None, 5000)
    assert notes == ("utilisation of GPU 0 MIG 1 cannot be read: Not Supported",)


def test_mig_instances_that_may_not_be_seen(
    machine: m.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = m.fail("nvmlDeviceGetMigDeviceHandleByIndex", m.NO_PERMISSION)
    machine([*m.gpus(1), "mig 0 2", refused])
    asked = counted(monkeypatch, "nvmlDeviceGetMigDeviceHandleByIndex")
    with Nvml() as nvml:
        (found,) = nvml.topology().gpus
        assert (found.mig, found.instances) == (True, ())
        assert nvml.notes == ("MIG instances of GPU 0 cannot be read: Insufficient Permissions",)
    assert len(asked) == 1


def test_whether_mig_is_on_is_not_asked_for_again(
    machine: m.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine([*m.gpus(1), m.fail("nvmlDeviceGetMigMode", m.NO_PERMISSION)])
    asked = counted(monkeypatch, "nvmlDeviceGetMigMode")
    with Nvml() as nvml:
        assert nvml.topology().gpus[0].mig is None
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("value", "labels"),
    [
        (None, ["GPU 0", "GPU 1", "GPU 2"]),
        ("", []),
        ("2,0", ["GPU 2", "GPU 0"]),
        ("GPU-0001", ["GPU 1"]),
        ("MIG-0000-1,1", ["GPU 0 MIG 1", "GPU 1"]),
        ("1,-1,2", ["GPU 1"]),
        ("7", []),
    ],
)
def test_the_gpus_that_cuda_sees(machine: m.Machine, value: str | None, labels: list[str]) -> None:
    machine([*m.gpus(3), "mig 0 2"])
    environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    with Nvml() as nvml:
        assert [device.label for device in nvml.visible(environ)] == labels


def test_closing_twice_and_a_shutdown_that_fails(machine: m.Machine) -> None:
    machine([*PAIR, m.fail("nvmlShutdown", m.LOST)])
    nvml = Nvml()
    device = nvml.devices()[0]
    nvml.close()
    nvml.close()
    assert nvml.sample(device) == Sample()


def test_the_doctor_tells_of_the_gpus(machine: m.Machine) -> None:
    lines = [*m.gpus(4), *m.nvlinks([(0, 1), (2, 3)])]
    machine(lines)
    assert doctor.check_nvml() == doctor.Check("nvml", "ok", "4 GPUs, driver 570.1")
    assert "2 slots by NVLink: 0 1 | 2 3" in doctor.check_topology().found
    machine([*lines, m.fail("nvmlDeviceGetPcieThroughput", m.NO_PERMISSION)])
    check = doctor.check_nvml()
    assert check.outcome == "note"
    assert check.found.endswith(
        "PCIe traffic of GPU 0, 1, 2, 3 cannot be read: Insufficient Permissions"
    )


def test_pynvml_finds_the_library_by_itself(libraries: dict[str, Path], tmp_path: Path) -> None:
    """No help in the process: the loader finds the stand-in as it would find the driver's."""
    described = tmp_path / "machine.txt"
    described.write_text("\n".join([*m.gpus(4), *m.nvlinks([(0, 1), (2, 3)])]) + "\n")
    code = (
        "import json; from themis_ray.profiling.nvml import Nvml\n"
        "found = Nvml().topology(); print(json.dumps([found.driver, found.slots]))"
    )
    environ = {
        **os.environ,
        "LD_LIBRARY_PATH": str(libraries["new"].parent),
        "NVML_STANDIN": str(described),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == ["570.1", 2]
