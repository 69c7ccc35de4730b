"""What only a GPU can show: run it by check.sh. Prints Markdown; exits 1 when a check fails."""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from themis_ray.profiling.nvml import Nvml
from themis_ray.profiling.sampler import Sampler, Usage
from themis_ray.workloads import ElasticTrainer, ModelSpec

MODELS = (("vgg16", 224), ("resnet50", 224), ("inception_v3", 299))
CLASSES = 1000


@dataclass(frozen=True)
class Sizes:
    """How much is run."""

    batch: int = 64
    warmup: int = 5
    steps: int = 30
    side: int | None = None
    models: tuple[tuple[str, int], ...] = MODELS
    classes: int = CLASSES
    iterations: int = 30
    lease_s: float = 8.0


# To try the script itself: nothing that it prints then is of any interest.
TOY = Sizes(2, 1, 2, 32, (("squeezenet1_1", 32),), 10, 40)
# What the timed steps of one model in one precision may take on a slow GPU, in seconds.
STEPS_S = 8.0
FEWEST_STEPS = 5
# Two drivers take some 90 s; after this long something hangs.
DRIVERS_S = 300.0


@dataclass
class Report:
    """Checks and their outcome, printed as they come."""

    failed: list[str] = field(default_factory=list)

    def say(self, line: str = "") -> None:
        print(line, flush=True)

    def check(self, what: str, holds: bool, found: object) -> None:
        self.say(f"- {'ok' if holds else '**FAILED**'}: {what} ({found})")
        if not holds:
            self.failed.append(what)


class Images:
    """Random images that lie on the device already, so that the step itself is timed."""

    def __init__(self, count: int, side: int, classes: int, device: str) -> None:
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(count, 3, side, side, generator=generator).to(device)
        self.y = (torch.arange(count) % classes).to(device)

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> int:
        return index

    def collate(self, indices: list[int]) -> tuple[Any, Any]:
        return self.x[indices], self.y[indices]


@contextmanager
def trainer_of(name: str, side: int, sizes: Sizes, device: str, **options: Any) -> Iterator[Any]:
    images = Images(4 * sizes.batch, side, sizes.classes, device)
    with ElasticTrainer(
        ModelSpec(name, sizes.classes, side).build,
        partial(torch.optim.SGD, lr=1e-3, momentum=0.9),
        images,
        global_batch=sizes.batch,
        collate_fn=images.collate,
        **options,
    ) as trainer:
        yield trainer


def forget_peak(device: str) -> None:
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peak_bytes(device: str) -> float:
    """The most memory that tensors took; 0 without a GPU."""
    return float(torch.cuda.max_memory_allocated()) if device == "cuda" else 0.0


def environment(report: Report, device: str) -> None:
    report.say("## The machine\n")
    with Nvml() as nvml:
        found = nvml.topology()
        for gpu in found.gpus:
            memory = "?" if gpu.memory_bytes is None else f"{gpu.memory_bytes / 2**30:.0f} GiB"
            mig = "on" if gpu.mig else "off"
            report.say(f"- GPU {gpu.index}: {gpu.name}, {memory}, {gpu.nvlinks} NVLinks, MIG {mig}")
        report.say(f"- driver {found.driver}, torch {torch.__version__}, CUDA {torch.version.cuda}")
        report.say(f"- slots: {found.slots}")
        for note in found.notes:
            report.say(f"- {note}")
        if device == "cuda":
            report.check("NVML and CUDA see the same GPUs", same_gpus(nvml), len(nvml.visible()))


def same_gpus(nvml: Nvml) -> bool:
    """Compare by UUID, which torch gives without NVML's prefix."""
    cuda = {str(torch.cuda.get_device_properties(i).uuid) for i in range(torch.cuda.device_count())}
    return cuda <= {(d.uuid or "").partition("-")[2] for d in nvml.visible()}


def steps(report: Report, sizes: Sizes, device: str) -> None:
    report.say("\n## Training steps\n")
    clock = "CUDA events" if device == "cuda" else "monotonic clock"
    report.say(f"| model | image | precision | s/step ({clock}) | spread | images/s | peak GiB |")
    report.say("|---|---|---|---|---|---|---|")
    outcome = []
    for name, full in sizes.models:
        for amp in (None, "bf16", "fp16"):
            outcome += timed_steps(report, sizes, device, (name, sizes.side or full), amp)
    report.say()
    for what, holds, found in outcome:
        report.check(what, holds, found)


