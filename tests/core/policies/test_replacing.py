"""Placing a decided round anew."""

import random
from dataclasses import replace

import pytest
from policy_views import app, job, round_of

from themis_ray.core.cluster import NOTHING, Allocation, Machine
from themis_ray.core.policies.base import Award
from themis_ray.core.policies.replacing import placed_anew
from themis_ray.core.policies.themis import jobs_of
from themis_ray.testing.invariants import sum_up
from themis_ray.testing.policy_contract import random_view


def awards(**gpus):
    return {name: Award(Allocation(some)) for name, some in gpus.items()}


def jobs_in(view, order=()):
    """Apps in this order, the others after them; jobs that run first."""
    of = jobs_of(view)
    apps = [*order, *(name for name in of if name not in order)]
    return {a: sorted(of[a], key=lambda t: not t.runs) for a in apps if a in of}


def placed(view, given, order=()):
    anew = placed_anew(view, given, jobs_in(view, order))
    return {name: dict(a.gpus) for name, a in anew.items()}


def test_a_job_that_runs_stays_where_it_is():
    view = round_of(
        {"m0": 4, "m1": 4},
        app("a", job(4), expiring={"m1": 4}),
        app("b", job(4)),
    )
    assert placed(view, awards(a={"m0": 4}, b={"m1": 4}), "ba") == {"a": {"m1": 4}, "b": {"m0": 4}}


def test_what_is_won_comes_near_what_is_kept():
    """``a`` keeps two GPUs of m1; a bid cannot say that it wants the others of that machine."""
    view = round_of(
        {"m0": 4, "m1": 4},
        app("a", job(4, least=1), kept={"m1": 2}),
        app("b", job(2, least=1)),
        pool={"m0": 4, "m1": 2},
    )
    assert placed(view, awards(a={"m0": 2}, b={"m1": 2})) == {"a": {"m1": 2}, "b": {"m0": 2}}


def test_gangs_come_together():
    view = round_of(
        {"m0": 2, "m1": 2}, app("a", job(2)), app("b", job(1, name="j0"), job(1, name="j1"))
    )
    given = awards(a={"m0": 1, "m1": 1}, b={"m0": 1, "m1": 1})
    assert {len(gpus) for gpus in placed(view, given).values()} == {1}


def test_who_comes_first_chooses_first():
    view = round_of(
        [Machine("m0", 3), Machine("m1", 3)],
        *(app(name, job(2, least=1, spans=True)) for name in "abc"),
    )
    given = awards(a={"m0": 2}, b={"m0": 1, "m1": 1}, c={"m1": 2})
    for last in "abc":
        order = [name for name in "abc" if name != last] + [last]
        split = [name for name, gpus in placed(view, given, order).items() if len(gpus) > 1]
        assert split == [last]


def test_jobs_take_their_apps_gpus_in_the_order_given():
    """Two GPUs: for the gang of two when it comes first, else one for the single job."""
    view = round_of({"m0": 1, "m1": 2}, app("a", job(2, name="gang"), job(1, name="single")))
    gang, single = jobs_of(view)["a"]
    given = awards(a={"m0": 1, "m1": 1})
    assert placed_anew(view, given, {"a": [gang, single]})["a"].gpus == Allocation({"m1": 2})
    assert placed_anew(view, given, {"a": [single, gang]}) == given


def test_what_cannot_be_placed_otherwise_stays_as_it_was():
    """A gang of one machine was given GPUs of two, and there is no other place for it."""
    view = round_of({"m0": 1, "m1": 1}, app("a", job(2)))
    given = awards(a={"m0": 1, "m1": 1})
    assert placed_anew(view, given, jobs_in(view)) == given
    assert placed_anew(view, {}, jobs_in(view)) == {}


SPREAD = {"m0": 1, "m1": 1}


def spread(own=SPREAD, machines=None, **others):
    """A gang of two that runs on two machines, or on what is given."""
    one = app("a", job(2, spans=True, held=Allocation(own)), expiring=own)
    return round_of(machines or {"m0": 1, "m1": 1, "m2": 2}, one, *others.values())


