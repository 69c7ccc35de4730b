import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_views import app, job, round_of

from themis_ray.core.cluster import NOTHING, Allocation, Cluster, Level, Machine
from themis_ray.core.policies import BestEffort
from themis_ray.core.policies.placing import Request, Room, place
from themis_ray.core.policies.takers import takers_of

CLUSTER = Cluster(
    (
        Machine("a0", 4, "a"),
        Machine("a1", 4, "a"),
        Machine("b0", 8, "b"),
        Machine("b1", 4, "b"),
        Machine("b2", 4, "b"),
    )
)


def room(**free):
    return Room(Allocation(free), CLUSTER)


@pytest.mark.parametrize(
    ("free", "count", "bundle"),
    [
        ({"a0": 4, "a1": 2, "b0": 3}, 2, {"a1": 2}),  # the tightest machine
        ({"a0": 4, "a1": 3, "b0": 6}, 5, {"b0": 5}),
        ({"a0": 2, "a1": 2, "b0": 3, "b1": 3}, 4, {"a0": 2, "a1": 2}),  # one rack, tightly
        ({"b0": 4, "b1": 3, "b2": 1}, 5, {"b0": 4, "b2": 1}),  # the rest on the tightest
        ({"a0": 3, "b0": 3}, 5, {"a0": 3, "b0": 2}),  # anywhere
        ({"a0": 1}, 3, {"a0": 1}),  # no more than there are
        ({"a0": 1}, 0, {}),
    ],
)
def test_as_near_together_as_can_be(free, count, bundle):
    assert dict(room(**free).nearest(count)) == bundle


def test_near_what_one_has():
    near = Allocation({"b0": 1})
    assert dict(room(a0=2, b0=4).nearest(2, near)) == {"b0": 2}
    assert dict(room(a0=3, a1=3, b0=3, b1=3).nearest(5, near)) == {"b0": 3, "b1": 2}


def test_few_machines_or_many():
    assert dict(room(a0=2, a1=2, b0=4).fewest(4)) == {"b0": 4}
    assert dict(room(a0=2, a1=2, a=0, b0=4, b1=1, b2=1).fewest(6)) == {"b0": 4, "a0": 2}
    assert dict(room(a0=4, a1=2, b0=3, b1=4).spread(6)) == {"a1": 2, "b0": 3, "a0": 1}


def test_those_that_run_keep_their_gpus_before_others_choose():
    own = Allocation({"a0": 2})
    placed = place([Request(4), Request(2, own)], Allocation({"a0": 4, "b0": 4}), CLUSTER)
    assert placed == [Allocation({"b0": 4}), own]


def test_one_that_shrinks_keeps_part_of_its_own():
    own = Allocation({"a0": 1, "b0": 3})
    (placed,) = place([Request(2, own)], CLUSTER.capacity, CLUSTER)
    assert placed == Allocation({"b0": 2})


def test_one_that_grows_stays_unless_it_can_lie_better_elsewhere():
    own = Allocation({"a0": 2})
    (stays,) = place([Request(4, own)], Allocation({"a0": 4, "b0": 8}), CLUSTER)
    assert stays == Allocation({"a0": 4})
    (moves,) = place([Request(4, own)], Allocation({"a0": 2, "a1": 2, "b0": 4}), CLUSTER)
    assert moves == Allocation({"b0": 4})
    (cannot,) = place([Request(4, own)], Allocation({"a0": 2, "a1": 2, "b0": 3}), CLUSTER)
    assert cannot == Allocation({"a0": 2, "a1": 2})


def test_a_gang_of_one_machine_that_finds_none_is_told():
    pool = Allocation({"a0": 2, "a1": 2})
    assert place([Request(4, spans=False)], pool, CLUSTER) is None
    assert place([Request(4)], pool, CLUSTER) == [pool]


@pytest.mark.parametrize("seed", range(50))
def test_counts_and_capacity_hold_and_a_renewal_never_moves(seed):
    rng = random.Random(seed)
    pool = Allocation({m.id: rng.randint(0, m.gpus) for m in CLUSTER.machines})
    left, requests = pool, []
    while left.size:
        own = NOTHING
        if rng.random() < 0.5:
            machine = rng.choice(list(left))
            own = Allocation({machine: rng.randint(1, left[machine])})
        count = own.size or rng.randint(1, left.size)
        requests.append(Request(count, own))
        left = left - (own or Room(left, CLUSTER).nearest(count))
    placed = place(requests, pool, CLUSTER)
    total = NOTHING
    for request, gpus in zip(requests, placed, strict=True):
        total = total + gpus
        assert gpus.size == request.count
        assert not request.own or gpus == request.own
        assert gpus.size > 8 or CLUSTER.level(gpus) <= Level.CLUSTER
    assert total <= pool


def test_gpus_are_dealt_to_the_jobs_that_say_so_and_else_to_the_first():
    told = job(2, name="x"), job(2, name="y", held=Allocation({"m0": 2}))
    view = round_of({"m0": 4}, app("a", *told, expiring={"m0": 2}))
    assert [dict(t.own) for t in takers_of(view)] == [{}, {"m0": 2}]
    untold = job(2, name="x"), job(2, name="y")
    view = round_of({"m0": 4}, app("a", *untold, expiring={"m0": 2}))
    assert [dict(t.own) for t in takers_of(view)] == [{"m0": 2}, {}]


def test_jobs_that_have_all_they_can_use_take_no_part():
    view = round_of({"m0": 4}, app("a", job(2, name="x"), job(1, name="y"), kept={"m0": 2}))
    assert [t.job.id for t in takers_of(view)] == ["y"]


def test_an_app_that_lists_no_jobs_counts_as_its_gangs():
    elastic = app("a", wants=3)
    (taker,) = takers_of(round_of({"m0": 4}, elastic))
    assert (taker.gang, taker.most, taker.spans) == (1, 3, True)
    # Its work is T_id, 1000 s, on its share: all 3 GPUs that it wants.
    assert taker.job.work_left_gpu_s == 3000.0


def test_what_expires_may_exceed_the_pool():
    """A lease may have received GPUs after the round began."""
    apps = [app(n, job(2, held=Allocation({"m0": 2})), expiring={"m0": 2}) for n in "ab"]
    view = round_of({"m0": 4}, *apps, pool={"m0": 3})
    assert [dict(t.own) for t in takers_of(view)] == [{"m0": 2}, {"m0": 1}]
    outcome = BestEffort().allocate(view, {})
    assert {name: award.gpus.size for name, award in outcome.awards.items()} == {"a": 2}


@given(
    st.dictionaries(st.sampled_from(sorted(CLUSTER.by_id)), st.integers(1, 4), min_size=1),
    st.lists(st.tuples(st.sampled_from(sorted(CLUSTER.by_id)), st.integers(-3, 3)), max_size=8),
    st.integers(1, 4),
    st.dictionaries(st.sampled_from(sorted(CLUSTER.by_id)), st.integers(1, 2), max_size=2),
)
def test_the_tightest_machine_is_found_whatever_was_taken_and_given(free, changes, count, near):
    some = room(**free)
    for machine, by in changes:
        some.nearest(1)  # builds the index that the changes have to keep
        if by > 0:
            some.give(Allocation({machine: by}))
        elif by and some.free.get(machine, 0) >= -by:
            some.take(Allocation({machine: -by}))
    fits = [m for m, left in some.free.items() if left >= count]
    if fits:
        best = min(fits, key=lambda m: (m not in near, some.free[m], m))
        assert dict(some.nearest(count, Allocation(near))) == {best: count}
    assert some.size == sum(some.free.values())
