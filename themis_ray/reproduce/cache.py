"""Finished runs on disk."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from themis_ray.errors import InvalidInputError
from themis_ray.reproduce.code_version import code_version
from themis_ray.reproduce.outcome import Outcome
from themis_ray.reproduce.runs import Run


def default_folder() -> Path:
    """Where outcomes are kept unless something else is asked for."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "themis_ray" / "reproduce"


class Cache:
    """Outcomes by their runs and the version of the code.

    Args:
        folder: Where they are kept; None keeps nothing.

    Raises:
        InvalidInputError: The folder cannot be made or written to.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=folder):
                    pass
            except OSError as error:
                reason = (error.strerror or str(error)).lower()
                raise InvalidInputError(
                    f"--cache {folder}: {reason}; name a folder that can be written to, "
                    "or use --no-cache"
                ) from error

    def get(self, run: Run) -> Outcome | None:
        """The outcome of a run, if it is there and whole."""
        file = self._file(run)
        if file is None:
            return None
        try:
            return Outcome(json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return None

    def put(self, run: Run, outcome: Outcome) -> None:
        """Keep an outcome; one with an error is not kept."""
        file = self._file(run)
        if file is None or outcome.error is not None:
            return
        # Written beside and moved there: who is interrupted leaves no half of a file.
        with tempfile.NamedTemporaryFile(
            "w", dir=self.folder, delete=False, encoding="utf-8", suffix=".part"
        ) as part:
            json.dump(outcome.document, part)
        os.replace(part.name, file)

    def _file(self, run: Run) -> Path | None:
        if self.folder is None:
            return None
        return self.folder / f"{run.key(code_version(run.policy))}.json"