def timed_steps(
    report: Report, sizes: Sizes, device: str, model: tuple[str, int], amp: str | None
) -> list[tuple[str, bool, str]]:
    """One line of the table; returns the checks, which come after it."""
    forget_peak(device)
    with trainer_of(*model, sizes, device, amp=amp) as trainer:
        trainer.run(sizes.warmup)
        # A GPU that is slow (or has no bf16) does fewer steps, so that all ends in time.
        count = max(FEWEST_STEPS, min(sizes.steps, int(STEPS_S / trainer.iter_s)))
        trainer.restart_timing(count)
        begin = time.perf_counter()
        loss = trainer.run(count)
        wall_s = time.perf_counter() - begin
        timing = trainer.timing
    shown = f"{model[0]} {amp or 'fp32'}"
    report.say(
        f"| {model[0]} | {model[1]} | {amp or 'fp32'} | {timing.median_s:.4f} | "
        f"{timing.spread_s:.4f} | {sizes.batch / timing.median_s:.0f} | "
        f"{peak_bytes(device) / 2**30:.1f} |"
    )
    # The events leave out only what lies between the steps; there are none on a CPU.
    share = timing.median_s * timing.count / wall_s
    agree = timing.count == count and (0.5 < share < 1.1 or device == "cpu")
    return [
        (f"{shown}: the loss is finite", math.isfinite(loss), f"{loss:.3f}"),
        (f"{shown}: events agree with the wall clock", agree, f"{share:.0%} of it"),
    ]


def counters(report: Report, sizes: Sizes, device: str) -> None:
    name, side = sizes.models[min(1, len(sizes.models) - 1)]
    report.say(f"\n## NVML counters while {name} trains\n")
    forget_peak(device)
    with Nvml() as nvml, trainer_of(name, sizes.side or side, sizes, device) as trainer:
        sampler = Sampler(nvml, period_s=0.2).start()
        end = time.monotonic() + (8 if device == "cuda" else 0)
        trainer.run(FEWEST_STEPS)
        while time.monotonic() < end:
            trainer.run(FEWEST_STEPS)
        used = peak_bytes(device)
        usage = sampler.stop()
        for note in nvml.notes:
            report.say(f"- {note}")
    if usage:
        show_usage(report, usage[0], used)
    else:
        report.check("NVML sees the GPU that CUDA uses", device == "cpu", "nothing to sample")


def show_usage(report: Report, usage: Usage, used_bytes: float) -> None:
    report.say(f"{usage.device}, {usage.samples} samples\n")
    report.say("| figure | mean | max |")
    report.say("|---|---|---|")
    for name, figure in sorted(usage.figures.items()):
        report.say(f"| {name} | {figure.mean:.4g} | {figure.max:.4g} |")
    report.say(f"\nthrottled: {usage.throttled or 'no, or cannot be read'}\n")
    busy, memory = usage.figures.get("utilisation"), usage.figures.get("memory_bytes")
    if busy is not None:
        report.check("the GPU was seen busy", busy.max > 0.3, f"{busy.max:.0%}")
    if memory is not None:
        what = "NVML sees at least the memory that torch has"
        report.check(what, memory.max >= used_bytes * 0.95, f"{memory.max / 2**30:.1f} GiB")


def checkpoints(report: Report, sizes: Sizes, device: str) -> None:
    report.say("\n## Checkpoint and restore\n")
    report.say("| model | bytes | save (s) | restore (s) |")
    report.say("|---|---|---|---|")
    outcome: list[tuple[str, bool, str]] = []
    for name, full in sizes.models:
        side = sizes.side or full
        with tempfile.TemporaryDirectory() as folder:
            with trainer_of(name, side, sizes, device) as trainer:
                trainer.run(sizes.warmup)
                begin = time.perf_counter()
                trainer.save(folder)
                saved_s = time.perf_counter() - begin
                step, expected = trainer.step, trainer.run_losses(2)
            size = sum(f.stat().st_size for f in Path(folder).rglob("*") if f.is_file())
            with trainer_of(name, side, sizes, device) as trainer:
                begin = time.perf_counter()
                restored = trainer.restore(folder)
                restored_s = time.perf_counter() - begin
                losses = trainer.run_losses(2)
        report.say(f"| {name} | {size:,} | {saved_s:.2f} | {restored_s:.2f} |")
        close = all(math.isclose(a, b, rel_tol=0.02) for a, b in zip(expected, losses, strict=True))
        holds = restored == step and close
        outcome.append((f"{name} goes on where it was", holds, f"{expected} then, {losses} now"))
    report.say()
    for what, holds, found in outcome:
        report.check(what, holds, found)


