"""Scheduling policies, one file each; :func:`make_policy` finds them by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from themis_ray.core.policies.base import AppView, Award, Outcome, Policy, RoundView
from themis_ray.core.policies.themis_paper import ThemisPaper
from themis_ray.errors import ConfigError

POLICIES: Mapping[str, type[Policy]] = {p.name: p for p in (ThemisPaper,)}


def make_policy(name: str, **options: Any) -> Policy:
    """The policy of a name.

    Args:
        name: One of :data:`POLICIES`.
        **options: The policy's own arguments.

    Raises:
        ConfigError: No policy has that name, or it does not take one of the options.
    """
    if name not in POLICIES:
        raise ConfigError(f"no policy {name!r}; there are: {', '.join(sorted(POLICIES))}")
    try:
        return POLICIES[name](**options)
    except TypeError as error:
        raise ConfigError(f"policy {name!r}: {error}") from error


__all__ = [
    "POLICIES",
    "AppView",
    "Award",
    "Outcome",
    "Policy",
    "RoundView",
    "ThemisPaper",
    "make_policy",
]
