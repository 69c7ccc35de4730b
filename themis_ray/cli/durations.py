"""Times as people write them: ``90s``, ``10m``, ``1.5h`` or plain seconds."""

from __future__ import annotations

import math
import re

from themis_ray.errors import InvalidInputError

_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(text: str, where: str, *, or_zero: bool = False) -> float:
    """``10m`` as 600.

    Args:
        text: What was written.
        where: The option or field, for the message.
        or_zero: Whether no time at all will do.

    Raises:
        InvalidInputError: It is not a time, or it is out of range.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    value_s = math.inf
    if match is not None and match[2] in _UNITS_S:
        value_s = float(match[1]) * _UNITS_S[match[2]]
    if value_s == math.inf or (value_s == 0 and not or_zero):
        least = "0, or a number" if or_zero else "a number above 0"
        raise InvalidInputError(
            f"{where}: {text!r} is not a time; use {least} with s, m, h or d, such as 10m"
        )
    return value_s
