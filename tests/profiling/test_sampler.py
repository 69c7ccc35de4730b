"""Counters over a lease."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.profiling import nvml_machines as m
from themis_ray.profiling.nvml import Nvml, Sample
from themis_ray.profiling.nvml_session import Device
from themis_ray.profiling.sampler import MeanMax, Sampler, _Tally

DEVICE = Device(0, None, None, None)


def test_means_and_maxima() -> None:
    tally = _Tally()
    for second, (use, sent, why) in enumerate(
        [(0.5, 1000, ()), (1.0, 3000, ("power cap",)), (None, 500, ()), (0.3, 900, ())]
    ):
        tally.add(Sample(utilisation=use, nvlink_tx_bytes=sent, throttled=why), float(second))
    usage = tally.usage(DEVICE)
    assert usage.samples == 4
    assert usage.figures["utilisation"] == MeanMax(pytest.approx(0.6), 1.0)
    # From 3000 back to 500: a reset, of which nothing is known.
    assert usage.figures["nvlink_tx_bytes_s"] == MeanMax(1200.0, 2000.0)
    assert "memory_bytes" not in usage.figures
    assert usage.throttled == {"power cap": 0.25}
    assert usage.metrics() == {
        "themis/gpu_utilisation_mean": pytest.approx(0.6),
        "themis/gpu_utilisation_max": 1.0,
        "themis/gpu_nvlink_tx_bytes_s_mean": 1200.0,
        "themis/gpu_nvlink_tx_bytes_s_max": 2000.0,
        "themis/gpu_throttled_power_cap": 0.25,
    }


def test_a_thread_samples_what_cuda_sees_and_ends(
    machine: m.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine([*m.gpus(2), "set 1 util 80", m.fail("nvmlDeviceGetPowerUsage", m.NO_PERMISSION)])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with Nvml() as nvml:
        sampler = Sampler(nvml, period_s=0.001)
        looked = threading.Event()
        look = sampler.look

        def count() -> None:
            look()
            if sampler.usage()[0].samples >= 3:
                looked.set()

        monkeypatch.setattr(sampler, "look", count)
        sampler.start()
        assert looked.wait(60)
        (usage,) = sampler.stop()
        assert sampler.stop() == (usage,)
    assert not sampler._thread.is_alive()
    assert usage.device == "GPU 1"
    assert usage.figures["utilisation"] == MeanMax(pytest.approx(0.8), 0.8)
    assert "power_w" not in usage.figures


def test_without_a_gpu_there_is_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    monkeypatch.setattr(threading.Thread, "start", started.append)
    with Nvml() as nvml, Sampler(nvml, devices=()) as sampler:
        assert sampler.usage() == ()
    assert started == []
