"""Checkpoints that are whole or absent, whatever kills the writer.

A checkpoint of step 120 is a payload, ``step-000000120-<random>.pt`` (what ``torch.save`` wrote),
or several of them, its shards, and ``step-000000120.json`` (its manifest: format, step, and each
file's length and CRC-32). On a disk each is written to a temporary name, flushed and renamed; the
manifest comes last. A payload without a manifest is therefore an unfinished checkpoint, and a
payload that differs from its manifest is a damaged one; neither is ever loaded. A folder has one
writer at a time.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import pickle
import re
import secrets
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import torch

from ..errors import CheckpointError
from .snapshot import put_back
from .storage import Folder, LocalFolder, open_folder

_log = logging.getLogger(__name__)

_SINGLE, _SHARDED = 1, 2
"""Formats: one payload; one that holds the structure and further ones that hold tensors."""

_MANIFEST = re.compile(r"step-(\d+)\.json")
_OURS = re.compile(r"step-\d+(-[0-9a-f]+(\.s\d+)?)?\.(pt|json)(\.partial)?")
_CHUNK_BYTES = 1 << 22

Sums = tuple[int, int]
"""A file's length in bytes and its CRC-32."""


class Memory(Protocol):
    """Keeps payloads in a node's memory; see :mod:`.memory`."""

    def put(self, name: str, payload: Any) -> None:
        """Keep the bytes of a payload."""

    def get(self, name: str) -> Any:
        """The bytes of a payload, ``None`` when they are not there."""


@dataclass(frozen=True)
class LoadedCheckpoint:
    """A verified checkpoint.

    Attributes:
        step: Training steps it holds.
        path: The manifest it was read from.
        state: What was passed to :func:`save_checkpoint`, on the CPU.
        from_memory: Whether the payload came from the node's memory.
    """

    step: int
    path: Path
    state: dict[str, Any]
    from_memory: bool = False


@dataclass(frozen=True)
class _Manifest:
    """A parsed manifest: the step, and each file's length and CRC-32, the main payload first."""

    step: int
    files: dict[str, Sums]


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
    directory: str | Path,
    state: Mapping[str, Any],
    step: int,
    keep: int = 2,
    *,
    filesystem: Any = None,
    memory: Memory | None = None,
) -> Path:
    """Write a checkpoint of a step; older ones go only when it is safely stored.

    Args:
        directory: Folder of the checkpoints, a path or a URI; made when absent.
        state: Tensors, numbers, strings, lists and dicts.
        step: Training steps done so far.
        keep: How many whole checkpoints to leave in the folder.
        filesystem: A pyarrow or fsspec file system that ``directory`` is a path in.
        memory: Where to keep the payload as well.

    Returns:
        The manifest's path.

    Raises:
        CheckpointError: The disk is full or the folder cannot be written.
        ConfigError: Nothing serves the URI.
    """
    folder = open_folder(directory, filesystem)
    # A name of its own, so that saving a step again leaves the good payload alone until the end.
    name = payload_name(step, secrets.token_hex(4))
    sums = write_payload(folder, name, dict(state), memory)
    return commit(folder, step, {name: sums}, keep)


def payload_name(step: int, token: str, shard: int = 0) -> str:
    """Name of a payload; shard 0 holds the structure."""
    suffix = f".s{shard:03d}" if shard else ""
    return f"step-{step:09d}-{token}{suffix}.pt"


def write_payload(folder: Folder, name: str, content: Any, memory: Memory | None = None) -> Sums:
    """Write a payload, which counts for nothing until :func:`commit` names it.

    Raises:
        CheckpointError: The storage failed.
    """
    try:
        folder.prepare()
        if memory is not None:
            return _write_through_memory(folder, name, content, memory)
        with folder.create(name) as file:
            summed = _ChecksummedFile(file)
            torch.save(content, summed)
    except OSError as error:
        raise CheckpointError(
            f"cannot write the checkpoint {folder.path(name)}: {error}"
        ) from error
    return summed.length, summed.crc32


def _write_through_memory(folder: Folder, name: str, content: Any, memory: Memory) -> Sums:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    payload = buffer.getbuffer()
    with folder.create(name) as file:
        file.write(payload)
    memory.put(name, payload)
    return payload.nbytes, zlib.crc32(payload)


def commit(folder: Folder, step: int, files: Mapping[str, Sums], keep: int) -> Path:
    """Make written payloads a checkpoint, and drop old ones.

    Args:
        folder: Where the payloads lie.
        step: Training steps done so far.
        files: Each payload's sums, the main one first.
        keep: How many whole checkpoints to leave.

    Returns:
        The manifest's path.
    """
    manifest = f"step-{step:09d}.json"
    entries = {name: {"bytes": size, "crc32": crc32} for name, (size, crc32) in files.items()}
    kind = _SINGLE if len(files) == 1 else _SHARDED
    text = json.dumps({"format": kind, "step": step, "files": entries})
    try:
        with folder.create(manifest) as file:
            file.write(text.encode())
        folder.sync()
        _remove_old(folder, keep)
    except OSError as error:
        raise CheckpointError(
            f"cannot write the checkpoint {folder.path(manifest)}: {error}"
        ) from error
    return Path(folder.path(manifest))


