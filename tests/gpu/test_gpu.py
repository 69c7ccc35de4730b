"""The GPU check as a test, where there is a GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).with_name("gpu_check.py")


def gpus_here() -> int:
    """GPUs that torch can use; asked in a process of its own, since CUDA is not started in this."""
    code = "import torch; print(torch.cuda.device_count())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return int(done.stdout) if done.returncode == 0 else 0


def test_all_checks_hold() -> None:
    if not list(Path("/dev").glob("nvidia[0-9]*")) or not gpus_here():
        pytest.skip("no NVIDIA GPU here: run tests/gpu/check.sh where there is one")
    done = subprocess.run([sys.executable, str(CHECK)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