def leases(report: Report, sizes: Sizes, device: str) -> None:
    report.say("\n## Leases: two apps take turns on the GPU\n")
    import ray

    import themis_ray

    begin = time.perf_counter()
    ray.init(address="local", num_gpus=1, include_dashboard=False, log_to_driver=False)
    try:
        # The app worse off alone bids in this preset: the two take turns. The default lets like
        # apps go one after the other.
        themis_ray.start(policy="themis-paper", min_bidders=1, lease_s=sizes.lease_s, grace_s=20.0)
        codes, said = run_drivers(ray.get_runtime_context().gcs_address, sizes.iterations)
        themis_ray.stop()
    finally:
        ray.shutdown()
    report.check("both drivers end well", codes == [0, 0], codes)
    if codes == [0, 0]:
        for text in said:
            show_trial(report, json.loads(text.strip().splitlines()[-1]), sizes, device)
    took_s = time.perf_counter() - begin
    report.say(f"- {took_s:.0f} s in all, Ray's start included; leases of {sizes.lease_s:g} s")


def run_drivers(address: str, iterations: int) -> tuple[list[int | None], list[str]]:
    """Both apps at once: their exit codes and what they printed; None for one that hung."""
    app = str(Path(__file__).with_name("lease_app.py"))
    drivers = [
        subprocess.Popen(
            [sys.executable, app, name, str(iterations)],
            env={**os.environ, "RAY_ADDRESS": address},
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two")
    ]
    deadline, said = time.monotonic() + DRIVERS_S, []
    try:
        for driver in drivers:
            with suppress(subprocess.TimeoutExpired):
                said.append(driver.communicate(timeout=max(0.1, deadline - time.monotonic()))[0])
        return [driver.poll() for driver in drivers], said
    finally:
        for driver in drivers:
            driver.kill()
            driver.wait()


def show_trial(report: Report, last: dict[str, Any], sizes: Sizes, device: str) -> None:
    held = (last["gpus"], last["nodes"], last["unit"], last["cuda"])
    report.check(
        "a trial did all its iterations, on one GPU at a time that current_lease() names",
        last["i"] == sizes.iterations and held == (1, 1, "GPU", int(device == "cuda")),
        f"{last['i']} iterations, {last['seconds_left']:.1f} s left, should_checkpoint() in "
        f"{last['asked_s'] * 1e6:.1f} µs",
    )
    moved = last["processes"] > 1
    report.check("it went on from its checkpoint in a later lease", moved, last["processes"])


def profile(report: Report, sizes: Sizes, device: str) -> None:
    """The command, on one GPU: a Ray worker that trains on CUDA, timed."""
    name = sizes.models[min(1, len(sizes.models) - 1)][0]
    report.say(f"\n## themis profile {name}\n")
    counts = ["--gpus", "1", "--iterations", "10", "--batch", str(sizes.batch), "--num-gpus", "1"]
    with tempfile.TemporaryDirectory() as folder:
        file = ["--output", str(Path(folder) / "p.yaml"), "--json"]
        done = subprocess.run(
            [sys.executable, "-m", "themis_ray", "profile", name, *counts, *file],
            env={**os.environ, "RAY_TMPDIR": folder},
            stdout=subprocess.PIPE,
            text=True,
            timeout=DRIVERS_S,
        )
    said = json.loads(done.stdout)
    if "error" in said:
        report.check("it measures one GPU", False, said["error"]["message"])
        return
    trained_on = said["settings"]["device"]
    (one,) = said["measured"]
    report.check("it trains on the GPU", trained_on == device, trained_on)
    report.say(f"- {one['iter_s']:.4f} s a step, skew {said['skew']:.1%}")


PARTS = {part.__name__: part for part in (steps, counters, checkpoints, leases, profile)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu", action="store_true", help="try the script itself, at toy sizes")
    parser.add_argument("--only", choices=PARTS, action="append", help="this part; repeatable")
    asked = parser.parse_args()
    if not asked.cpu and not torch.cuda.is_available():
        print("no CUDA GPU that torch can use; see nvidia-smi and `themis doctor`", file=sys.stderr)
        return 2
    device, sizes = ("cpu", TOY) if asked.cpu else ("cuda", Sizes())
    report, begin = Report(), time.perf_counter()
    environment(report, device)
    for name in asked.only or PARTS:
        try:
            PARTS[name](report, sizes, device)
        except Exception as error:  # the other parts are worth having all the same
            traceback.print_exc()
            report.check(f"{name}: all of it ran", False, f"{type(error).__name__}: {error}")
    report.say(f"\n{time.perf_counter() - begin:.0f} s in all; {len(report.failed)} checks failed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