def load_checkpoint(
    directory: str | Path, *, filesystem: Any = None, memory: Memory | None = None
) -> LoadedCheckpoint:
    """Load the newest whole checkpoint of a folder.

    One that is damaged is passed over for the previous one, with a warning.

    Args:
        directory: Folder of the checkpoints, a path or a URI.
        filesystem: A pyarrow or fsspec file system that ``directory`` is a path in.
        memory: Where to look for payloads first; what is found there is verified as well.

    Raises:
        CheckpointError: There is none, or none is whole; the message names each path.
        ConfigError: Nothing serves the URI.
    """
    folder = open_folder(directory, filesystem)
    try:
        manifests = _manifests(folder)
    except OSError as error:
        raise CheckpointError(f"cannot list the checkpoints in {folder}: {error}") from error
    if not manifests:
        raise CheckpointError(
            f"no complete checkpoint in {folder}: check that the path is right and, with several "
            "nodes, that the storage is one that all of them see"
        )
    problems: list[str] = []
    for manifest in manifests:
        try:
            return _load(folder, manifest, memory)
        except CheckpointError as error:
            _log.warning("%s; trying the previous checkpoint", error)
            problems.append(str(error))
    raise CheckpointError(f"no usable checkpoint in {folder}: " + "; ".join(problems))


def list_checkpoints(directory: str | Path, filesystem: Any = None) -> list[Path]:
    """Manifests in a folder, the newest step first."""
    folder = open_folder(directory, filesystem)
    return [Path(folder.path(name)) for name in _manifests(folder)]


def _manifests(folder: Folder) -> list[str]:
    found = [name for name in folder.names() if _MANIFEST.fullmatch(name)]
    return sorted(found, key=_step_of, reverse=True)


def _step_of(manifest: str) -> int:
    match = _MANIFEST.fullmatch(manifest)
    assert match is not None
    return int(match.group(1))


def _remove_old(folder: Folder, keep: int) -> None:
    """Drop checkpoints beyond the newest ``keep``, and what killed writers left behind."""
    kept: set[str] = set()
    for manifest in _manifests(folder)[: max(1, keep)]:
        # A manifest nobody can read keeps no payload; the loader passes over it as well.
        with contextlib.suppress(CheckpointError):
            kept |= {manifest, *_parse(folder, manifest).files}
    for name in folder.names():
        if _OURS.fullmatch(name) and name not in kept:
            folder.remove(name)


def _parse(folder: Folder, manifest: str) -> _Manifest:
    where = folder.path(manifest)
    try:
        with folder.open(manifest) as file:
            described = json.loads(file.read())
        version, step = described["format"], int(described["step"])
        entries = dict(described["files"]).items()
        files = {str(name): (int(e["bytes"]), int(e["crc32"])) for name, e in entries}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"the checkpoint manifest {where} is damaged: {error}") from error
    if version not in (_SINGLE, _SHARDED):
        raise CheckpointError(
            f"the checkpoint {where} has format {version}, this version reads {_SINGLE} and "
            f"{_SHARDED}: resume with the version of themis_ray that wrote it"
        )
    right_number = len(files) == 1 if version == _SINGLE else len(files) > 1
    if not right_number or not all(_OURS.fullmatch(name) for name in files):
        # Names from a file on shared storage must not lead out of its folder.
        raise CheckpointError(f"the checkpoint manifest {where} is damaged: files {list(files)}")
    return _Manifest(step, files)


def _load(folder: Folder, manifest: str, memory: Memory | None) -> LoadedCheckpoint:
    parsed = _parse(folder, manifest)
    contents, remembered = [], True
    for name, sums in parsed.files.items():
        payload = _remembered(name, sums, memory)
        remembered = remembered and payload is not None
        if payload is not None:
            contents.append(_read(io.BytesIO(payload), name))
            continue
        contents.append(_read_stored(folder, name, sums))
    state, *shards = contents
    for shard in shards:
        for path, tensor in shard:
            put_back(state, tuple(path), tensor)
    return LoadedCheckpoint(parsed.step, Path(folder.path(manifest)), state, remembered)


def _remembered(name: str, wanted: Sums, memory: Memory | None) -> Any:
    """A payload from the node's memory, if it is there and undamaged."""
    payload = memory.get(name) if memory is not None else None
    if payload is None:
        return None
    if (memoryview(payload).nbytes, zlib.crc32(payload)) != wanted:
        _log.warning(
            "the copy of %s in this node's memory is damaged; reading the stored one", name
        )
        return None
    return payload


def _read_stored(folder: Folder, name: str, wanted: Sums) -> Any:
    """Read a payload that has the length and the CRC-32 of its manifest."""
    path = folder.path(name)
    try:
        length = folder.size(name)
        if length != wanted[0]:
            raise CheckpointError(
                f"the checkpoint {path} is torn: {length} bytes of {wanted[0]} are there"
            )
        with folder.open(name) as file:
            # What comes over a network is fetched once.
            source: Any = file if isinstance(folder, LocalFolder) else io.BytesIO(file.read())
            if _crc32_of(source) != wanted[1]:
                raise CheckpointError(f"the checkpoint {path} is damaged: its CRC-32 is wrong")
            source.seek(0)
            return _read(source, path)
    except OSError as error:
        raise CheckpointError(f"cannot read the checkpoint {path}: {error}") from error


def _crc32_of(file: Any) -> int:
    crc32 = 0
    while chunk := file.read(_CHUNK_BYTES):
        crc32 = zlib.crc32(chunk, crc32)
    return crc32


def _read(file: Any, path: str) -> Any:
    try:
        # weights_only: a checkpoint from shared storage must not be able to run code.
        return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"the checkpoint {path} holds more than tensors and plain values; allow the classes "
            f"of your own with torch.serialization.add_safe_globals: {error}"
        ) from error
    except (RuntimeError, EOFError) as error:
        raise CheckpointError(f"cannot read the checkpoint {path}: {error}") from error
