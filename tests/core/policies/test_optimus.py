import math

import pytest
from policy_views import app, counts, job, kinds, round_of

from themis_ray.core.policies import Optimus
from themis_ray.core.policies.takers import takers_of
from themis_ray.errors import ConfigError


def key(policy, taker_job, gpus):
    """The key of the step from ``gpus`` to one more, on two machines of 4."""
    view = round_of({"m0": 4, "m1": 4}, app("a", taker_job))
    (taker,) = takers_of(view)
    found = policy.step_key(taker, gpus, 1, gpus, view)
    return None if found is None else found[0]


def test_marginal_gains_by_hand():
    """Throughput doubles from 1 to 2, is 3/2 from 2 to 3, and 5/4.4 beyond the machine (S 1.1)."""
    elastic = job(8, least=1)
    assert key(Optimus(), elastic, 0) == -math.inf
    assert key(Optimus(), elastic, 1) == pytest.approx(-1.0)
    assert key(Optimus(), elastic, 2) == pytest.approx(-0.5)
    assert key(Optimus(), elastic, 4) == pytest.approx(-(5 / 1.1 / 4 - 1))


def test_a_gpu_that_slows_a_job_down_is_not_given():
    bad = job(8, least=1, slowdown=(1.0, 1.0, 1.45, 1.45))
    assert key(Optimus(), bad, 4) is None  # 5 / 1.45 is less than 4
    outcome = Optimus().allocate(round_of({"m0": 4, "m1": 4}, app("a", bad)), {})
    assert counts(outcome) == {"a": 4}


def test_the_gain_in_time_is_what_the_rest_of_the_job_saves():
    """1200 GPU-s on 1, 2, 3 GPUs take 1200, 600, 400 s."""
    long = job(8, least=1, left=1200.0)
    assert key(Optimus(gain="time"), long, 1) == pytest.approx(-600.0)
    assert key(Optimus(gain="time"), long, 2) == pytest.approx(-200.0)


def test_ratios_even_out_and_times_favour_the_long():
    apps = [app("long", job(4, least=1, left=10000.0)), app("short", job(4, least=1, left=10.0))]
    view = round_of({"m0": 4}, *apps)
    assert counts(Optimus().allocate(view, {})) == {"long": 2, "short": 2}
    assert counts(Optimus(gain="time").allocate(view, {})) == {"long": 3, "short": 1}


def test_everybody_runs_before_anybody_grows():
    apps = [app(f"a{i}", job(4, least=1), joined=float(i)) for i in range(5)]
    outcome = Optimus().allocate(round_of({"m0": 4}, *apps), {})
    assert counts(outcome) == {"a0": 1, "a1": 1, "a2": 1, "a3": 1}
    assert kinds(outcome)["a4"] == "Outranked"


def test_a_gang_starts_whole_or_not_at_all():
    apps = [app("gang", job(4), joined=1.0), app("one", job(4, least=1), joined=0.0)]
    outcome = Optimus().allocate(round_of({"m0": 4}, *apps), {})
    assert counts(outcome) == {"one": 4}
    assert kinds(outcome)["gang"] == "GangTooLarge"


def test_gain_is_one_of_two():
    with pytest.raises(ConfigError, match="gain"):
        Optimus(gain="most")
