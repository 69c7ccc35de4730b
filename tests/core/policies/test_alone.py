"""The fair-share clock with GPUs for everybody, against following it from event to event."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from themis_ray.core.fairness import PhaseWork
from themis_ray.core.policies.alone import Alone
from themis_ray.core.policies.fair_clock import FairClock, advanced, forecasts
from themis_ray.core.policies.life import Life

GPUS = 8


def life(work, gpus, joined=0.0, weight=1.0):
    return Life(joined, weight, (PhaseWork(work, gpus),))


def told(clock, present):
    """The apps as a policy tells of them: as the clock has them when nothing new is known."""
    words = clock.words
    return {
        app: words[app] if app in words and words[app].phases is one.phases else one
        for app, one in present.items()
    }


def followed(monkeypatch):
    monkeypatch.setattr(Alone, "of", classmethod(lambda cls, *_: None))


def test_an_app_costs_nothing_until_it_is_looked_at():
    present = {"a": life(800, 4), "b": life(80, 2)}
    clock = advanced(FairClock(), present, 0.0, GPUS)
    assert isinstance(clock.lives, Alone)
    later = advanced(clock, told(clock, present), 100.0, GPUS)
    assert later.words["a"] is present["a"]  # not even made anew
    assert later.lives["a"].done_gpu_s == 400
    assert later.lives["b"].finished_s == 40
    assert clock.lives["b"].finished_s is None  # the clock before is as it was
    assert len(later.lives) == 2


def test_scarce_gpus_have_it_followed_from_event_to_event_and_plenty_ends_that():
    a, b = life(800, 6), life(90, 6, joined=10.0)
    clock = advanced(FairClock(), {"a": a}, 5.0, GPUS)
    clock = advanced(clock, told(clock, {"a": a, "b": b}), 20.0, GPUS)
    assert not isinstance(clock.lives, Alone)
    assert clock.lives["a"].done_gpu_s == pytest.approx(60 + 40)
    # From 10 s on each has 4 GPUs; b is done at 32.5 s.
    clock = advanced(clock, {"a": a}, 40.0, GPUS)
    clock = advanced(clock, {"a": a}, 50.0, GPUS)
    assert isinstance(clock.lives, Alone)
    assert set(clock.lives) == {"a"}
    assert clock.lives["a"].done_gpu_s == pytest.approx(60 + 22.5 * 4 + 17.5 * 6)


@pytest.mark.parametrize(
    "news",
    [
        {"a": life(1600, 4)},
        {"a": replace(life(800, 4), weight=2.0)},
        {"a": life(800, 4, joined=20.0)},
        {"a": life(800, 4), "b": Life(5.0, 1.0, (PhaseWork(8, 1), PhaseWork(8, 2)))},
    ],
)
def test_what_it_cannot_say_from_the_time_alone(news):
    clock = advanced(FairClock(), {"a": life(800, 4)}, 10.0, GPUS)
    assert isinstance(clock.lives, Alone)
    assert clock.lives.later({**told(clock, {}), **news}, 30.0, GPUS) is None
    assert clock.lives.later(told(clock, {"a": clock.words["a"]}), 30.0, GPUS + 1) is None
    after = advanced(clock, news, 30.0, GPUS)
    assert set(after.lives) == set(news)


def test_one_that_left_goes_on_until_it_is_done():
    present = {"a": life(800, 4), "b": life(80, 4)}
    clock = advanced(FairClock(), present, 10.0, GPUS)
    clock = advanced(clock, {}, 30.0, GPUS)
    assert set(clock.lives) == {"a", "b"}
    assert clock.lives["b"].finished_s == 20
    clock = advanced(clock, {}, 40.0, GPUS)
    assert set(clock.lives) == {"a"}
    assert forecasts(clock, GPUS)["a"].finish_s == pytest.approx(200)


@st.composite
def courses(draw):
    """Apps that come and leave, and times at which the clock is read; GPUs may get scarce."""
    apps = {}
    for i in range(draw(st.integers(1, 6))):
        joined = draw(st.floats(0, 300))
        weight = draw(st.sampled_from([0.5, 1.0, 3.0]))
        apps[f"a{i}"] = life(draw(st.floats(1, 600)), draw(st.floats(0.5, 4)), joined, weight)
    leave = {app: one.joined_s + draw(st.floats(1, 600)) for app, one in apps.items()}
    times = sorted(draw(st.lists(st.floats(0, 900), min_size=1, max_size=8)))
    return apps, leave, times


@given(courses())
@settings(max_examples=150, deadline=None)
def test_it_says_the_same_as_following_it_from_event_to_event(course):
    apps, leave, times = course
    clocks = {}
    for followed_up in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            if followed_up:
                followed(patch)
            clock, seen = FairClock(), []
            for now in times:
                here = {a: x for a, x in apps.items() if x.joined_s <= now < leave[a]}
                clock = advanced(clock, told(clock, here), now, GPUS)
                seen.append((clock, forecasts(clock, GPUS)))
            clocks[followed_up] = seen
    for (one, soon), (other, later) in zip(clocks[False], clocks[True], strict=True):
        assert set(one.lives) == set(other.lives) == set(soon) == set(later)
        for app, mine in one.lives.items():
            theirs = other.lives[app]
            assert mine.done_gpu_s == pytest.approx(theirs.done_gpu_s, rel=1e-9, abs=1e-5)
            ends = (mine.finished_s or math.inf, theirs.finished_s or math.inf)
            assert ends[0] == pytest.approx(ends[1], rel=1e-9, abs=1e-5) or math.inf in ends
            assert soon[app].finish_s == pytest.approx(later[app].finish_s, rel=1e-9, abs=1e-5)
            if math.inf not in ends or ends[0] == ends[1]:
                assert soon[app].share == pytest.approx(later[app].share, rel=1e-6)
