"""GPUs that are divided like water: the same as filling anew at each event, the slow way."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from themis_ray.core.fairness import PhaseWork, water_fill
from themis_ray.core.policies.water import Taker, Water

LEAST = 1e-6
NEVER = math.inf


def slowly(apps, gpus, until_s):
    """What has been done of each app, and when the apps end; all shares anew at each event."""
    todo = [list(phases) for _, _, phases in apps]
    weight = np.array([w for _, w, _ in apps])
    done = np.zeros(len(apps))
    ends = {}
    now = 0.0
    left = np.array([phases[0].gpu_s for phases in todo])
    while now < until_s and any(
        joined <= now and i not in ends for i, (joined, _, _) in enumerate(apps)
    ):
        most = np.array(
            [
                min(gpus, todo[i][0].gpus) if joined <= now and i not in ends else 0.0
                for i, (joined, _, _) in enumerate(apps)
            ]
        )
        rate = water_fill(most, weight, gpus)
        times = [left[i] / rate[i] for i in range(len(apps)) if rate[i] > 0]
        times += [joined - now for joined, _, _ in apps if joined > now]
        step = min(*times, until_s - now) if len(times) > 1 else min(times[0], until_s - now)
        done, left, now = done + rate * step, left - rate * step, now + step
        for i in range(len(apps)):
            if rate[i] > 0 and left[i] <= 1e-9 * todo[i][0].gpu_s:
                todo[i].pop(0)
                if todo[i]:
                    left[i] = todo[i][0].gpu_s
                else:
                    ends[i] = now
    return done, ends


gpu_s = st.floats(1.0, 1000.0) | st.sampled_from([10.0, 100.0])
some_gpus = st.sampled_from([1.0, 2.0, 4.0, 64.0]) | st.floats(0.1, 10.0)
phases = st.lists(st.builds(PhaseWork, gpu_s, some_gpus), min_size=1, max_size=4)
# The first app is there from the beginning, so that time passes for the slow way, too.
joins = st.just(0.0) | st.floats(0.0, 50.0)
apps = st.lists(st.tuples(joins, st.sampled_from([0.5, 1.0, 2.0]), phases), min_size=1, max_size=8)


@settings(max_examples=300, deadline=None)
@given(apps, st.sampled_from([1, 8, 64]), st.floats(0.1, 200.0))
def test_it_is_the_same_as_filling_anew_at_each_event(apps, gpus, until_s):
    apps = [(0.0, 1.0, [PhaseWork(200.0 * gpus, float(gpus))]), *apps]
    water = Water(
        float(gpus),
        [Taker(str(i), w, p, 0.0) for i, (joined, w, p) in enumerate(apps) if not joined],
        LEAST,
    )
    ended = []
    later = sorted((joined, i) for i, (joined, _, _) in enumerate(apps) if joined)
    for joined, i in later:
        if joined <= until_s:
            ended += water.run(joined)
            water.join(Taker(str(i), apps[i][1], apps[i][2], 0.0))
    ended += water.run(until_s)
    done, ends = slowly(apps, gpus, until_s)
    assert {app: s for app, s in ended if s < until_s * (1 - 1e-6)} == pytest.approx(
        {str(i): s for i, s in ends.items() if s < until_s * (1 - 1e-6)}, rel=1e-6
    )
    for taker in water.takers:
        assert water.done_gpu_s(taker) == pytest.approx(done[int(taker.app)], rel=1e-6, abs=1e-6)


def test_who_was_full_floats_again_when_the_level_falls():
    """``b`` has the 4 GPUs that it can use until ``a`` begins a phase that can use all 8."""
    a = Taker("a", 1.0, [PhaseWork(20.0, 2.0), PhaseWork(350.0, 8.0)], 0.0)
    b = Taker("b", 1.0, [PhaseWork(790.0, 4.0)], 0.0)
    c = Taker("c", 1.0, [PhaseWork(1000.0, 1.0)], 0.0)
    water = Water(8.0, [a, b, c], LEAST)
    assert water.level == pytest.approx(8 / 3)  # nobody is held back: what one more would have
    water.run(20.0)
    assert water.level == pytest.approx(3.5)
    assert [water.done_gpu_s(x) for x in (a, b, c)] == pytest.approx([20 + 35, 40 + 35, 20])
    assert dict(water.run(NEVER)) == pytest.approx({"a": 110.0, "b": 210.0, "c": 1000.0})


def test_without_apps_the_level_is_the_cluster():
    water = Water(8.0, [], LEAST)
    assert (water.level, water.run(NEVER)) == (8.0, [])
