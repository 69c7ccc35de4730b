"""NVML by NVIDIA's own ``pynvml``: what the GPUs of this machine are, and what they are doing.

NVML refuses in many ways: no library, a driver that differs from it, a counter that a GPU does not
have or that only root may read, a GPU in MIG mode, one that has fallen off the bus. None of that is
an error here. What can be read is read; what cannot is None, is said once in one line
(:attr:`~themis_ray.profiling.nvml_session.Session.notes`), and is not asked for again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from themis_ray.profiling.nvml_session import Device, Session
from themis_ray.profiling.topology import Gpu, Link, MigInstance, Topology

# NVML's "all links of the device" as the scope of a field value.
_ALL_LINKS = 0xFFFFFFFF
_KIB = 1024
# What NVML says of the links of a GPU that has no NVLink, or no more of them.
_NO_SUCH_LINK = ("NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_INVALID_ARGUMENT")
# What slows a GPU's clocks down against its will; idleness and chosen clocks do not count.
_THROTTLES = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "power brake",
}


@dataclass(frozen=True, slots=True)
class Sample:
    """What a GPU was doing at one moment; None: cannot be read.

    Attributes:
        utilisation: Share of the time in which a kernel ran, 0 to 1.
        memory_bytes: Memory in use.
        pcie_tx_bytes_s: Sent over PCIe, bytes/s over the last 20 ms.
        pcie_rx_bytes_s: Received over PCIe.
        nvlink_tx_bytes: Sent over all NVLinks so far; a counter.
        nvlink_rx_bytes: Received over all NVLinks so far.
        sm_clock_mhz: The multiprocessors' clock.
        power_w: Power drawn, W.
        temperature_c: Temperature, degrees Celsius.
        throttled: Why the clocks are held down; empty when they are not.
    """

    utilisation: float | None = None
    memory_bytes: int | None = None
    pcie_tx_bytes_s: float | None = None
    pcie_rx_bytes_s: float | None = None
    nvlink_tx_bytes: int | None = None
    nvlink_rx_bytes: int | None = None
    sm_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttled: tuple[str, ...] | None = None


class Nvml(Session):
    """What NVML tells of this machine. Use it as a context manager; opening it never raises."""

    # -- devices ------------------------------------------------------------------------------

    def devices(self) -> tuple[Device, ...]:
        """All GPUs that NVML lets us see."""
        count = self._read("the number of GPUs", None, "nvmlDeviceGetCount")
        found = []
        for index in range(count or 0):
            probe = Device(index, None, None, None)
            handle = self._read("handle", probe, "nvmlDeviceGetHandleByIndex", index)
            if handle is not None:
                uuid = self._text("UUID", Device(index, None, None, handle), "nvmlDeviceGetUUID")
                found.append(Device(index, None, uuid, handle))
        return tuple(found)

    def instances(self, device: Device) -> tuple[Device, ...]:
        """The MIG instances of a GPU; none when MIG is off."""
        if not self._mig_mode(device):
            return ()
        most = self._read("MIG instances", device, "nvmlDeviceGetMaxMigDeviceCount", device.handle)
        found = []
        for i in range(most or 0):
            name = "nvmlDeviceGetMigDeviceHandleByIndex"
            # Fewer than the most may have been made.
            handle = self._read(
                "MIG instances", device, name, device.handle, i, absent=("NVML_ERROR_NOT_FOUND",)
            )
            if handle is not None:
                uuid = self._text(
                    "UUID", Device(device.index, i, None, handle), "nvmlDeviceGetUUID"
                )
                found.append(Device(device.index, i, uuid, handle))
        return tuple(found)

    def visible(self, environ: Mapping[str, str] | None = None) -> tuple[Device, ...]:
        """The GPUs and MIG instances that CUDA uses in this process, by CUDA_VISIBLE_DEVICES.

        Numbers in it are taken as NVML's, as Ray sets them. As in CUDA, the list ends at the first
        entry that names nothing.
        """
        named = (os.environ if environ is None else environ).get("CUDA_VISIBLE_DEVICES")
        devices = self.devices()
        if named is None:
            return devices
        chosen = []
        for entry in (part.strip() for part in named.split(",")):
            device = self._named(entry, devices)
            if device is None:
                break
            chosen.append(device)
        return tuple(chosen)

    def _named(self, entry: str, devices: tuple[Device, ...]) -> Device | None:
        if entry.isdigit():
            return next((d for d in devices if d.index == int(entry)), None)
        if entry.startswith("MIG-"):
            devices = tuple(i for d in devices for i in self.instances(d))
        if not entry.startswith(("GPU-", "MIG-")):
            return None
        return next((d for d in devices if d.uuid and d.uuid.startswith(entry)), None)

    # -- what the machine is --------------------------------------------------------------------

    def topology(self) -> Topology:
        """The GPUs, and what lies between each two of them."""
        devices = self.devices()
        addresses = {d.index: self._bus_id(d) for d in devices}
        joined = {d.index: self._nvlinks(d) for d in devices}
        gpus = tuple(self._gpu(d, addresses[d.index], len(joined[d.index])) for d in devices)
        links = {}
        for a in devices:
            for b in devices:
                if a.index < b.index:
                    near = _nvlinked(joined[a.index], joined[b.index], addresses[b.index])
                    links[a.index, b.index] = Link.NVLINK if near else self._ancestor(a, b)
        return Topology(gpus, links, self.driver, self.notes)

    def _gpu(self, device: Device, bus_id: str | None, nvlinks: int) -> Gpu:
        memory = self._read("memory", device, "nvmlDeviceGetMemoryInfo", device.handle)
        return Gpu(
            index=device.index,
            uuid=device.uuid,
            name=self._text("name", device, "nvmlDeviceGetName"),
            bus_id=bus_id,
            memory_bytes=None if memory is None else int(memory.total),
            mig=self._mig_mode(device),
            instances=tuple(self._instance(i) for i in self.instances(device)),
            nvlinks=nvlinks,
        )

    def _instance(self, device: Device) -> MigInstance:
        memory = self._read("memory", device, "nvmlDeviceGetMemoryInfo", device.handle)
        return MigInstance(
            index=device.instance or 0,
            uuid=device.uuid or "",
            name=self._text("name", device, "nvmlDeviceGetName") or "",
            memory_bytes=None if memory is None else int(memory.total),
        )

    def _mig_mode(self, device: Device) -> bool | None:
        mode = self._read(
            "MIG mode",
            device,
            "nvmlDeviceGetMigMode",
            device.handle,
            absent=("NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_FUNCTION_NOT_FOUND"),
            otherwise=(False,),
        )
        return None if mode is None else bool(mode[0])

    def _bus_id(self, device: Device) -> str | None:
        info = self._read("PCI address", device, "nvmlDeviceGetPciInfo", device.handle)
        return None if info is None else _plain(info.busId)

    def _nvlinks(self, device: Device) -> list[str | None]:
        """The other ends of a GPU's active NVLinks: a PCI address, or ``switch``."""
        ends: list[str | None] = []
        for link in range(self._lib.NVML_NVLINK_MAX_LINKS):
            active = self._read(
                "NVLinks",
                device,
                "nvmlDeviceGetNvLinkState",
                device.handle,
                link,
                absent=_NO_SUCH_LINK,
            )
            if active is None:
                break
            if active:
                ends.append(self._nvlink_end(device, link))
        return ends

    def _nvlink_end(self, device: Device, link: int) -> str | None:
        kind = self._try("nvmlDeviceGetNvLinkRemoteDeviceType", device.handle, link)
        if kind == self._lib.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            return "switch"
        info = self._read(
            "NVLink peers", device, "nvmlDeviceGetNvLinkRemotePciInfo", device.handle, link
        )
        return None if info is None else _plain(info.busId)

    def _ancestor(self, a: Device, b: Device) -> Link:
        level = self._read("topology", a, "nvmlDeviceGetTopologyCommonAncestor", a.handle, b.handle)
        levels = {
            self._lib.NVML_TOPOLOGY_INTERNAL: Link.BOARD,
            self._lib.NVML_TOPOLOGY_SINGLE: Link.SWITCH,
            self._lib.NVML_TOPOLOGY_MULTIPLE: Link.SWITCHES,
            self._lib.NVML_TOPOLOGY_HOSTBRIDGE: Link.BRIDGE,
            self._lib.NVML_TOPOLOGY_NODE: Link.SOCKET,
            self._lib.NVML_TOPOLOGY_SYSTEM: Link.SYSTEM,
        }
        return levels.get(level, Link.UNKNOWN)

    # -- what it is doing -----------------------------------------------------------------------

    def sample(self, device: Device) -> Sample:
        """What a GPU is doing now. Takes some 40 ms where NVML measures PCIe traffic."""
        if not self.available:
            return Sample()
        lib, handle = self._lib, device.handle
        usage = self._read("utilisation", device, "nvmlDeviceGetUtilizationRates", handle)
        memory = self._read("memory", device, "nvmlDeviceGetMemoryInfo", handle)
        clock = self._read("clocks", device, "nvmlDeviceGetClockInfo", handle, lib.NVML_CLOCK_SM)
        power = self._read("power", device, "nvmlDeviceGetPowerUsage", handle)
        heat = self._read(
            "temperature", device, "nvmlDeviceGetTemperature", handle, lib.NVML_TEMPERATURE_GPU
        )
        sent, received = self._nvlink_traffic(device)
        return Sample(
            utilisation=None if usage is None else usage.gpu / 100,
            memory_bytes=None if memory is None else int(memory.used),
            pcie_tx_bytes_s=self._pcie(device, lib.NVML_PCIE_UTIL_TX_BYTES),
            pcie_rx_bytes_s=self._pcie(device, lib.NVML_PCIE_UTIL_RX_BYTES),
            nvlink_tx_bytes=sent,
            nvlink_rx_bytes=received,
            sm_clock_mhz=None if clock is None else float(clock),
            power_w=None if power is None else power / 1e3,
            temperature_c=None if heat is None else float(heat),
            throttled=self._throttled(device),
        )

    def _pcie(self, device: Device, counter: int) -> float | None:
        name = "nvmlDeviceGetPcieThroughput"
        kib = self._read("PCIe traffic", device, name, device.handle, counter)
        return None if kib is None else float(kib) * _KIB

    def _nvlink_traffic(self, device: Device) -> tuple[int | None, int | None]:
        lib, what = self._lib, "NVLink traffic"
        fields = [
            (lib.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS),
            (lib.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS),
        ]
        values = self._read(what, device, "nvmlDeviceGetFieldValues", device.handle, fields)
        out: list[int | None] = []
        for value in values or ():
            if value.nvmlReturn == lib.NVML_SUCCESS:
                out.append(int(value.value.ullVal) * _KIB)
            else:
                out.append(None)
                if value.nvmlReturn in self._codes(_NO_SUCH_LINK):
                    self._never.add((what, device.label))
                else:
                    self._refuse(what, device, lib.NVMLError(value.nvmlReturn))
        return (out[0], out[1]) if len(out) == 2 else (None, None)

    def _throttled(self, device: Device) -> tuple[str, ...] | None:
        name = "nvmlDeviceGetCurrentClocksEventReasons"
        reasons = self._read(
            "throttling", device, name, device.handle, absent=("NVML_ERROR_FUNCTION_NOT_FOUND",)
        )
        if reasons is None:
            # Drivers before 535 know it by its older name only.
            name = "nvmlDeviceGetCurrentClocksThrottleReasons"
            reasons = self._read("throttling", device, name, device.handle)
        if reasons is None:
            return None
        return tuple(words for bit, words in _THROTTLES.items() if reasons & bit)


def _nvlinked(ends: list[str | None], others: list[str | None], address: str | None) -> bool:
    """Whether two GPUs are joined: directly, or both by a switch."""
    return (address is not None and address in ends) or ("switch" in ends and "switch" in others)


def _plain(bus_id: Any) -> str:
    """A PCI address in one spelling: NVML gives domains of 4 or 8 digits, in either case."""
    text = (bus_id.decode() if isinstance(bus_id, bytes) else str(bus_id)).upper()
    domain, _, rest = text.partition(":")
    return f"{domain.zfill(8)}:{rest}"
