from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis_ray.agent.trials import WINDOW, IterationTimer, TrialPhase, TrialState
from themis_ray.core.cluster import Level
from themis_ray.core.slowdown import PRIORS, Signature, SlowdownTable

ONE = Signature((1,), Level.SLOT)
FOUR = Signature((4,), Level.SLOT)
APART = Signature((2, 2), Level.CLUSTER)


def test_nothing_is_known_before_the_first_report() -> None:
    assert IterationTimer(SlowdownTable()).serial_iter_s is None


@given(st.floats(0.01, 100), st.sampled_from([FOUR, APART]))
def test_reports_on_many_gpus_are_turned_into_serial_time(serial: float, where: Signature) -> None:
    timer = IterationTimer(SlowdownTable())
    timer.record(serial * PRIORS[where.level] / 4, where)
    assert timer.serial_iter_s == pytest.approx(serial)


def test_reports_on_one_gpu_count_more_and_tell_the_slowdown() -> None:
    table = SlowdownTable()
    timer = IterationTimer(table)
    timer.record(1.0, APART)
    assert table.measured == {}  # nothing to compare it with yet
    timer.record(2.0, ONE)
    assert timer.serial_iter_s == 2.0
    timer.record(0.7, APART)
    assert table.s(APART) == pytest.approx(0.7 * 4 / 2.0)
    assert timer.serial_iter_s == 2.0


def test_a_hiccup_is_outvoted_and_a_change_is_followed() -> None:
    timer = IterationTimer(SlowdownTable())
    for seconds in [1.0] * 5 + [60.0]:
        timer.record(seconds, ONE)
    assert timer.serial_iter_s == 1.0
    for _ in range(WINDOW):
        timer.record(3.0, ONE)
    assert timer.serial_iter_s == 3.0


def test_a_slow_first_iteration_counts_until_there_is_another() -> None:
    timer = IterationTimer(SlowdownTable())
    timer.record_first(10.0, FOUR)
    assert timer.serial_iter_s == 40.0
    timer.record(1.0, FOUR)
    assert timer.serial_iter_s == 4.0
    timer.record_first(10.0, FOUR)  # of the next lease
    assert timer.serial_iter_s == 4.0


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.inf, math.nan])
def test_times_that_are_none_are_passed_over(seconds: float) -> None:
    timer = IterationTimer(SlowdownTable())
    timer.record_first(seconds, ONE)
    timer.record(seconds, ONE)
    assert timer.serial_iter_s is None


def test_a_living_trial_has_at_least_one_iteration_left() -> None:
    trial = TrialState("t", 0, 10.0, IterationTimer(SlowdownTable()))
    assert trial.iterations_left == 10
    trial.iterations_done = 12.0
    assert trial.iterations_left == 1


def test_which_phases_hold_gpus() -> None:
    trial = TrialState("t", 0, 10.0, IterationTimer(SlowdownTable()))
    holds, live = set(), set()
    for phase in TrialPhase:
        trial.phase = phase
        holds |= {phase} if trial.holds else set()
        live |= {phase} if trial.live else set()
    assert holds == {TrialPhase.PLACED, TrialPhase.RUNNING, TrialPhase.LEAVING}
    assert live == set(TrialPhase) - {TrialPhase.DONE}
