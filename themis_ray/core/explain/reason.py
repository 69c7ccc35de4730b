"""What all reasons have in common."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from themis_ray.core.cluster import Allocation


def number(value: float) -> str:
    """A figure for people: three digits, and a word for infinity."""
    return "infinite" if math.isinf(value) else f"{value:.3g}"


@dataclass(frozen=True, slots=True)
class Reason:
    """Base of all reasons."""

    @property
    def kind(self) -> str:
        """The reason's name, as in JSON."""
        return type(self).__name__

    @property
    def remedy(self) -> str:
        """What would change the decision; empty when nothing needs to."""
        return ""

    def as_json(self) -> dict[str, object]:
        """A JSON-ready form: ``kind``, ``text``, ``remedy`` and the reason's own fields."""
        out: dict[str, object] = {"kind": self.kind, "text": str(self), "remedy": self.remedy}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Allocation):
                value = dict(value)
            elif isinstance(value, float) and not math.isfinite(value):
                value = None
            out[field.name] = value
        return out
