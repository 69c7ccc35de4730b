"""Whose GPUs are taken back before their lease ends."""

import math
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_views import NOW_S, app, job, round_of

from themis_ray.core.cluster import NOTHING, Allocation, Cluster, Machine
from themis_ray.core.fairness import PhaseWork
from themis_ray.core.policies import Themis
from themis_ray.core.policies.life import Forecast
from themis_ray.core.policies.recalling import Standing, recalls, standings
from themis_ray.testing.invariants import sum_up

DAY_S = 86400.0
M4 = {"m0": 4}
RESTART_S = 45.0


def standing(one, t_id_s=None, soonest_s=None):
    """How an app fares: T_id is that of its own word, and its jobs are all that it has to do."""
    longest_s = max((j.soonest_s for j in one.report.jobs), default=0.0)
    return Standing(
        one,
        one.report.t_ideal_s if t_id_s is None else t_id_s,
        longest_s if soonest_s is None else soonest_s,
    )


def found(view, factor=1.25, **t_ids):
    some = {name: standing(one, t_ids.get(name)) for name, one in view.apps.items()}
    return recalls(view, some, factor, RESTART_S)


def taken(recalled):
    return {name: dict(recall.gpus) for name, recall in recalled.items()}


def holder(name, *where, left=DAY_S, until=NOW_S + 500.0, r=1.0, t_ideal=None, **more):
    """An app of rigid jobs, one on each of some GPUs, that would end at an r."""
    jobs = [
        job(sum(gpus.values()), left=left * sum(gpus.values()), name=f"j{i}", spans=True)
        for i, gpus in enumerate(where)
    ]
    jobs = [replace(j, held=Allocation(g)) for j, g in zip(jobs, where, strict=True)]
    t_ideal = NOW_S + left if t_ideal is None else t_ideal
    kept = sum_up(Allocation(gpus) for gpus in where)
    return app(name, *jobs, r=r, t_ideal=t_ideal, kept=kept, kept_until=until, **more)


def waiter(name="short", left=60.0, gpus=1, spans=False, joined=NOW_S, **more):
    """An app of one job that has just come; alone, it takes what its job takes."""
    one = job(gpus, left=left * gpus, spans=spans)
    return app(name, one, joined=joined, t_ideal=left, **more)


def four_holders(**more):
    return [holder(f"long{i}", {"m0": 1}, **more) for i in range(4)]


# -- by hand ---------------------------------------------------------------------------------


def test_a_job_of_a_minute_recalls_one_gpu_of_those_that_run_for_days():
    """By waiting it would end after 560 s, at r = 560 / 60; the holder hardly notices."""
    view = round_of(M4, *four_holders(), waiter(), pool={})
    (name, recall), *others = found(view).items()
    assert not others
    assert (name, recall.gpus) == ("long0", Allocation({"m0": 1}))
    reason = recall.reason
    assert (reason.gpus, reason.urgent) == (recall.gpus, "short")
    assert reason.r_urgent == pytest.approx(560 / 60)
    # Two restarts and a minute without the GPU.
    assert reason.r == pytest.approx((NOW_S + DAY_S + 90 + 60) / (NOW_S + DAY_S))


def test_a_job_as_long_as_the_holders_recalls_none():
    """It would end after 4500 s instead of 4000 s."""
    holders = four_holders(left=4000.0)
    view = round_of(M4, *holders, waiter(left=4000.0), pool={})
    assert found(view) == {}
    assert found(view, factor=1.0) == {}  # a holder would lose more


def test_a_job_as_short_as_the_holders_recalls_none():
    """At r = 560 / 60 the waiting one is worse off by far, but so would the holder be."""
    holders = four_holders(left=60.0)
    view = round_of(M4, *(replace(h, joined_s=NOW_S) for h in holders), waiter(), pool={})
    assert found(view, **{f"long{i}": 60.0 for i in range(4)}, factor=4.0) == {}


def test_the_r_by_waiting_counts_from_when_leases_end():
    """With a lease that ends in 10 s, it would end after 70 s at r = 7 / 6."""
    near = holder("near", {"m0": 1}, until=NOW_S + 10.0)
    view = round_of({"m0": 2}, near, holder("far", {"m0": 1}), waiter(), pool={})
    assert found(view) == {}
    (recall,) = found(view, factor=1.1).values()
    assert recall.reason.r_urgent == pytest.approx(70 / 60)


