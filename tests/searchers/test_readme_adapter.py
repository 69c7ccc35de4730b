"""The adapter in the README works as printed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from themis_ray.searchers.api import AppState, TrialInfo, time_left_s
from themis_ray.searchers.registry import _adapters, search_for

README = Path(__file__).parents[2] / "README.md"


class MyHalving(SimpleNamespace):
    """A scheduler with the attribute that the README's adapter reads."""


@pytest.fixture
def clean_registry() -> Iterator[None]:
    before = dict(_adapters)
    yield
    _adapters.clear()
    _adapters.update(before)


@pytest.mark.usefixtures("clean_registry")
def test_the_recipe_bids_by_equation_2() -> None:
    [code] = re.findall(
        r"```python\n(from themis_ray\.searchers .*?)```", README.read_text(), re.DOTALL
    )
    assert len(code.splitlines()) < 60
    exec(code, {"MyHalving": MyHalving})
    search: Any = search_for(MyHalving(rungs_left=[8, 24, 60]))
    trials = (TrialInfo(f"t{i}", 0, 100, s, 1, 8) for i, s in enumerate((80, 100, 100, 120)))
    search.observe(AppState(tuple(trials)))
    assert [len(search.jobs_in_phase(phase, (4,))) for phase in range(3)] == [4, 2, 1]
    assert time_left_s(search, (2,)) == pytest.approx(5000.0)
