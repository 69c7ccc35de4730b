"""Where checkpoints lie: a folder on a disk, or on any storage that pyarrow or fsspec can reach."""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from pyarrow import ArrowInvalid, fs  # type: ignore[import-untyped]

from ..errors import ConfigError

TEMPORARY = ".partial"


class Folder(Protocol):
    """A flat folder of files. Failures of the storage are ``OSError``."""

    def prepare(self) -> None:
        """Make the folder when it is absent."""

    def names(self) -> list[str]:
        """Names of the files; none when the folder is absent."""

    def path(self, name: str) -> str:
        """The file's full path, for messages."""

    def create(self, name: str) -> contextlib.AbstractContextManager[BinaryIO]:
        """Write a file anew; on a disk it is there under its name only once it is whole."""

    def open(self, name: str) -> contextlib.AbstractContextManager[BinaryIO]:
        """Read a file."""

    def size(self, name: str) -> int:
        """Length of a file in bytes."""

    def remove(self, name: str) -> None:
        """Delete a file; harmless when it is gone."""

    def sync(self) -> None:
        """Make the names durable."""


class LocalFolder:
    """A folder on a disk of this machine, or one mounted here.

    Args:
        folder: Its path.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __str__(self) -> str:
        return str(self.folder)

    def prepare(self) -> None:
        """Make the folder when it is absent."""
        self.folder.mkdir(parents=True, exist_ok=True)

    def names(self) -> list[str]:
        """Names of the files; none when the folder is absent."""
        return [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else []

    def path(self, name: str) -> str:
        """The file's full path."""
        return str(self.folder / name)

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """Write to a temporary name, flush to the disk, rename."""
        temporary = self.folder / (name + TEMPORARY)
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.folder / name)

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """Read a file."""
        with (self.folder / name).open("rb") as file:
            yield file

    def size(self, name: str) -> int:
        """Length of a file in bytes."""
        return (self.folder / name).stat().st_size

    def remove(self, name: str) -> None:
        """Delete a file; harmless when it is gone."""
        (self.folder / name).unlink(missing_ok=True)

    def sync(self) -> None:
        """Make the renames durable: they live in the folder, not in the files."""
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class ArrowFolder:
    """A folder on a pyarrow file system: object storage, HDFS, or fsspec behind it.

    An object store shows an object only when it is complete. Where that does not hold, a file may
    be seen torn; that is why the manifest comes last and names each file's length and checksum.

    Args:
        filesystem: A ``pyarrow.fs.FileSystem``.
        path: The folder's path in it.
    """

    def __init__(self, filesystem: Any, path: str) -> None:
        self._fs, self._path = filesystem, path.rstrip("/")

    def __str__(self) -> str:
        return f"{self._fs.type_name}:{self._path}"

    def prepare(self) -> None:
        """Make the folder when it is absent."""
        with _os_errors():
            self._fs.create_dir(self._path, recursive=True)

    def names(self) -> list[str]:
        """Names of the files; none when the folder is absent."""
        selector = fs.FileSelector(self._path, allow_not_found=True)
        with _os_errors():
            return [info.base_name for info in self._fs.get_file_info(selector) if info.is_file]

    def path(self, name: str) -> str:
        """The file's full path."""
        return posixpath.join(str(self), name)

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """Write a file anew."""
        with _os_errors(), self._fs.open_output_stream(self._at(name)) as stream:
            yield cast(BinaryIO, stream)

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """Read a file."""
        with _os_errors(), self._fs.open_input_file(self._at(name)) as stream:
            yield cast(BinaryIO, stream)

    def size(self, name: str) -> int:
        """Length of a file in bytes."""
        with _os_errors():
            info = self._fs.get_file_info(self._at(name))
        if not info.is_file:
            raise FileNotFoundError(f"no file {self.path(name)}")
        return int(info.size)

    def remove(self, name: str) -> None:
        """Delete a file; harmless when it is gone."""
        with contextlib.suppress(FileNotFoundError), _os_errors():
            self._fs.delete_file(self._at(name))

    def sync(self) -> None:
        """Nothing to do: a closed file is durable there."""

    def _at(self, name: str) -> str:
        return posixpath.join(self._path, name)


def open_folder(where: str | Path, filesystem: Any = None) -> Folder:
    """The folder behind a path or a URI.

    Args:
        where: A path, or a URI such as ``file:///data/x``, ``s3://bucket/x`` or ``memory://x``.
        filesystem: A ``pyarrow.fs.FileSystem`` or an fsspec file system that ``where`` is a path
            in, as Tune's ``storage_filesystem``.

    Raises:
        ConfigError: There is no file system for the URI.
    """
    if filesystem is not None:
        return _on(_as_arrow(filesystem), str(where))
    if isinstance(where, Path) or "://" not in where:
        return LocalFolder(Path(where))
    try:
        return _on(*fs.FileSystem.from_uri(where))
    except (ArrowInvalid, NotImplementedError, OSError) as error:
        return _from_fsspec(where, error)


def _on(filesystem: Any, path: str) -> Folder:
    if isinstance(filesystem, fs.LocalFileSystem):
        return LocalFolder(Path(path))
    return ArrowFolder(filesystem, path)


def _as_arrow(filesystem: Any) -> Any:
    if isinstance(filesystem, fs.FileSystem):
        return filesystem
    return fs.PyFileSystem(fs.FSSpecHandler(filesystem))


def _from_fsspec(uri: str, refused: Exception) -> Folder:
    """What pyarrow does not know itself, as Tune does it too."""
    try:
        import fsspec  # type: ignore[import-untyped]

        filesystem, path = fsspec.core.url_to_fs(uri)
    except (ImportError, ValueError) as error:
        raise ConfigError(
            f"no file system for {uri!r}: pyarrow says {refused}; fsspec says {error}. "
            "Check the scheme, and install the fsspec package that serves it"
        ) from error
    return ArrowFolder(_as_arrow(filesystem), path)


@contextlib.contextmanager
def _os_errors() -> Iterator[None]:
    """One kind of failure for all storages: pyarrow also raises kinds of ValueError."""
    try:
        yield
    except ArrowInvalid as error:
        raise OSError(str(error)) from error
