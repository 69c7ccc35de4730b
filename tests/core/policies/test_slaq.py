from policy_views import app, counts, job, round_of

from themis_ray.core.policies import Slaq


def test_the_greatest_loss_decrease_per_second_goes_first():
    """0.2 an iteration of 4 s is 0.05 a second, less than 0.1 an iteration of 1 s."""
    slow = app("slow", job(4, least=1, iter_s=4.0, loss_decrease=0.2))
    fast = app("fast", job(4, least=1, iter_s=1.0, loss_decrease=0.1), joined=9.0)
    outcome = Slaq().allocate(round_of({"m0": 4}, slow, fast), {})
    assert counts(outcome) == {"fast": 4}
    assert outcome.reasons["fast"].key == -0.1


def test_beyond_a_machine_a_gpu_lowers_the_loss_less():
    """The fifth GPU of the first one adds 5 / 1.1 - 4 = 0.55 of its decrease, 0.1."""
    best = app("best", job(8, least=1, loss_decrease=0.1))
    next_ = app("next", job(8, least=1, loss_decrease=0.06))
    outcome = Slaq().allocate(round_of({"m0": 4, "m1": 4}, best, next_), {})
    assert counts(outcome) == {"best": 4, "next": 4}


def test_unknown_decreases_come_last():
    apps = [app("a", job(2)), app("b", job(2, loss_decrease=1e-6), joined=5.0)]
    assert counts(Slaq().allocate(round_of({"m0": 2}, *apps), {})) == {"b": 2}
    assert counts(Slaq().allocate(round_of({"m0": 4}, *apps), {})) == {"a": 2, "b": 2}
