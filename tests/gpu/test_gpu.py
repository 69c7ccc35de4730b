"""The GPU check as a test, where there is a GPU; elsewhere its parts without Ray, at toy sizes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torchvision")

CHECK = Path(__file__).with_name("gpu_check.py")


def check(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(CHECK), *options], capture_output=True, text=True)


def gpus_here() -> int:
    """GPUs that torch can use; asked in a process of its own, since CUDA is not started in this."""
    if not list(Path("/dev").glob("nvidia[0-9]*")):
        return 0
    code = "import torch; print(torch.cuda.device_count())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return int(done.stdout) if done.returncode == 0 else 0


def test_all_checks_hold() -> None:
    if not gpus_here():
        pytest.skip("no NVIDIA GPU here: run tests/gpu/check.sh where there is one")
    done = check()
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_check_itself_runs_without_a_gpu() -> None:
    parts = ("steps", "counters", "checkpoints")
    done = check("--cpu", *(f"--only={part}" for part in parts))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "squeezenet1_1 goes on where it was" in done.stdout
    assert done.stdout.endswith("0 checks failed\n")