def test_a_spread_job_moves_to_the_gpus_that_its_app_has_won_instead():
    assert placed(spread(), awards(a={"m2": 2})) == {"a": {"m2": 2}}


def test_a_spread_job_whose_app_has_won_its_gpus_again_stays():
    assert placed(spread(), awards(a=SPREAD)) == {"a": SPREAD}


def test_a_spread_job_that_has_lost_one_of_its_gpus_moves_together():
    """It restarts in any case, and two free GPUs lie on one machine."""
    assert len(placed(spread(), awards(a={"m0": 1, "m2": 1}))["a"]) == 1


@pytest.mark.parametrize("won", [{"m1": 2}, {"m2": 2}, SPREAD])
def test_a_job_on_one_machine_stays_whatever_its_app_has_won(won):
    view = spread({"m0": 2}, dict.fromkeys(["m0", "m1", "m2"], 2))
    assert placed(view, awards(a=won)) == {"a": {"m0": 2}}


def test_of_an_apps_jobs_only_the_spread_one_moves():
    jobs = [
        job(2, name="near", spans=True, held=Allocation({"m0": 2})),
        job(2, name="far", spans=True, held=Allocation(SPREAD)),
    ]
    own = {"m0": 3, "m1": 1}
    view = round_of({"m0": 3, "m1": 3, "m2": 2}, app("a", *jobs, expiring=own))
    assert placed(view, awards(a={"m0": 2, "m2": 2})) == {"a": {"m0": 2, "m2": 2}}
    assert placed(view, awards(a={"m1": 2, "m2": 2})) == {"a": {"m0": 2, "m2": 2}}
    assert placed(view, awards(a=own)) == {"a": own}


def test_who_runs_on_one_machine_is_not_moved_by_a_spread_job():
    """``b`` stays where it is, though ``a`` has won GPUs there."""
    other = app("b", job(2, spans=True, held=Allocation({"m2": 2})), expiring={"m2": 2})
    view = spread(b=other)
    assert placed(view, awards(a={"m2": 2}, b=SPREAD)) == {"a": SPREAD, "b": {"m2": 2}}


def random_awards(view, rng):
    """Any GPUs to anybody who could use that many."""
    free, out = view.pool, {}
    for name, one in view.apps.items():
        count = rng.randint(0, min(one.needs, free.size))
        units = [m for m, c in free.items() for _ in range(c)]
        gpus = sum_up(Allocation({m: 1}) for m in rng.sample(units, count))
        free = free - gpus
        if gpus:
            out[name] = Award(gpus, rng.uniform(0.1, 1.0))
    return out


@pytest.mark.parametrize("seed", range(200))
def test_counts_and_lease_times_are_kept_and_nothing_is_given_twice(seed):
    rng = random.Random(seed)
    view = random_view(rng, seed)
    given = random_awards(view, rng)
    anew = placed_anew(view, given, jobs_in(view, rng.sample(sorted(given), len(given))))
    assert list(anew) == list(given)
    for name, award in anew.items():
        assert award.gpus.size == given[name].gpus.size
        assert award.lease_fraction == given[name].lease_fraction
    assert sum_up(award.gpus for award in anew.values()) <= view.pool


@pytest.mark.parametrize("seed", range(100))
def test_who_keeps_the_size_of_the_only_job_keeps_the_gpus(seed):
    rng = random.Random(seed)
    view = random_view(rng, seed)
    apps = {}
    for name, one in view.apps.items():
        own = one.expiring or NOTHING
        only = job(max(1, own.size), spans=True, held=own)
        report = replace(one.report, jobs=(only,), wants=only.max_gpus, gang=only.min_gpus)
        apps[name] = replace(one, kept=NOTHING, report=report, answered=True)
    view = replace(view, apps=apps)
    own = {name: one.expiring for name, one in apps.items() if one.expiring}
    # The same GPUs, dealt out at random.
    units = [m for gpus in own.values() for m, c in gpus.items() for _ in range(c)]
    rng.shuffle(units)
    given = {
        name: Award(sum_up(Allocation({units.pop(): 1}) for _ in range(gpus.size)))
        for name, gpus in own.items()
    }
    anew = placed_anew(view, given, jobs_in(view))
    assert {name: award.gpus for name, award in anew.items()} == own
