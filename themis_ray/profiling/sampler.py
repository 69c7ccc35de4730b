"""GPU counters sampled in the background, as means and maxima over a lease.

A trial's process lives for one lease, renewals included, so what one sampler has gathered is the
lease's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from themis_ray.profiling.nvml import Nvml, Sample
from themis_ray.profiling.nvml_session import Device

# What of a sample is a level, to be averaged as it is.
_LEVELS = (
    "utilisation",
    "memory_bytes",
    "pcie_tx_bytes_s",
    "pcie_rx_bytes_s",
    "sm_clock_mhz",
    "power_w",
    "temperature_c",
)
# What is a counter, whose growth per second is averaged.
_COUNTERS = {"nvlink_tx_bytes": "nvlink_tx_bytes_s", "nvlink_rx_bytes": "nvlink_rx_bytes_s"}


@dataclass(frozen=True, slots=True)
class MeanMax:
    """Mean and maximum of a figure."""

    mean: float
    max: float


@dataclass(frozen=True, slots=True)
class Usage:
    """What one GPU did during a lease.

    Attributes:
        device: ``GPU 0``, or ``GPU 0 MIG 1``.
        samples: How often it was looked at.
        figures: Mean and maximum by name: those of :class:`~themis_ray.profiling.nvml.Sample`,
            and NVLink traffic in bytes/s. What could never be read is not there.
        throttled: Share of the samples in which the clocks were held down, by reason; None when
            that could not be read.
    """

    device: str
    samples: int
    figures: Mapping[str, MeanMax]
    throttled: Mapping[str, float] | None

    def metrics(self, prefix: str = "themis/gpu_") -> dict[str, float]:
        """As flat metrics, ``themis/gpu_utilisation_mean`` and so on."""
        flat = {}
        for name, figure in self.figures.items():
            flat[f"{prefix}{name}_mean"], flat[f"{prefix}{name}_max"] = figure.mean, figure.max
        for reason, share in (self.throttled or {}).items():
            flat[f"{prefix}throttled_{reason.replace(' ', '_')}"] = share
        return flat


@dataclass(slots=True)
class _Sum:
    count: int = 0
    total: float = 0.0
    most: float = float("-inf")

    def add(self, value: float) -> None:
        self.count, self.total = self.count + 1, self.total + value
        self.most = max(self.most, value)


@dataclass(slots=True)
class _Tally:
    """What has been seen of a GPU so far: as much memory after a day as after a second."""

    samples: int = 0
    sums: dict[str, _Sum] = field(default_factory=dict)
    throttle_seen: int = 0
    throttled: dict[str, int] = field(default_factory=dict)
    counters: dict[str, tuple[float, int]] = field(default_factory=dict)

    def add(self, sample: Sample, now: float) -> None:
        self.samples += 1
        for name in _LEVELS:
            value = getattr(sample, name)
            if value is not None:
                self.sums.setdefault(name, _Sum()).add(float(value))
        for counter, name in _COUNTERS.items():
            self._count(counter, name, getattr(sample, counter), now)
        if sample.throttled is not None:
            self.throttle_seen += 1
            for reason in sample.throttled:
                self.throttled[reason] = self.throttled.get(reason, 0) + 1

    def _count(self, counter: str, name: str, value: int | None, now: float) -> None:
        if value is None:
            return
        before = self.counters.get(counter)
        self.counters[counter] = (now, value)
        # A counter that went back was reset: nothing is known of this interval.
        if before is not None and now > before[0] and value >= before[1]:
            rate = (value - before[1]) / (now - before[0])
            self.sums.setdefault(name, _Sum()).add(rate)

    def usage(self, device: Device) -> Usage:
        figures = {n: MeanMax(s.total / s.count, s.most) for n, s in self.sums.items()}
        seen = self.throttle_seen
        throttled = {r: n / seen for r, n in self.throttled.items()} if seen else None
        return Usage(device.label, self.samples, figures, throttled)


class Sampler:
    """Samples GPUs in a thread of its own until it is stopped.

    Args:
        nvml: The session with NVML; it stays the caller's.
        devices: What to sample; by default what CUDA uses in this process.
        period_s: Pause between two looks, in seconds. A look asks NVML only, and takes some 40 ms
            of waiting (without the GIL) for each GPU, in which NVML measures PCIe traffic.
    """

    def __init__(
        self, nvml: Nvml, devices: Sequence[Device] | None = None, period_s: float = 1.0
    ) -> None:
        self._nvml, self._period_s = nvml, period_s
        self._devices = tuple(nvml.visible() if devices is None else devices)
        self._tallies = [_Tally() for _ in self._devices]
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="themis-nvml", daemon=True)

    def start(self) -> Self:
        """Begin; without a GPU to sample, no thread is started."""
        if self._devices:
            self._thread.start()
        return self

    def stop(self) -> tuple[Usage, ...]:
        """End the thread, wait for it, and return what it has seen; may be called again."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        return self.usage()

    def usage(self) -> tuple[Usage, ...]:
        """What has been seen so far, one entry for each GPU."""
        with self._lock:
            pairs = zip(self._tallies, self._devices, strict=True)
            return tuple(tally.usage(device) for tally, device in pairs)

    def look(self) -> None:
        """Take one sample of each GPU now."""
        for device, tally in zip(self._devices, self._tallies, strict=True):
            sample = self._nvml.sample(device)
            with self._lock:
                tally.add(sample, time.monotonic())

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.look()
            self._stopped.wait(self._period_s)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
