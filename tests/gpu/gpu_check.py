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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    iterations: int = 40
    lease_s: float = 8.0


# To try the script itself: nothing that it prints then is of any interest.
TOY = Sizes(2, 1, 2, 32, (("squeezenet1_1", 32),), 10, 60)


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


def peak_bytes(device: str) -> float:
    return float(torch.cuda.max_memory_allocated()) if device == "cuda" else math.nan


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
    report.say(
        "| model | image | precision | s/step (CUDA events) | spread | images/s | peak GiB |"
    )
    report.say("|---|---|---|---|---|---|---|")
    outcome: list[tuple[str, bool, str]] = []
    for name, full in sizes.models:
        for amp in (None, "bf16", "fp16"):
            if device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            side = sizes.side or full
            with trainer_of(name, side, sizes, device, amp=amp) as trainer:
                trainer.run(sizes.warmup)
                trainer.restart_timing(sizes.steps)
                begin = time.perf_counter()
                loss = trainer.run(sizes.steps)
                wall_s = time.perf_counter() - begin
                timing = trainer.timing
            shown = f"{name} {amp or 'fp32'}"
            report.say(
                f"| {name} | {side} | {amp or 'fp32'} | {timing.median_s:.4f} | "
                f"{timing.spread_s:.4f} | {sizes.batch / timing.median_s:.0f} | "
                f"{peak_bytes(device) / 2**30:.1f} |"
            )
            share = timing.median_s * timing.count / wall_s
            outcome.append((f"{shown}: the loss is finite", math.isfinite(loss), f"{loss:.3f}"))
            # The events leave out only what lies between the steps.
            holds = timing.count == sizes.steps and 0.5 < share < 1.1
            outcome.append(
                (f"{shown}: events agree with the wall clock", holds, f"{share:.0%} of it")
            )
    report.say()
    for what, holds, found in outcome:
        report.check(what, holds, found)


def counters(report: Report, sizes: Sizes, device: str) -> None:
    report.say("\n## NVML counters under load (ResNet50)\n")
    name, side = sizes.models[min(1, len(sizes.models) - 1)]
    with Nvml() as nvml, trainer_of(name, sizes.side or side, sizes, device) as trainer:
        sampler = Sampler(nvml, period_s=0.2).start()
        end = time.monotonic() + (8 if device == "cuda" else 0)
        while True:
            trainer.run(sizes.steps)
            if time.monotonic() > end:
                break
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


def train(config: dict[str, Any]) -> None:
    """A trial that tells what its lease says and what its process sees."""
    from ray import tune

    import themis_ray

    state: dict[str, Any] = {"i": 0, "processes": 0}
    start = tune.get_checkpoint()
    if start is not None:
        with start.as_directory() as folder:
            state = torch.load(Path(folder) / "state.pt", weights_only=True)
    state["processes"] += 1
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.ones(512, 512, device=device)
    while state["i"] < config["iterations"]:
        x = (x @ x).tanh()
        float(x.sum())
        time.sleep(0.5)
        state["i"] += 1
        lease = themis_ray.current_lease()
        assert lease is not None
        begin = time.perf_counter()
        lease.should_checkpoint()
        asked_s = time.perf_counter() - begin
        report = {
            **state,
            "loss": float(x.mean()),
            "gpus": lease.gpus,
            "nodes": len(lease.nodes),
            "unit": lease.unit,
            "seconds_left": lease.seconds_left,
            "asked_s": asked_s,
            "cuda": torch.cuda.device_count(),
        }
        with tempfile.TemporaryDirectory() as folder:
            torch.save(state, Path(folder) / "state.pt")
            tune.report(report, checkpoint=tune.Checkpoint.from_directory(folder))


def drive(app: str, iterations: int) -> None:
    """An app of one trial, in a driver of its own; prints what its trial last reported."""
    from ray import tune

    import themis_ray

    with tempfile.TemporaryDirectory() as folder:
        analysis = tune.run(
            tune.with_resources(train, {"cpu": 1, "gpu": 1}),
            config={"iterations": iterations},
            scheduler=themis_ray.ThemisScheduler(app=app, iterations_per_trial=iterations),
            storage_path=folder,
            verbose=0,
        )
    (trial,) = analysis.trials
    wanted = ("i", "processes", "gpus", "nodes", "unit", "seconds_left", "asked_s", "cuda")
    print(json.dumps({name: trial.last_result[name] for name in wanted}))


def leases(report: Report, sizes: Sizes, device: str) -> None:
    report.say("\n## Leases: two apps take turns on the GPU\n")
    import ray

    import themis_ray

    begin = time.perf_counter()
    ray.init(num_gpus=1, include_dashboard=False, log_to_driver=False)
    try:
        themis_ray.start(lease_s=sizes.lease_s, grace_s=20.0)
        environ = {**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
        command = [sys.executable, __file__, "--iterations", str(sizes.iterations), "--driver"]
        drivers = [
            subprocess.Popen([*command, app], env=environ, stdout=subprocess.PIPE, text=True)
            for app in ("one", "two")
        ]
        said = [driver.communicate(timeout=600)[0] for driver in drivers]
        codes = [driver.returncode for driver in drivers]
        themis_ray.stop()
    finally:
        ray.shutdown()
    report.check("both drivers end well", codes == [0, 0], codes)
    if codes == [0, 0]:
        for last in (json.loads(text.strip().splitlines()[-1]) for text in said):
            show_trial(report, last, sizes, device)
    took_s = time.perf_counter() - begin
    report.say(f"- {took_s:.0f} s in all, Ray's start included; leases of {sizes.lease_s:g} s")


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu", action="store_true", help="try the script itself, at toy sizes")
    parser.add_argument("--driver", metavar="APP", help=argparse.SUPPRESS)
    parser.add_argument("--iterations", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.driver:
        drive(chosen.driver, chosen.iterations)
        return 0
    if not chosen.cpu and not torch.cuda.is_available():
        print("no CUDA GPU that torch can use; see nvidia-smi and `themis doctor`", file=sys.stderr)
        return 2
    device, sizes = ("cpu", TOY) if chosen.cpu else ("cuda", Sizes())
    report, begin = Report(), time.perf_counter()
    parts: tuple[Callable[[], None], ...] = (
        lambda: environment(report, device),
        lambda: steps(report, sizes, device),
        lambda: counters(report, sizes, device),
        lambda: checkpoints(report, sizes, device),
        lambda: leases(report, sizes, device),
    )
    for part in parts:
        part()
    report.say(f"\n{time.perf_counter() - begin:.0f} s in all; {len(report.failed)} checks failed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