def test_gpus_that_come_free_soon_are_reckoned_with_once():
    """The second of two jobs has to wait for the lease that ends in 500 s."""
    near = holder("near", {"m0": 1}, until=NOW_S + 10.0)
    view = round_of({"m0": 2}, near, holder("far", {"m0": 1}), waiter("s0"), waiter("s1"), pool={})
    (recall,) = found(view).values()
    assert recall.reason.r_urgent == pytest.approx(560 / 60)
    assert recall.reason.urgent == "s1"


def test_a_lease_of_which_no_end_is_known_takes_a_leases_time():
    view = round_of({"m0": 1}, holder("h", {"m0": 1}, until=math.inf), waiter(), pool={})
    (recall,) = found(view).values()
    assert recall.reason.r_urgent > 560 / 60


def test_a_holder_is_away_for_no_longer_than_a_lease():
    """A job of an hour, of which the holder misses ten minutes at a time."""
    late = waiter(left=3600.0, joined=NOW_S - 7200.0)
    view = round_of({"m0": 1}, holder("h", {"m0": 1}), late, pool={})
    (recall,) = found(view).values()
    assert recall.reason.r == pytest.approx((NOW_S + DAY_S + 90 + 600) / (NOW_S + DAY_S))


def test_those_that_lose_least_come_first():
    apps = [holder(f"h{r}", {"m0": 1}, r=r) for r in (3.0, 1.5, 2.0)]
    view = round_of({"m0": 3}, *apps, waiter("s0"), waiter("s1"), pool={})
    assert sorted(found(view)) == ["h1.5", "h2.0"]


def test_pinned_gpus_stay():
    fixed = [holder(f"h{i}", {"m0": 1}, pinned=Allocation({"m0": 1})) for i in range(2)]
    view = round_of({"m0": 2}, *fixed, waiter(), pool={})
    assert found(view) == {}
    free = holder("h2", {"m0": 1}, r=1.2)
    view = round_of({"m0": 3}, *fixed, free, waiter(), pool={})
    assert taken(found(view)) == {"h2": {"m0": 1}}


def test_a_job_does_not_take_the_gpus_of_its_own_app():
    long, short = job(left=DAY_S, name="long", held=Allocation({"m0": 1})), job(left=60.0)
    view = round_of(
        {"m0": 1},
        app("a", long, short, r=1.0, t_ideal=100.0, kept={"m0": 1}, kept_until=NOW_S + 500),
        pool={},
    )
    assert found(view) == {}


def test_who_has_not_answered_neither_waits_nor_loses():
    fair = {"h": Forecast(DAY_S, 1.0), "s": Forecast(NOW_S + 60, 1.0)}
    apps = [holder("h", {"m0": 1}), waiter("s")]
    for silent in ("h", "s"):
        some = [replace(one, answered=one.id != silent) for one in apps]
        view = round_of({"m0": 1}, *some, pool={})
        work = {name: [PhaseWork(60.0, 1.0)] for name in fair}
        assert silent not in standings(view, fair, work)
        assert recalls(view, standings(view, fair, work), 1.25, RESTART_S) == {}


def test_a_free_gpu_is_taken_before_any_is_recalled():
    view = round_of({"m0": 2}, holder("h", {"m0": 1}), waiter("s0"), pool={"m0": 1})
    assert found(view) == {}
    view = round_of({"m0": 2}, holder("h", {"m0": 1}), waiter("s0"), waiter("s1"), pool={"m0": 1})
    assert taken(found(view)) == {"h": {"m0": 1}}


def test_a_gang_takes_what_is_free_and_recalls_the_rest():
    holders = [holder(f"h{i}", {f"m{i}": 1}) for i in range(3)]
    machines = {"m0": 1, "m1": 1, "m2": 2}
    view = round_of(machines, *holders, waiter(gpus=2, spans=True), pool={"m2": 1})
    assert taken(found(view)) == {"h0": {"m0": 1}}


def test_a_gang_of_one_machine_recalls_gpus_of_one_machine():
    """Those of m1 lose more; but the one on m0 alone is of no use, and m2 has but two."""
    holders = [
        holder("h0", {"m0": 1}),
        holder("h1", {"m1": 1}, r=1.3),
        holder("h2", {"m1": 1}, r=1.2),
        holder("h3", {"m2": 1}, r=4.0),
        holder("h4", {"m2": 1}),
    ]
    machines = {"m0": 1, "m1": 2, "m2": 2}
    view = round_of(machines, *holders, waiter(gpus=2), pool={})
    assert taken(found(view)) == {"h1": {"m1": 1}, "h2": {"m1": 1}}


