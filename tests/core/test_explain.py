from __future__ import annotations

import inspect
import json
import math
from dataclasses import fields
from typing import Any

import pytest

from themis_ray.core import explain
from themis_ray.core.cluster import Allocation
from themis_ray.core.explain import NotOffered, Reason, Waiting, Won

REASONS = [
    cls
    for _, cls in inspect.getmembers(explain, inspect.isclass)
    if issubclass(cls, Reason) and cls is not Reason
]
SAMPLES: dict[str, Any] = {
    "Allocation": Allocation({"m0": 2}),
    "float": 1.5,
    "float | None": 12.0,
    "int": 3,
    "str": "something",
    "tuple[str, ...]": ("x", "y"),
}


def sample(cls: type[Reason]) -> Reason:
    return cls(**{f.name: SAMPLES[str(f.type)] for f in fields(cls)})


@pytest.mark.parametrize("cls", REASONS)
def test_every_reason_speaks_and_turns_into_json(cls: type[Reason]) -> None:
    reason = sample(cls)
    document = json.loads(json.dumps(reason.as_json(), allow_nan=False))
    assert document["kind"] == cls.__name__
    assert document["text"] == str(reason)
    assert document["text"][0].islower() or document["text"][0].isdigit()
    assert "Allocation(" not in document["text"]
    assert set(document) == {"kind", "text", "remedy"} | {f.name for f in fields(cls)}
    with pytest.raises(AttributeError):
        setattr(reason, fields(cls)[0].name, None)


def test_figures_are_for_people() -> None:
    won = Won(Allocation({"m0": 2}), math.inf, 0.51234, 1.0, 60.0)
    assert str(won) == "won m0:2 for 60 s: r goes from infinite to 0.512"
    paid = Won(Allocation({"m0": 2}), 3.0, 0.5, 0.25, 60.0)
    assert str(paid).endswith("; its hidden payment left it 25.0% of its fair allocation")
    assert won.as_json()["r_before"] is None
    assert str(NotOffered(1.0, 2.5, 3, 10)) == (
        "was not offered GPUs: its r is 1, and the 3 worst-off of 10 apps (r of 2.5 or more) were "
        "asked to bid"
    )


def test_who_waits_is_told_for_how_long() -> None:
    assert Waiting(0, 12.3).remedy == "the next lease ends in 12 s"
    assert Waiting(0, -1.0).remedy == "the next lease ends in 0 s"
    assert "when a lease ends" in Waiting(0).remedy
    assert str(Waiting(2)) == "waits for the next round; 2 GPUs are free"
