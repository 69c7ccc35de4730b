from __future__ import annotations

import subprocess
import sys


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, themis_ray.workloads as w; print('torch' in sys.modules, sorted(w.__all__))"
    assert python(code).startswith("False ['DatasetSpec'")


def test_without_torch_the_error_says_what_to_install() -> None:
    code = """
import sys
sys.modules["torch"] = None
import themis_ray.workloads
from themis_ray.errors import MissingExtraError
for name in ("ElasticTrainer", "load_checkpoint", "ModelSpec"):
    try:
        getattr(themis_ray.workloads, name)
    except MissingExtraError as error:
        print(error)
"""
    assert (
        python(code).splitlines()
        == ["torch is not installed; mend it with: pip install 'themis_ray[workloads]'"] * 3
    )


def test_an_unknown_name_is_an_attribute_error() -> None:
    code = """
import themis_ray.workloads
try:
    themis_ray.workloads.Trainer
except AttributeError as error:
    print(error)
"""
    assert "has no attribute 'Trainer'" in python(code)
