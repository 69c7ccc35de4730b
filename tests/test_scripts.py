"""Scripts that the tests do not run: what they import of this package is there."""

from __future__ import annotations

import ast
import importlib
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted(
    script
    for folder in ("examples", "tests/benchmarks", "tests/gpu")
    for script in (ROOT / folder).glob("*.py")
)


def imports(script: Path) -> list[tuple[str, str]]:
    """``(module, name)`` of each import of this package, those within functions too."""
    return [
        (node.module, alias.name)
        for node in ast.walk(ast.parse(script.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("themis_ray")
        for alias in node.names
        if node.module
    ]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_what_scripts_import_is_there(script: Path) -> None:
    for module, name in imports(script):
        found = hasattr(importlib.import_module(module), name)
        assert found or find_spec(f"{module}.{name}"), f"{script.name}: {module}.{name}"


def test_scripts_import_something() -> None:
    assert sum(len(imports(script)) for script in SCRIPTS) > 20
