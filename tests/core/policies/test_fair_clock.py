"""The virtual fair-share clock, by hand and against the judge's fluid run."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from themis_ray.core.fairness import PhaseWork
from themis_ray.core.policies.fair_clock import (
    FairClock,
    advanced,
    forecasts,
    phases_or,
)
from themis_ray.core.policies.life import Life
from themis_ray.sim.generate import generate
from themis_ray.sim.judges import fluid_times_s, phases_of

GPUS = 8


def life(*phases, joined=0.0, weight=1.0):
    return Life(joined, weight, tuple(PhaseWork(*phase) for phase in phases))


def run(present, *times, gpus=GPUS, clock=None):
    """The clock after several steps; of the apps, those are present that have arrived by then."""
    clock = clock or FairClock()
    for now in times:
        here = {app: one for app, one in present.items() if one.joined_s <= now}
        clock = advanced(clock, here, now, gpus)
    return clock


def finishes(clock):
    return {app: one.finished_s for app, one in clock.lives.items()}


# -- by hand -----------------------------------------------------------------------------------


def test_like_apps_have_half_each():
    """Two apps of 800 GPU-s on 8 GPUs are done after 200 s."""
    both = {"a": life((800, 8)), "b": life((800, 8))}
    clock = run(both, 50.0)
    assert {app: one.done_gpu_s for app, one in clock.lives.items()} == {"a": 200, "b": 200}
    for app, forecast in forecasts(clock, GPUS).items():
        assert (forecast.finish_s, forecast.share) == pytest.approx((200, 4)), app
    assert finishes(run(both, 1000.0)) == pytest.approx({"a": 200, "b": 200})


@pytest.mark.parametrize("apps", [1, 2])
def test_without_a_gpu_nothing_is_done_and_nothing_breaks(apps):
    """All machines may be away for a while."""
    some = {f"a{i}": life((800, 8)) for i in range(apps)}
    clock = run(some, 50.0, 60.0, gpus=0)
    assert [one.done_gpu_s for one in clock.lives.values()] == pytest.approx([0.0] * apps, abs=1e-6)
    assert all(forecast.finish_s > 1e6 for forecast in forecasts(clock, 0).values())
    back = run(some, 70.0, clock=clock)
    assert sum(one.done_gpu_s for one in back.lives.values()) == pytest.approx(10 * GPUS)


def test_what_an_app_cannot_use_goes_to_the_others():
    """``a`` can use 2 of its 4 GPUs: 400 s; ``b`` has 6 until it is done after 100 s."""
    assert finishes(run({"a": life((800, 2)), "b": life((600, 8))}, 1000.0)) == pytest.approx(
        {"a": 400, "b": 100}
    )


def test_shares_go_by_weight():
    """6 and 2 GPUs until ``a`` is done after 100 s; ``b`` has 600 of 800 GPU-s left then."""
    both = {"a": life((600, 8), weight=3.0), "b": life((800, 8))}
    assert finishes(run(both, 1000.0)) == pytest.approx({"a": 100, "b": 175})
    at_first = forecasts(run(both, 0.0), GPUS)
    assert at_first["b"].share == pytest.approx(800 / 175)


def test_phases_follow_one_another():
    """400 GPU-s on 8 GPUs, then as many on 2."""
    alone = {"a": life((400, 8), (400, 2))}
    assert finishes(run(alone, 1000.0)) == pytest.approx({"a": 250})
    clock = run(alone, 100.0)
    assert clock.lives["a"].left == [PhaseWork(300, 2)]
    assert forecasts(clock, GPUS)["a"].finish_s == pytest.approx(250)
    assert forecasts(clock, GPUS)["a"].share == pytest.approx(2)


def test_an_app_counts_from_its_arrival_and_not_from_the_round():
    """``b`` arrives at 50 s, between the rounds at 0 and 80 s."""
    both = {"a": life((800, 8)), "b": life((800, 8), joined=50.0)}
    clock = run(both, 0.0, 80.0)
    assert clock.lives["a"].done_gpu_s == pytest.approx(50 * 8 + 30 * 4)
    assert clock.lives["b"].done_gpu_s == pytest.approx(30 * 4)
    assert finishes(run(both, 1000.0)) == pytest.approx({"a": 150, "b": 200})


def test_an_app_that_was_here_before_the_clock_begins_with_it():
    assert run({"a": life((800, 8), joined=-30.0)}, 10.0).lives["a"].done_gpu_s == 80


def test_an_app_that_has_left_goes_on_until_it_is_done_here():
    """It was served sooner; the other may not expect more for that, nor less."""
    both = {"a": life((800, 8)), "b": life((1600, 8))}
    clock = advanced(run(both, 10.0), {"b": both["b"]}, 100.0, GPUS)
    assert clock.lives["a"].done_gpu_s == pytest.approx(400)
    assert forecasts(clock, GPUS)["b"].finish_s == pytest.approx(300)
    clock = advanced(clock, {"b": both["b"]}, 250.0, GPUS)
    clock = advanced(clock, {"b": both["b"]}, 260.0, GPUS)
    assert set(clock.lives) == {"b"}
    assert forecasts(clock, GPUS)["b"].finish_s == pytest.approx(300)


def test_more_work_than_it_had_said_revives_an_app():
    """Done at 100 s; at 150 s it tells of 80 GPU-s more."""
    clock = run({"a": life((800, 8))}, 150.0)
    assert clock.lives["a"].finished_s == 100
    clock = run({"a": life((880, 8))}, 150.0, clock=clock)
    assert clock.lives["a"].finished_s is None
    assert forecasts(clock, GPUS)["a"].finish_s == pytest.approx(160)
    assert run({"a": life((880, 8))}, 500.0, clock=clock).lives["a"].finished_s == 160


def test_less_work_than_has_been_done_ends_an_app():
    """Half of its work is done when it turns out to be less than that."""
    clock = run({"a": life((800, 8)), "b": life((800, 8))}, 100.0)
    less = {"a": life((300, 8)), "b": life((800, 8))}
    clock = run(less, 110.0, clock=clock)
    assert clock.lives["a"].finished_s == 100
    assert clock.lives["b"].done_gpu_s == pytest.approx(400 + 80)
    assert set(forecasts(clock, GPUS)) == {"a", "b"}
    assert finishes(run(less, 1000.0, clock=clock)) == pytest.approx({"a": 100, "b": 150})


def test_another_app_of_the_same_name_begins_anew():
    clock = run({"a": life((800, 8))}, 150.0)
    again = run({"a": life((800, 8), joined=200.0)}, 250.0, clock=clock)
    assert again.lives["a"].done_gpu_s == pytest.approx(400)
    assert forecasts(again, GPUS)["a"].finish_s == pytest.approx(300)


def test_one_that_is_done_is_told_what_its_weight_would_get():
    some = {"a": life((8, 8), weight=2.0), "b": life((8000, 8)), "c": life((8000, 2))}
    after = forecasts(run(some, 100.0), GPUS)
    assert after["a"].finish_s < 100
    assert after["a"].share == pytest.approx(2 * 6)
    nobody = forecasts(run({"a": life((8, 8))}, 100.0), GPUS)
    assert (nobody["a"].finish_s, nobody["a"].share) == pytest.approx((1.0, GPUS))


def test_an_app_that_tells_no_phases_has_one():
    assert phases_or((), 100.0, 4.0) == (PhaseWork(100.0, 4.0),)
    assert phases_or((PhaseWork(0.0, 2.0), PhaseWork(5.0, 2.0)), 1.0, 4.0) == (PhaseWork(5.0, 2.0),)
    assert finishes(run({"a": Life(0.0, 1.0, phases_or((), 0.0, 0.0))}, 1e6))["a"] is not None


# -- in general --------------------------------------------------------------------------------

numbers = st.floats(0.5, 20.0)


@st.composite
def apps(draw, most=5):
    out = {}
    for i in range(draw(st.integers(1, most))):
        phases = draw(st.lists(st.tuples(st.floats(1, 2000), numbers), min_size=1, max_size=3))
        joined, weight = draw(st.floats(0, 300)), draw(st.sampled_from([0.5, 1.0, 3.0]))
        out[f"app/{i}"] = life(*phases, joined=joined, weight=weight)
    return out


@given(apps(), st.lists(st.floats(0, 2000), max_size=6))
@settings(max_examples=60, deadline=None)
def test_many_steps_are_one(present, times):
    whole, steps = run(present, 2000.0), run(present, *sorted(times), 2000.0)
    assert set(whole.lives) == set(steps.lives) == set(present)
    for app, one in whole.lives.items():
        other = steps.lives[app]
        assert one.done_gpu_s == pytest.approx(other.done_gpu_s, rel=1e-9, abs=1e-5)
        late = (one.finished_s or math.inf, other.finished_s or math.inf)
        assert late[0] == pytest.approx(late[1], rel=1e-9, abs=1e-5) or math.inf in late
    ends = [{a: f.finish_s for a, f in forecasts(c, GPUS).items()} for c in (whole, steps)]
    assert ends[0] == pytest.approx(ends[1], rel=1e-9, abs=1e-5)


@given(apps(), st.floats(300, 2000))
@settings(max_examples=60, deadline=None)
def test_what_it_forecasts_comes_true_when_nobody_joins(present, now):
    clock = run(present, now)
    told = {app: forecast.finish_s for app, forecast in forecasts(clock, GPUS).items()}
    assert finishes(run(present, 1e6, clock=clock)) == pytest.approx(told, rel=1e-9, abs=1e-5)


@given(apps(), st.lists(st.tuples(st.floats(1, 300), st.floats(0.01, 10)), max_size=6))
@settings(max_examples=60, deadline=None)
def test_it_knows_of_all_apps_whatever_they_say_of_their_work(present, words):
    """Each time all their work is told to be more or less than before; some leave."""
    clock = run(present, 300.0)
    for i, (step_s, factor) in enumerate(words):
        phases = {a: [PhaseWork(w * factor, g) for w, g in x.phases] for a, x in present.items()}
        here = {a: replace(x, phases=tuple(phases[a])) for a, x in list(present.items())[: i + 1]}
        clock = advanced(clock, here, clock.now_s + step_s, GPUS)
        told = forecasts(clock, GPUS)
        assert set(here) <= set(told) == set(clock.lives)
        for app, one in clock.lives.items():
            assert math.isfinite(told[app].finish_s)
            assert 0 < told[app].share < math.inf
            assert (told[app].finish_s > clock.now_s - 1e-9) or one.finished_s is not None
            assert one.finished_s is None or one.joined_s < one.finished_s <= clock.now_s
            assert (one.finished_s is None) == bool(one.left)


@pytest.mark.parametrize("spec", ["w1:apps=12,seed=3", "w2:apps=40,seed=1", "w2:apps=40,seed=2"])
@pytest.mark.parametrize("round_s", [math.inf, 700.0])
def test_it_is_the_judges_fluid_run_when_apps_tell_the_truth(spec, round_s):
    trace = generate(spec)
    weighted = [replace(app, weight=float(1 + i % 3)) for i, app in enumerate(trace.apps)]
    trace = replace(trace, apps=tuple(weighted))
    gpus = 64
    present = {}
    for app in trace.apps:
        phases = [(p.work_gpu_s, p.work_gpu_s / p.time_s(p.max_gpus)) for p in phases_of(app, 0)]
        present[app.id] = life(*phases, joined=app.arrival_s, weight=app.weight)
    expected = fluid_times_s(trace, gpus, 0)
    end_s = max(app.arrival_s + expected[app.id] for app in trace.apps) + 1.0
    rounds = [] if round_s == math.inf else [round_s * k for k in range(int(end_s / round_s) + 1)]
    ends = finishes(run(present, *rounds, end_s, gpus=gpus))
    times = {app: end - present[app].joined_s for app, end in ends.items()}
    assert times == pytest.approx(expected, rel=1e-9)
