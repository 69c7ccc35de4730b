"""Times as people write them: ``90s``, ``10m``, ``1.5h`` or plain seconds."""

from __future__ import annotations

import re

from themis_ray.errors import InvalidInputError

_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(text: str, where: str) -> float:
    """``10m`` as 600.

    Args:
        text: What was written.
        where: The option or field, for the message.

    Raises:
        InvalidInputError: It is not a time above 0.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS_S or float(match[1]) == 0:
        raise InvalidInputError(
            f"{where}: {text!r} is not a time; use a number above 0 with s, m, h or d, such as 10m"
        )
    return float(match[1]) * _UNITS_S[match[2]]
