"""Single fields of a message: allocations, and checks whose errors name the field."""

from __future__ import annotations

import math

from themis_ray.core.cluster import Allocation
from themis_ray.errors import ProtocolError, ThemisError
from themis_ray.rpc._generated import themis_pb2 as pb


def number(
    value: float,
    field: str,
    error: type[ThemisError],
    *,
    least: float = -math.inf,
    finite: bool = False,
) -> float:
    """``value``, or an error that names ``field``."""
    if math.isnan(value) or value < least or (finite and math.isinf(value)):
        wanted = "a finite number" if finite else "a number"
        if least > -math.inf:
            wanted += f" of {least:g} or more"
        raise error(f"{field} = {value}; send {wanted}")
    return value


def name(value: str, field: str, error: type[ThemisError] = ProtocolError) -> str:
    """``value``, or an error when it is empty."""
    if not value:
        raise error(f"{field} is empty; send the name that it was given")
    return value


def some(value: pb.Allocation, field: str) -> Allocation:
    """An allocation of 1 GPU or more, or an error."""
    allocation = from_allocation(value)
    if not allocation:
        raise ProtocolError(f"{field} is empty; name a machine and 1 GPU or more on it")
    return allocation


def to_allocation(allocation: Allocation) -> pb.Allocation:
    """An allocation for the wire."""
    return pb.Allocation(gpus=dict(allocation))


def from_allocation(message: pb.Allocation) -> Allocation:
    """An allocation from the wire."""
    return Allocation(dict(message.gpus))
