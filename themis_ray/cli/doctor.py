"""``themis doctor``: is everything here that themis needs, and what mends what is not.

Only what is required fails the command. What is optional (a GPU, an extra, a running arbiter) is
reported in one plain line with its remedy.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import typer

from themis_ray.cli.options import JsonOption
from themis_ray.cli.output import print_json
from themis_ray.errors import ThemisError, UnsupportedRayError

Outcome = Literal["ok", "note", "fail"]

MINIMUM_PYTHON = (3, 11)
# Leases and notices are told in seconds; a coarser clock than this would show.
COARSEST_CLOCK_S = 0.01
# Import name, distribution, the extra that brings it and what it is for.
EXTRAS = (
    ("torch", "torch", "workloads", "the bundled PyTorch jobs"),
    ("torchvision", "torchvision", "workloads", "the bundled PyTorch jobs"),
    ("mlflow", "mlflow", "mlflow", "r per trial in MLflow"),
    ("plotly", "plotly", "plot", "figures"),
)


@dataclass(frozen=True, slots=True)
class Check:
    """What one check found; ``fail`` only for what is required."""

    name: str
    outcome: Outcome
    found: str
    remedy: str = ""


def check_python() -> Check:
    """Python is new enough."""
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < MINIMUM_PYTHON:
        wanted = ".".join(map(str, MINIMUM_PYTHON))
        return Check("python", "fail", found, f"use Python {wanted} or newer")
    return Check("python", "ok", found)


def check_ray() -> Check:
    """Ray with Tune can be imported and is new enough."""
    from themis_ray.live.ray_version import check_ray_version

    try:
        found = check_ray_version()
        import_module("ray.tune")
    except UnsupportedRayError as error:
        return Check("ray", "fail", str(error), "pip install -U 'ray[tune]>=2.60'")
    except Exception as error:
        return Check("ray", "fail", f"cannot be imported: {error}", "pip install 'ray[tune]>=2.60'")
    return Check("ray", "ok", found)


def check_rpc() -> Check:
    """The gRPC and protobuf that are installed can load the protocol's generated code."""
    try:
        found = f"grpcio {version('grpcio')}, protobuf {version('protobuf')}"
        import_module("grpc")
        import_module("themis_ray.rpc._generated.themis_pb2_grpc")
    except Exception as error:
        # Generated code refuses an older runtime with errors of several kinds.
        return Check("grpc", "fail", str(error), "pip install -U grpcio protobuf")
    return Check("grpc", "ok", found)


def check_nvml() -> Check:
    """NVML answers, so that GPU use can be profiled; every refusal of it is one plain line."""
    from themis_ray.profiling.nvml import Nvml

    with Nvml() as nvml:
        if not nvml.available:
            remedy = (
                "pip install nvidia-ml-py"
                if find_spec("pynvml") is None
                else "S(G) comes from step times instead of NVML; with GPUs, check the driver "
                "(nvidia-smi)"
            )
            return Check("nvml", "note", "; ".join(nvml.notes), remedy)
        gpus = len(nvml.devices())
        for device in nvml.devices():
            nvml.sample(device)
        found = f"{_counted(gpus, 'GPU')}, driver {nvml.driver or 'unknown'}"
        if nvml.notes:
            remedy = "what cannot be read is left out of reports; the rest is used"
            return Check("nvml", "note", "; ".join([found, *nvml.notes]), remedy)
    return Check("nvml", "ok", found)


def check_topology() -> Check:
    """What lies between this machine's GPUs, and the slots that make of it."""
    from themis_ray.profiling.nvml import Nvml

    with Nvml() as nvml:
        topology = nvml.topology()
    if not topology.gpus:
        return Check("topology", "note", "no GPU that NVML sees", "none needed without GPUs")
    names = Counter(gpu.name or "unnamed GPU" for gpu in topology.gpus)
    lines = [", ".join(f"{count} x {name}" for name, count in names.items())]
    if len(topology.gpus) > 1:
        groups = " | ".join(" ".join(map(str, group)) for group in topology.groups())
        lines.append(f"{_counted(topology.slots, 'slot')} by {topology.kind.words}: {groups}")
    sliced = [gpu for gpu in topology.gpus if gpu.mig]
    if sliced:
        instances = sum(len(gpu.instances) for gpu in sliced)
        lines.append(f"MIG on GPU {', '.join(str(g.index) for g in sliced)}: {instances} instances")
        return Check(
            "topology",
            "note",
            "; ".join(lines),
            "Ray leases whole GPUs; give it the instances by CUDA_VISIBLE_DEVICES and --num-gpus",
        )
    return Check("topology", "ok", "; ".join(lines))


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def check_clock() -> Check:
    """The monotonic clock is fine enough; hosts need not agree, since only durations are sent."""
    info = time.get_clock_info("monotonic")
    found = f"resolution {info.resolution:g} s"
    if not info.monotonic or info.resolution > COARSEST_CLOCK_S:
        return Check("clock", "fail", found, "use a host with a monotonic clock of 10 ms or finer")
    return Check("clock", "ok", found)