def test_a_job_that_is_spread_is_recalled_whole():
    wide = holder("wide", {"m0": 1, "m1": 1})
    view = round_of({"m0": 1, "m1": 1}, wide, waiter(), pool={})
    assert taken(found(view)) == {"wide": {"m0": 1, "m1": 1}}


def test_what_one_job_leaves_of_what_is_recalled_is_there_for_the_next():
    holders = [holder("wide", {"m0": 2}), holder("one", {"m0": 1}, r=1.1)]
    view = round_of({"m0": 3}, *holders, waiter("s0"), waiter("s1"), pool={})
    assert taken(found(view)) == {"wide": {"m0": 2}}


def test_several_jobs_of_one_app_may_be_recalled():
    view = round_of({"m0": 2}, holder("h", {"m0": 1}, {"m0": 1}), waiter(gpus=2), pool={})
    (recall,) = found(view).values()
    assert recall.gpus == recall.reason.gpus == Allocation({"m0": 2})


def test_nobody_is_recalled_for_an_app_that_wants_no_more():
    """A job that waits while the app has all that it wants, and a holder in want of more."""
    view = round_of(M4, *four_holders(), waiter(wants=0), pool={})
    assert found(view) == {}


# -- through the policy ------------------------------------------------------------------------


def a_minute_among_days(policy, short_s=60.0, long_s=DAY_S):
    """Four jobs have the cluster, and one more has come; all tell their work truly."""
    holders = [
        replace(h, report=replace(h.report, phases=(PhaseWork(long_s + NOW_S, 1.0),)))
        for h in four_holders(left=long_s, attained=NOW_S)
    ]
    late = waiter("short", left=short_s, phases=(PhaseWork(short_s, 1.0),))
    return policy.recall(round_of(M4, *holders, late, pool={}))


@pytest.mark.parametrize("ideal", ["clock", "told"])
def test_themis_recalls_a_gpu_for_a_job_of_a_minute(ideal):
    assert taken(a_minute_among_days(Themis(ideal=ideal))) == {"long0": {"m0": 1}}


def test_themis_recalls_none_for_a_job_that_is_as_long():
    assert a_minute_among_days(Themis(), short_s=DAY_S) == {}


def test_the_factor_says_from_which_r_on_leases_are_recalled():
    """Fair shares of 4 / 5 of a GPU: T_id of 75 s, and r = 560 / 75 by waiting."""
    (recall,) = a_minute_among_days(Themis(recall_factor=1.0)).values()
    assert recall.reason.r_urgent == pytest.approx(560 / 75)
    assert a_minute_among_days(Themis(recall_factor=7.5)) == {}
    # The holders' forecast is a little more than 0.8.
    assert len(a_minute_among_days(Themis(recall_factor=7.4))) == 1


def test_an_infinite_factor_recalls_nothing():
    assert Themis().recalls
    assert not Themis(recall_factor=math.inf).recalls
    assert a_minute_among_days(Themis(recall_factor=math.inf)) == {}


# -- any round ---------------------------------------------------------------------------------

FACTORS = st.floats(1.0, 4.0)


