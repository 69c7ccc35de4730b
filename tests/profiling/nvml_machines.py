"""Machines for the stand-in of NVML, in the notation of nvml_standin.c."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pynvml
import pytest

Machine = Callable[[Iterable[str]], Path]

SOURCE = Path(__file__).with_name("nvml_standin.c")
NO_PERMISSION, NOT_SUPPORTED, UNKNOWN, LOST, MISMATCH = 4, 3, 999, 15, 18
NO_FUNCTION = 13
PIX, PXB, PHB, NODE, SYS = 10, 20, 30, 40, 50


def compiler() -> str | None:
    """The system's C compiler, if it has one."""
    return shutil.which("cc") or shutil.which("gcc")


def build(folder: Path, *options: str) -> Path:
    """Compile the stand-in under the name by which pynvml loads the library."""
    library = folder / "libnvidia-ml.so.1"
    soname = "-Wl,-soname,libnvidia-ml.so.1"
    cc = compiler()
    assert cc is not None
    command = [cc, "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", soname, *options]
    subprocess.run([*command, "-o", str(library), str(SOURCE)], check=True)
    return library


def load(patch: pytest.MonkeyPatch, library: Path) -> Any:
    """Have pynvml use a library, for this test only."""
    lib = ctypes.CDLL(str(library))
    patch.setattr(pynvml, "nvmlLib", lib)
    patch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return lib


def bus(index: int) -> str:
    return f"00000000:{0x10 + index:02X}:00.0"


def gpus(count: int) -> list[str]:
    return [f"gpu {i} {bus(i)} Stand-in {i}" for i in range(count)]


def nvlinks(pairs: Iterable[tuple[int, int]]) -> list[str]:
    """Direct links, both ends of each, as lower-case addresses with short domains."""
    used: dict[int, int] = {}
    lines = []
    for a, b in pairs:
        for here, there in ((a, b), (b, a)):
            end = bus(there).removeprefix("0000").lower()
            lines.append(f"link {here} {used.get(here, 0)} {end} 0")
            used[here] = used.get(here, 0) + 1
    return lines


def switched(count: int, links: int = 4) -> list[str]:
    """Every GPU linked to an NVSwitch."""
    return [f"link {i} {k} 00000000:C0:00.0 2" for i in range(count) for k in range(links)]


def ancestors(count: int, near: Mapping[int, int], far: int = SYS) -> list[str]:
    """What joins each two GPUs: ``near`` maps a level to the size of its groups, nearest first."""
    lines = []
    for a in range(count):
        for b in range(a + 1, count):
            levels = [level for level, size in near.items() if a // size == b // size]
            lines.append(f"ancestor {a} {b} {levels[0] if levels else far}")
    return lines


def fail(function: str, code: int, index: int = -1, after: int = 0) -> str:
    return f"fail {function} {index} {code} {after}"
