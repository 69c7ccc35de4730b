"""Every error that themis_ray raises on purpose.

::

    ThemisError
    ├── InvalidInputError         what the caller passed cannot be used (CLI exit code 2)
    │   ├── AdapterError          a search's adapter gave an answer that cannot be used
    │   ├── BidError              a bid table is malformed or asks for what was not offered
    │   ├── ConfigError           a file, option or environment variable is wrong
    │   ├── TraceError            a trace file is wrong, with line and column
    │   ├── JournalError          an arbiter's journal is wrong, with file and line
    │   └── UnsupportedRayError   the installed Ray lacks what the Tune seam relies on
    ├── ProtocolError             an event or message that is not legal in this state
    │   ├── UnknownAppError       no app of that name is registered
    │   └── DuplicateAppError     two live apps claim one name
    ├── AuthenticationError       a missing or wrong token or session secret
    ├── ArbiterUnavailableError   no arbiter answers at the address
    ├── MissingExtraError         an optional dependency is not installed
    ├── CheckpointError           a checkpoint is absent, torn or of another job
    └── WorkerDiedError           a training worker was lost in the middle of a step

Each message says what is wrong, where, and how to mend it.
"""

from __future__ import annotations


class ThemisError(Exception):
    """Base class of all errors of this package."""


class InvalidInputError(ThemisError):
    """What the caller passed cannot be used."""


class AdapterError(InvalidInputError):
    """A search's adapter (see :mod:`themis_ray.searchers.api`) gave an answer of no use."""


class BidError(InvalidInputError):
    """A bid table is malformed or asks for GPUs that were not offered."""


class ConfigError(InvalidInputError):
    """A configuration file, option or environment variable is wrong."""


class TraceError(InvalidInputError):
    """A trace file is wrong; the message names line and column."""


class JournalError(InvalidInputError):
    """An arbiter's journal cannot be used; the message names file and line."""


class UnsupportedRayError(InvalidInputError):
    """The installed Ray lacks what the Tune seam relies on."""


class ProtocolError(ThemisError):
    """An event or message that is not legal in the present state; nothing was changed."""


class UnknownAppError(ProtocolError):
    """No app of that name is registered."""


class DuplicateAppError(ProtocolError):
    """Two live apps claim one name."""


class AuthenticationError(ThemisError):
    """A missing or wrong token or session secret."""


class ArbiterUnavailableError(ThemisError):
    """No arbiter answers."""


class CheckpointError(ThemisError):
    """A checkpoint is absent, torn or belongs to another job."""


class WorkerDiedError(ThemisError):
    """A training worker was lost in the middle of a step."""


class MissingExtraError(ThemisError):
    """An optional dependency is not installed.

    Args:
        package: The import name that failed.
        extra: The extra of ``themis_ray`` that brings it.
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} is not installed; mend it with: pip install 'themis_ray[{extra}]'"
        )
        self.package = package
        self.extra = extra

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str]]:
        return type(self), (self.package, self.extra)
