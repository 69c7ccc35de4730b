from policy_views import app, counts, job, kinds, round_of

from themis_ray.core.policies import BestEffort


def test_first_in_first_out():
    apps = [app(n, job(2), joined=t) for n, t in (("a", 3.0), ("b", 1.0), ("c", 2.0))]
    outcome = BestEffort().allocate(round_of({"m0": 4}, *apps), {})
    assert counts(outcome) == {"b": 2, "c": 2}
    assert [outcome.reasons[n].rank for n in "bca"] == [1, 2, 3]
    assert kinds(outcome)["a"] == "Outranked"


def test_a_gang_that_does_not_fit_is_skipped():
    apps = [app("a", job(3), joined=1.0), app("b", job(3), joined=2.0), app("c", job(1))]
    outcome = BestEffort().allocate(round_of({"m0": 4}, *apps), {})
    assert counts(outcome) == {"a": 3, "c": 1}
    outcome = BestEffort().allocate(round_of({"m0": 5}, *apps), {})
    assert kinds(outcome)["b"] == "GangTooLarge"
    assert "3 GPUs together" in str(outcome.reasons["b"])


def test_nobody_is_preempted():
    assert BestEffort.keeps


def test_an_app_that_did_not_report_sits_the_round_out():
    outcome = BestEffort().allocate(round_of({"m0": 4}, app("a", job(), answered=False)), {})
    assert kinds(outcome) == {"a": "NoAnswer"}
    assert not outcome.awards


def test_an_app_that_has_all_it_wants_is_told_so():
    outcome = BestEffort().allocate(
        round_of({"m0": 4}, app("a", job(2), kept={"m0": 2}), pool={"m0": 2}), {}
    )
    assert kinds(outcome) == {"a": "Satisfied"}