def check_extra(package: str, distribution: str, extra: str, what_for: str) -> Check:
    """An optional package is there; it is not imported, which can take seconds."""
    try:
        return Check(package, "ok", version(distribution))
    except PackageNotFoundError:
        return Check(
            package,
            "note",
            f"not installed; only {what_for} need{'' if what_for.endswith('s') else 's'} it",
            f"pip install 'themis_ray[{extra}]'",
        )


def check_access() -> Check:
    """Ray's token authentication: another driver joins only with the cluster's mode and token."""
    mode = os.environ.get("RAY_AUTH_MODE")
    token = _token_source()
    if mode not in (None, "token", "disabled"):
        return Check("access", "fail", f"RAY_AUTH_MODE={mode}", "use token or disabled")
    if mode == "disabled":
        return Check("access", "ok", "RAY_AUTH_MODE=disabled: drivers join without a token")
    if mode == "token" and token is None:
        return Check(
            "access",
            "fail",
            "RAY_AUTH_MODE=token, but there is no token",
            f"copy the head's token to {_token_path()}, or point RAY_AUTH_TOKEN_PATH at it",
        )
    if mode == "token":
        return Check("access", "ok", f"RAY_AUTH_MODE=token, token from {token}")
    return Check(
        "access",
        "note",
        f"RAY_AUTH_MODE is not set; token: {token or 'none'}",
        "a driver that names a cluster's address needs RAY_AUTH_MODE=token and the head's token "
        "(or RAY_AUTH_MODE=disabled on both sides)",
    )


def _token_path() -> Path:
    return Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")


def _token_source() -> str | None:
    if os.environ.get("RAY_AUTH_TOKEN"):
        return "RAY_AUTH_TOKEN"
    path = _token_path()
    return str(path) if path.is_file() else None


def check_arbiter() -> Check:
    """Whether an arbiter answers; that none runs is no fault."""
    remedy = "themis start, or let ThemisScheduler start one"
    try:
        from themis_ray.live import client

        with client.joined():
            document = client.status()
    except ThemisError as error:
        return Check("arbiter", "note", str(error), remedy)
    except Exception as error:
        return Check("arbiter", "note", f"{type(error).__name__}: {error}", remedy)
    apps, nodes = document.get("apps") or (), document.get("nodes") or ()
    return Check(
        "arbiter", "ok", f"policy {document.get('policy')}, {len(apps)} apps, {len(nodes)} nodes"
    )


def checks() -> list[Callable[[], Check]]:
    """All checks, in order."""
    return [
        check_python,
        check_ray,
        check_rpc,
        check_nvml,
        check_topology,
        check_clock,
        *(lambda extra=extra: check_extra(*extra) for extra in EXTRAS),
        check_access,
        check_arbiter,
    ]


def doctor(
    json_: JsonOption = False,
) -> None:
    """Check this machine; exits 1 when something required is broken."""
    results = [check() for check in checks()]
    healthy = all(result.outcome != "fail" for result in results)
    if json_:
        print_json({"healthy": healthy, "checks": [asdict(result) for result in results]})
    else:
        _print_table(results)
    if not healthy:
        raise typer.Exit(1)


def _print_table(results: list[Check]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    styles = {"ok": "green", "note": "yellow", "fail": "bold red"}
    table = Table("Check", "", "Found", "What mends it")
    for result in results:
        table.add_row(
            result.name,
            Text(result.outcome, style=styles[result.outcome]),
            Text(result.found),
            Text(result.remedy),
        )
    Console().print(table)