@st.composite
def some_rounds(draw, most_pool=2):
    """Up to four machines, with apps that hold GPUs, that wait for some, and that do both."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))
    machines = [Machine(f"m{i}", gpus, f"r{i % 2}") for i, gpus in enumerate(sizes)]
    units = draw(st.permutations([m.id for m in machines for _ in range(m.gpus)]))
    pool, units = units[:most_pool], units[most_pool:]
    pool = pool[: draw(st.integers(0, most_pool))]
    apps = []
    for i in range(draw(st.integers(2, 6))):
        jobs, kept = [], NOTHING
        busy = draw(st.booleans())  # whose jobs are long and run, as a rule
        for k in range(draw(st.integers(1, 3))):
            gpus, runs = draw(st.integers(1, 3)), busy or draw(st.booleans())
            held = NOTHING
            if runs and len(units) >= gpus:
                held = sum_up(Allocation({m: 1}) for m in units[:gpus])
                units = units[gpus:]
            left = draw(st.floats(1e3, 1e5) if busy else st.floats(1, 1e3))
            spans = draw(st.booleans()) or len(held) > 1
            restart_s = draw(st.sampled_from([0.0, 45.0]))
            jobs.append(
                job(gpus, left=left, name=f"j{k}", held=held, spans=spans, restart_s=restart_s)
            )
            kept = kept + held
        pinned = draw(st.sampled_from([NOTHING, NOTHING, *(j.held for j in jobs)]))
        apps.append(
            app(
                f"a{i}",
                *jobs,
                joined=draw(st.floats(0, NOW_S)),
                r=draw(st.floats(0.1, 5)) if kept else math.inf,
                t_ideal=draw(st.floats(1e3, 1e5) if busy else st.floats(10, 1e3)),
                answered=draw(st.sampled_from([True, True, True, False])),
                kept=kept,
                pinned=pinned,
                kept_until=NOW_S + draw(st.floats(0, 600)) if kept else math.inf,
            )
        )
    return round_of(machines, *apps, pool=sum_up(Allocation({m: 1}) for m in pool))


def some_standings(view):
    return {name: standing(one) for name, one in view.apps.items() if one.answered}


@given(some_rounds(), FACTORS)
def test_what_is_recalled_can_be_recalled(view, factor):
    for name, recall in recalls(view, some_standings(view), factor, RESTART_S).items():
        one = view.apps[name]
        assert one.answered
        assert NOTHING != recall.gpus <= one.kept
        assert recall.gpus == recall.reason.gpus
        assert not recall.gpus & one.report.pinned
        # Whole jobs, each as it lies.
        held = [j.held for j in one.report.jobs if j.held]
        some = (c for n in range(1, len(held) + 1) for c in combinations(held, n))
        assert recall.gpus in map(sum_up, some)


@given(some_rounds(), FACTORS)
def test_who_waits_is_worse_off_by_the_factor(view, factor):
    for name, recall in recalls(view, some_standings(view), factor, RESTART_S).items():
        reason = recall.reason
        assert reason.urgent != name
        assert view.apps[reason.urgent].needs
        assert reason.r_urgent >= factor
        assert reason.r_urgent >= factor * reason.r


@given(some_rounds(), FACTORS)
def test_a_greater_factor_never_recalls_for_the_first_time(view, factor):
    some = some_standings(view)
    if not recalls(view, some, factor, RESTART_S):
        assert not recalls(view, some, factor * 1.5, RESTART_S)


@given(some_rounds(), FACTORS)
def test_nothing_is_recalled_while_there_is_room(view, factor):
    """A machine more for each job that waits."""
    jobs = sum(len(one.report.jobs) for one in view.apps.values())
    more = [Machine(f"x{i:02d}", 4) for i in range(jobs)]
    room = replace(
        view,
        cluster=Cluster((*view.cluster.machines, *more)),
        pool=view.pool + Allocation({m.id: m.gpus for m in more}),
    )
    assert recalls(room, some_standings(room), factor, RESTART_S) == {}


@given(some_rounds(), st.integers(1, 4), st.booleans())
def test_who_recalls_finds_room(view, gpus, spans):
    """One job waits, of a minute; all others have what they want."""
    apps = {n: _content(one) for n, one in view.apps.items()}
    view = replace(view, apps={**apps, "short": waiter(gpus=gpus, spans=spans)})
    recalled = recalls(view, some_standings(view), 1.25, RESTART_S)
    room = view.pool + sum_up(recall.gpus for recall in recalled.values())
    if recalled:
        most = room.size if spans else max(room.values())
        assert most >= gpus
        enough = view.pool.size if spans else max(view.pool.values(), default=0)
        assert enough < gpus


def _content(one):
    """An app that has all that it wants: jobs that wait are left out."""
    jobs = tuple(j for j in one.report.jobs if j.held)
    return replace(one, report=replace(one.report, jobs=jobs, wants=one.kept.size))


@given(
    st.lists(st.floats(1.0, 20.0), min_size=1, max_size=6, unique=True),
    st.integers(1, 6),
    FACTORS,
)
def test_those_that_lose_least_are_recalled_and_none_for_nothing(rs, jobs, factor):
    """Holders of one GPU each that differ by their r only, and so many jobs of a minute."""
    until = NOW_S + 600.0  # a lease's time, which is what is left for those who come up later
    holders = {f"h{i}": holder(f"h{i}", {"m0": 1}, r=r, until=until) for i, r in enumerate(rs)}
    short = [waiter(f"s{i}") for i in range(jobs)]
    view = round_of({"m0": len(rs)}, *holders.values(), *short, pool={})
    recalled = found(view, factor)
    by_r = sorted(holders, key=lambda name: holders[name].report.r)
    assert sorted(recalled) == sorted(by_r[: len(recalled)])
    lost = (150 + NOW_S + DAY_S) / (NOW_S + DAY_S)
    able = [r for r in rs if factor * (r - 1 + lost) <= 11]
    assert len(recalled) == min(jobs, len(able))
