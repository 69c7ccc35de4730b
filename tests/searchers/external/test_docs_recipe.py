"""The search without Tune in ``docs/adapters.md`` runs as printed, in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

DOCS = Path(__file__).parents[3] / "docs" / "adapters.md"

# What the page leaves to the reader: a loss that explodes at a rate of 0.1.
BODIES = {
    "__init__(self, lr, saved)": "self.lr, self.loss = lr, saved or 1.0",
    "step(self)": "self.loss *= 1.8 if self.lr > 0.05 else 0.9; return self.loss",
    "save(self)": "return self.loss",
}
AFTERWARDS = """
import sys
print({job.id: job.iterations_done for job in app._known.values()})
print(sorted(name for name in sys.modules if name.startswith("ray.tune")))
"""


def test_it_runs_and_does_not_load_tune(arbiter: Callable[..., Any], tmp_path: Path) -> None:
    arbiter()
    [recipe] = re.findall(
        r"```python\n(from concurrent\.futures .*?)```", DOCS.read_text(), re.DOTALL
    )
    assert len(recipe.splitlines()) < 60
    for method, body in BODIES.items():
        recipe, count = re.subn(
            rf"def {re.escape(method)}: \.\.\.", f"def {method}: {body}", recipe
        )
        assert count == 1
    script = tmp_path / "grid.py"
    script.write_text(recipe + AFTERWARDS)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)],
        env={**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # 1.8 to the 4th is the first loss above 10.
    assert done.stdout.splitlines() == ["{'lr=0.1': 4.0, 'lr=0.01': 50.0, 'lr=0.001': 50.0}", "[]"]
