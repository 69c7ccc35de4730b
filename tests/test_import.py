"""Importing the package is quick and brings in nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import themis_ray

HEAVY = ("torch", "mlflow", "plotly", "ray", "grpc", "scipy", "numpy")


def test_the_import_brings_nothing_heavy() -> None:
    code = (
        "import sys, themis_ray\n"
        f"print(sorted(set({HEAVY!r}) & set(sys.modules)))\n"
    )  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    for name in themis_ray.__all__:
        assert getattr(themis_ray, name) is not None
