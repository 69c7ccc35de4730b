"""Write ``_generated/`` from ``themis.proto``: ``python -m themis_ray.rpc.generate``.

The generated code refuses to run on a grpcio or protobuf older than the one it was generated
with, so generate with the oldest that ``pyproject.toml`` allows::

    pip install "grpcio-tools==1.80.0" "setuptools<81"
    python themis_ray/rpc/generate.py

Run it as a file when this package's own dependencies are not installed, as above.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGE = "themis_ray/rpc/_generated"


def main() -> int:
    """Generate the code; returns protoc's exit status."""
    # Mapping the proto's folder to the output package's path makes protoc write
    # `from themis_ray.rpc._generated import themis_pb2` instead of a top-level import.
    command = [
        *(sys.executable, "-m", "grpc_tools.protoc"),
        f"-I{PACKAGE}={HERE}",
        *(f"--{kind}_out={HERE.parent.parent}" for kind in ("python", "pyi", "grpc_python")),
        f"{PACKAGE}/themis.proto",
    ]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
