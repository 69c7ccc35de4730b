"""The version of the code that a run depends on: a digest of the modules that it may import.

Policies are one file each, and which one a run uses is known: a change of one policy leaves the
outcomes of the others valid.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from themis_ray.core.policies import POLICIES

ROOT = "themis_ray"
ENTRY = "themis_ray.reproduce.runs"
# Imports every policy; what a run uses of it is followed from the policy's own module.
REGISTRY = "themis_ray.core.policies"
# Say what is run, not how.
NOT_OF_RUNS = frozenset({"themis_ray.reproduce.code_version", "themis_ray.errors"})


@cache
def code_version(policy: str) -> str:
    """A digest of the source text of all modules that a run under ``policy`` depends on."""
    digest = hashlib.sha256()
    for module in sorted(modules(ENTRY) | modules(POLICIES[policy].__module__)):
        digest.update(module.encode() + b"\0" + _source(module).encode() + b"\0")
    return digest.hexdigest()


@cache
def modules(entry: str) -> frozenset[str]:
    """A module and all modules of this package that it imports, directly or not."""
    found: set[str] = set()
    todo = [entry]
    while todo:
        name = todo.pop()
        if name in found or name == REGISTRY or name in NOT_OF_RUNS:
            continue
        found.add(name)
        todo.extend(_imports(name))
    return frozenset(found)


@cache
def _imports(module: str) -> tuple[str, ...]:
    return tuple(_imported(ast.parse(_source(module))))


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            # ``from package import module`` names a module, too.
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            if name.split(".")[0] == ROOT and name != ROOT and _file(name) is not None:
                yield name


@cache
def _file(module: str) -> Path | None:
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:  # ``from module import name``: no package
        return None
    return None if spec is None or spec.origin is None else Path(spec.origin)


@cache
def _source(module: str) -> str:
    file = _file(module)
    assert file is not None
    return file.read_text(encoding="utf-8")
