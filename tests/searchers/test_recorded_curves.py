"""The stopping rule judged on recorded curves of real trainings; ``curve_report.py`` prints it."""

from __future__ import annotations

import math

import pytest
from curve_replay import brier, judge, recorded, reliability, replay

# In this search every trial stays at chance level for half of its length: nothing tells the one
# that will take off from those that will not (docs/curve_stopping.md).
PLATEAU = "shufflenet"
SEARCHES = recorded()
OTHERS = [s for s in SEARCHES if not s.name.startswith(PLATEAU)]


def test_the_recording_is_what_it_should_be() -> None:
    assert len(SEARCHES) == 10
    assert sum(len(s.curves) for s in SEARCHES) == 2 * 54
    for search in SEARCHES:
        assert {len(curve) for curve in search.curves} == {search.length}
        good = search.best_of([search.best_of(c) for c in search.curves])
        assert good > 0.7 if search.mode == "max" else good < 1.0


@pytest.mark.parametrize("search", OTHERS, ids=lambda s: s.name)
def test_no_winner_is_stopped(search: object) -> None:
    came = replay(search)  # type: ignore[arg-type]
    assert not search.winners() & set(came.stopped)  # type: ignore[attr-defined]
    assert came.found[0] == came.found[1]
    run, whole = came.iterations
    assert run < 0.9 * whole  # and it is worth it


def test_a_grace_period_as_long_as_the_plateau_keeps_the_winner_there() -> None:
    for search in SEARCHES:
        if search.name.startswith(PLATEAU):
            assert not search.winners() & set(replay(search, grace_period=22).stopped)


def test_chances_are_calibrated(capsys: pytest.CaptureFixture[str]) -> None:
    judged = list(judge(OTHERS, shares=(0.1, 0.4)))
    with capsys.disabled():
        print("\nforecast chance  came  count")
        for low, high, chance, came, count in reliability(judged):
            print(f"{low:4.0%} to {high:4.0%}: {chance:5.1%}  {came:5.1%}  {count}")
    score, base = brier(judged)
    assert score < base
    # What matters for stopping: of what is called hopeless, hardly anything comes true.
    hopeless = [j for j in judged if j.chance < 0.05]
    assert len(hopeless) > 50
    assert sum(j.came for j in hopeless) / len(hopeless) < 0.15
    inside = sum(0.05 <= j.spread <= 0.95 for j in judged) / len(judged)
    assert 0.75 < inside <= 1.0
    assert not math.isnan(score)
