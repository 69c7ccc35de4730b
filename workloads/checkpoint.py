"""Checkpoints that are whole or absent, whatever kills the writer.

A checkpoint of step 120 is two files, ``step-000000120-<random>.pt`` (what ``torch.save`` wrote)
and ``step-000000120.json`` (its manifest: format, step, and each file's length and CRC-32). Each is
written to a temporary name, flushed to the disk and renamed, the manifest last. A payload without a
manifest is therefore an unfinished checkpoint, and a payload that differs from its manifest is a
damaged one; neither is ever loaded. A folder has one writer at a time.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pickle
import re
import secrets
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch

from ..errors import CheckpointError

_log = logging.getLogger(__name__)

_FORMAT = 1
_MANIFEST = re.compile(r"step-(\d+)\.json")
_TEMPORARY = ".partial"
_OURS = re.compile(r"step-\d+(-[0-9a-f]+)?\.(pt|json)(\.partial)?")
_CHUNK_BYTES = 1 << 22


@dataclass(frozen=True)
class LoadedCheckpoint:
    """A verified checkpoint.

    Attributes:
        step: Training steps it holds.
        path: The manifest it was read from.
        state: What was passed to :func:`save_checkpoint`, on the CPU.
    """

    step: int
    path: Path
    state: dict[str, Any]


@dataclass(frozen=True)
class _Manifest:
    """A parsed manifest: the step, and each file's length in bytes and CRC-32."""

    step: int
    files: dict[str, tuple[int, int]]


class _ChecksummedFile:
    """A binary file that counts and sums what is written through it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.length = 0
        self.crc32 = 0

    def write(self, data: Any) -> int:
        self._file.write(data)
        size = memoryview(data).nbytes
        self.length += size
        self.crc32 = zlib.crc32(data, self.crc32)
        return size

    def flush(self) -> None:
        self._file.flush()


def save_checkpoint(
    directory: str | Path, state: Mapping[str, Any], step: int, keep: int = 2
) -> Path:
    """Write a checkpoint of a step; older ones go only when it is safely on the disk.

    Args:
        directory: Folder of the checkpoints; made when absent.
        state: Tensors, numbers, strings, lists and dicts.
        step: Training steps done so far.
        keep: How many whole checkpoints to leave in the folder.

    Returns:
        The manifest's path.

    Raises:
        CheckpointError: The disk is full or the folder cannot be written.
    """
    folder = Path(directory)
    manifest = folder / f"step-{step:09d}.json"
    # A name of its own, so that saving a step again leaves the good payload alone until the end.
    payload = folder / f"step-{step:09d}-{secrets.token_hex(4)}.pt"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        entry = _write_payload(payload, dict(state))
        text = json.dumps({"format": _FORMAT, "step": step, "files": {payload.name: entry}})
        _write_atomically(manifest, text.encode())
        _sync_folder(folder)
    except OSError as error:
        raise CheckpointError(f"cannot write the checkpoint {payload}: {error}") from error
    _remove_old(folder, keep)
    return manifest


def load_checkpoint(directory: str | Path) -> LoadedCheckpoint:
    """Load the newest whole checkpoint of a folder.

    One that is damaged is passed over for the previous one, with a warning.

    Raises:
        CheckpointError: There is none, or none is whole; the message names each path.
    """
    folder = Path(directory)
    manifests = list_checkpoints(folder)
    if not manifests:
        raise CheckpointError(
            f"no complete checkpoint in {folder}: check that the path is right and, with several "
            "nodes, that the storage is one that all of them see"
        )
    problems: list[str] = []
    for manifest in manifests:
        try:
            return _load(manifest)
        except CheckpointError as error:
            _log.warning("%s; trying the previous checkpoint", error)
            problems.append(str(error))
    raise CheckpointError(f"no usable checkpoint in {folder}: " + "; ".join(problems))


def list_checkpoints(directory: str | Path) -> list[Path]:
    """Manifests in a folder, the newest step first."""
    folder = Path(directory)
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if _MANIFEST.fullmatch(path.name)]
    return sorted(found, key=_step_of, reverse=True)


def _step_of(manifest: Path) -> int:
    match = _MANIFEST.fullmatch(manifest.name)
    assert match is not None
    return int(match.group(1))


def _write_payload(payload: Path, state: dict[str, Any]) -> dict[str, int]:
    temporary = payload.with_name(payload.name + _TEMPORARY)
    with temporary.open("wb") as file:
        summed = _ChecksummedFile(file)
        torch.save(state, summed)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(payload)
    return {"bytes": summed.length, "crc32": summed.crc32}


def _write_atomically(path: Path, data: bytes) -> None:
    temporary = path.with_name(path.name + _TEMPORARY)
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _sync_folder(folder: Path) -> None:
    """Make the renames durable: they live in the folder, not in the files."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_old(folder: Path, keep: int) -> None:
    """Drop checkpoints beyond the newest ``keep``, and what killed writers left behind."""
    names: set[str] = set()
    for manifest in list_checkpoints(folder)[: max(1, keep)]:
        # A manifest nobody can read keeps no payload; the loader passes over it as well.
        with contextlib.suppress(CheckpointError):
            names |= {manifest.name, *_parse(manifest).files}
    for path in folder.iterdir():
        if _OURS.fullmatch(path.name) and path.name not in names:
            path.unlink(missing_ok=True)


def _parse(manifest: Path) -> _Manifest:
    try:
        described = json.loads(manifest.read_text())
        version, step = described["format"], int(described["step"])
        entries = dict(described["files"]).items()
        files = {str(name): (int(e["bytes"]), int(e["crc32"])) for name, e in entries}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"the checkpoint manifest {manifest} is damaged: {error}") from error
    if version != _FORMAT:
        raise CheckpointError(
            f"the checkpoint {manifest} has format {version}, this version reads {_FORMAT}: "
            "resume with the version of themis_ray that wrote it"
        )
    if len(files) != 1 or not all(_OURS.fullmatch(name) for name in files):
        # Names from a file on shared storage must not lead out of its folder.
        raise CheckpointError(f"the checkpoint manifest {manifest} is damaged: files {list(files)}")
    return _Manifest(step, files)


def _load(manifest: Path) -> LoadedCheckpoint:
    parsed = _parse(manifest)
    (name, sums), *_ = parsed.files.items()
    payload = manifest.with_name(name)
    _verify(payload, sums)
    return LoadedCheckpoint(parsed.step, manifest, _read(payload))


def _verify(path: Path, wanted: tuple[int, int]) -> None:
    """Compare a file with the length and CRC-32 of its manifest."""
    try:
        length, crc32 = path.stat().st_size, 0
        if length != wanted[0]:
            raise CheckpointError(
                f"the checkpoint {path} is torn: {length} bytes of {wanted[0]} are there"
            )
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                crc32 = zlib.crc32(chunk, crc32)
    except OSError as error:
        raise CheckpointError(f"cannot read the checkpoint {path}: {error}") from error
    if crc32 != wanted[1]:
        raise CheckpointError(f"the checkpoint {path} is damaged: its CRC-32 is wrong")


def _read(payload: Path) -> dict[str, Any]:
    try:
        # weights_only: a checkpoint from shared storage must not be able to run code.
        state: dict[str, Any] = torch.load(payload, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"the checkpoint {payload} holds more than tensors and plain values; allow the classes "
            f"of your own with torch.serialization.add_safe_globals: {error}"
        ) from error
    except (OSError, RuntimeError, EOFError) as error:
        raise CheckpointError(f"cannot read the checkpoint {payload}: {error}") from error
    return state
