"""What each option of ``themis`` brings: the default with one option changed at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, Literal, get_args, get_origin, get_type_hints

from themis_ray.core.policies import POLICIES
from themis_ray.reproduce.claims import least
from themis_ray.reproduce.fairness import TESTBED
from themis_ray.reproduce.figure import Claim, Figure
from themis_ray.reproduce.mechanism import FAIR_SHARE, MAX_FLUID, mechanism_values
from themis_ray.reproduce.runs import Plain, Run, options_of
from themis_ray.reproduce.sizes import Sizes

POLICY = "themis"
DEFAULT = "themis"
# Not part of the mechanism.
NOT_VARIED = frozenset({"seed", "timeout_s", "restart_s"})
# What numbers are tried besides the default; others are halved and doubled.
TRIED: Mapping[str, tuple[Plain, ...]] = {
    "fairness_knob": ("4/5",),
    "min_bidders": (3,),
    "recall_factor": (1.0, 2.0, math.inf),
}


def variants(policy: str = POLICY) -> dict[str, tuple[tuple[str, Plain], ...]]:
    """The options of each variant of a policy, read off the policy itself.

    A switch is turned, of a choice all others are taken, and numbers are as in :data:`TRIED`. An
    option that is added to the policy is so varied without a change here.
    """
    hints = get_type_hints(POLICIES[policy])
    out: dict[str, tuple[tuple[str, Plain], ...]] = {}
    for name, default in options_of(policy).items():
        if name in NOT_VARIED:
            continue
        for value in _others(name, default, hints[name]):
            out[f"{name} = {value}"] = ((name, value),)
    return out


def _others(name: str, default: Any, hint: Any) -> Iterator[Plain]:
    if isinstance(default, bool):
        yield not default
    elif get_origin(hint) is Literal:
        yield from (value for value in get_args(hint) if value != default)
    elif isinstance(default, int | float | Fraction):
        tried = TRIED.get(name, (default / 2, default * 2) if isinstance(default, float) else ())
        yield from (value for value in tried if _number(value) != _number(default))


def _number(value: Plain | Fraction) -> Fraction | float:
    return math.inf if value == math.inf else Fraction(str(value))


def _runs(workload: str) -> Any:
    def runs(sizes: Sizes, seed: int) -> Mapping[str, Run]:
        spec = sizes.w1(2) if workload == "w1" else sizes.w2(1)
        out = {DEFAULT: Run(TESTBED, spec, POLICY, seed=seed)}
        for label, options in variants().items():
            out[label] = Run(TESTBED, spec, POLICY, options=options, seed=seed)
        out["T_id as printed"] = Run(TESTBED, spec, POLICY, seed=seed, ideal="paper")
        out["themis-paper"] = Run(TESTBED, spec, "themis-paper", seed=seed)
        out[FAIR_SHARE] = Run(TESTBED, spec, FAIR_SHARE, seed=seed)
        return out

    return runs


def _figure(workload: str, contention: int) -> Figure:
    return Figure(
        name=f"ablation-{workload}",
        title=f"One option changed, Workload {workload[1:]}, {contention}x contention",
        setup=lambda sizes: (
            "The first row is the default; each other row changes one option of it. `themis-paper` "
            f"and `{FAIR_SHARE}` for comparison."
        ),
        runs=_runs(workload),
        values=mechanism_values,
        claims=(
            Claim(
                "No single change makes max r (fluid) more than 2 % lower.",
                _default_is_best,
                "This workload likes another setting better; the defaults are those that do well "
                "over all cells of the tables before.",
            ),
        ),
    )


def _default_is_best(values: Any) -> Any:
    rivals = tuple(row for row in values if row not in (DEFAULT, "themis-paper", FAIR_SHARE))
    return least(DEFAULT, MAX_FLUID, rivals, slack=0.02)(values)


FIGURES = (_figure("w1", 2), _figure("w2", 1))
