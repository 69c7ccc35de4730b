"""Scheduling policies, one file each; :func:`make_policy` finds them by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from themis_ray.core.policies.base import AppView, Award, Outcome, Policy, RoundView
from themis_ray.core.policies.best_effort import BestEffort
from themis_ray.core.policies.drf import Drf
from themis_ray.core.policies.gandiva import Gandiva
from themis_ray.core.policies.max_min_r import MaxMinR
from themis_ray.core.policies.optimus import Optimus
from themis_ray.core.policies.sf import SmallestFirst
from themis_ray.core.policies.slaq import Slaq
from themis_ray.core.policies.srsf import Srsf
from themis_ray.core.policies.srtf import Srtf
from themis_ray.core.policies.strawman import Strawman
from themis_ray.core.policies.themis import Themis
from themis_ray.core.policies.themis_paper import ThemisPaper
from themis_ray.core.policies.tiresias_g import TiresiasG
from themis_ray.core.policies.tiresias_l import TiresiasL
from themis_ray.core.policies.yarn_cs import YarnCs
from themis_ray.errors import ConfigError

POLICIES: Mapping[str, type[Policy]] = {
    p.name: p
    for p in (
        Themis,
        ThemisPaper,
        TiresiasL,
        TiresiasG,
        Gandiva,
        Optimus,
        Slaq,
        Srtf,
        Srsf,
        SmallestFirst,
        Drf,
        YarnCs,
        BestEffort,
        Strawman,
        MaxMinR,
    )
}


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
    "BestEffort",
    "Drf",
    "Gandiva",
    "MaxMinR",
    "Optimus",
    "Outcome",
    "Policy",
    "RoundView",
    "Slaq",
    "SmallestFirst",
    "Srsf",
    "Srtf",
    "Strawman",
    "Themis",
    "ThemisPaper",
    "TiresiasG",
    "TiresiasL",
    "YarnCs",
    "make_policy",
]
