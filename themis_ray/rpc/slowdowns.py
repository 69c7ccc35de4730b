"""Placement levels and measured slowdowns, to and from the wire."""

from __future__ import annotations

from collections.abc import Iterable

from themis_ray.core.cluster import Level
from themis_ray.core.slowdown import MeasuredSlowdown, Signature
from themis_ray.errors import ThemisError
from themis_ray.rpc._generated import themis_pb2 as pb
from themis_ray.rpc.fields import name, number

LEVELS = {
    Level.SLOT: pb.LEVEL_SLOT,
    Level.MACHINE: pb.LEVEL_MACHINE,
    Level.RACK: pb.LEVEL_RACK,
    Level.CLUSTER: pb.LEVEL_CLUSTER,
}
LEVELS_BACK = {wire: level for level, wire in LEVELS.items()}


def to_measured(measured: Iterable[MeasuredSlowdown]) -> list[pb.MeasuredSlowdown]:
    """Measured slowdowns for the wire."""
    return [
        pb.MeasuredSlowdown(
            model=entry.model,
            parts=entry.signature.parts,
            level=LEVELS[entry.signature.level],
            s=entry.s,
        )
        for entry in measured
    ]


def from_measured(
    messages: Iterable[pb.MeasuredSlowdown], where: str, error: type[ThemisError]
) -> tuple[MeasuredSlowdown, ...]:
    """Measured slowdowns from the wire.

    Raises:
        ThemisError: Of the kind given; one of them cannot be used.
    """
    out = []
    for index, message in enumerate(messages):
        field = f"{where}[{index}]"
        level = LEVELS_BACK.get(message.level)
        if level is None:
            raise error(f"{field}.level = {message.level}; send one of the four levels")
        parts = tuple(message.parts)
        if not all(parts) or parts != tuple(sorted(parts, reverse=True)):
            raise error(f"{field}.parts = {list(parts)}; send GPUs per machine, largest first")
        s = number(message.s, f"{field}.s", error, least=1, finite=True)
        model = name(message.model, f"{field}.model", error)
        out.append(MeasuredSlowdown(model, Signature(parts, level), s))
    return tuple(out)
