"""Errors of this package as gRPC statuses, and back to the same class at the other end."""

from __future__ import annotations

from typing import Any

import grpc

from themis_ray.errors import (
    ArbiterUnavailableError,
    AuthenticationError,
    DuplicateAppError,
    InvalidInputError,
    ProtocolError,
    ThemisError,
    UnknownAppError,
)
from themis_ray.rpc.messages import error_named

ERROR_KEY = "x-themis-error"
"""Trailing metadata: the class of the error, since several classes share a status code."""

LONGEST_MESSAGE = 2000
"""Characters of a message; gRPC drops a call whose trailing metadata is over 8 KiB."""

# The first class that fits counts, so subclasses come first.
CODES: tuple[tuple[type[ThemisError], Any], ...] = (
    (AuthenticationError, grpc.StatusCode.UNAUTHENTICATED),
    (DuplicateAppError, grpc.StatusCode.ALREADY_EXISTS),
    (UnknownAppError, grpc.StatusCode.NOT_FOUND),
    (ProtocolError, grpc.StatusCode.FAILED_PRECONDITION),
    (InvalidInputError, grpc.StatusCode.INVALID_ARGUMENT),
    (ArbiterUnavailableError, grpc.StatusCode.UNAVAILABLE),
    (ThemisError, grpc.StatusCode.INTERNAL),
)

ABSENT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


async def abort(context: Any, error: ThemisError) -> None:
    """End a call with ``error``; raises, as ``context.abort`` does.

    Args:
        context: The asyncio servicer context of the call.
        error: Why it ends.
    """
    code = next(code for kind, code in CODES if isinstance(error, kind))
    name = next(
        kind.__name__ for kind in type(error).__mro__ if kind.__module__ == ThemisError.__module__
    )
    await context.abort(code, str(error)[:LONGEST_MESSAGE], ((ERROR_KEY, name),))


def internal(doing: str, error: BaseException) -> ThemisError:
    """The error that a caller is shown for a fault of the arbiter's own."""
    return ThemisError(
        f"the arbiter failed while {doing} ({type(error).__name__}: {error}); see its log"
    )


def error_from(call: Any, address: str) -> ThemisError:
    """The error that a failed call stands for.

    Args:
        call: The ``grpc.RpcError`` that the call raised, which is the call itself.
        address: Where it went, for the message.
    """
    code, details = call.code(), call.details() or ""
    named = dict(call.trailing_metadata() or ()).get(ERROR_KEY)
    if named:
        return error_named(str(named), details, ThemisError)
    if code in ABSENT:
        return unavailable(address, details)
    for kind, its_code in CODES:
        if code == its_code and kind is not ThemisError:
            return kind(details)
    return ThemisError(f"the arbiter at {address} failed: {details or code}; see its log")


def unavailable(address: str, details: str) -> ArbiterUnavailableError:
    """The error for an address at which nobody answers."""
    return ArbiterUnavailableError(
        f"no arbiter answers at {address} ({details}); start one with `themis start`"
    )
