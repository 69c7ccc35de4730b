import pytest
from policy_views import app, counts, got, job, kinds, round_of

from themis_ray.core.cluster import Cluster, Machine
from themis_ray.core.policies import BestEffort, YarnCs
from themis_ray.core.policies.yarn_cs import fewest_machines

M0 = {"m0": 4}


def queue():
    return [
        app("a", job(2), joined=1.0),
        app("b", job(3), joined=2.0),
        app("c", job(1), joined=3.0),
    ]


def test_the_first_that_does_not_fit_blocks_those_behind_it():
    outcome = YarnCs().allocate(round_of(M0, *queue()), {})
    assert counts(outcome) == {"a": 2}
    assert kinds(outcome) == {"a": "Assigned", "b": "QueueBlocked", "c": "QueueBlocked"}
    assert "'b'" in str(outcome.reasons["c"])
    assert "3 GPUs" in str(outcome.reasons["c"])
    assert "best-effort" in outcome.reasons["c"].remedy


def test_without_blocking_the_last_one_runs():
    assert counts(BestEffort().allocate(round_of(M0, *queue()), {})) == {"a": 2, "c": 1}


def test_nobody_is_preempted():
    assert YarnCs.keeps
    assert not YarnCs.preempts


@pytest.mark.parametrize(
    ("free", "where"),
    [
        ({"m0": 4, "m1": 4, "m2": 3}, {"m0": 4, "m2": 2}),
        ({"m0": 3, "m1": 3, "m2": 3}, {"m0": 3, "m1": 3}),
        ({"m0": 2, "m1": 2, "m2": 2}, None),
        ({"m0": 4, "m1": 1, "m2": 2}, {"m0": 4, "m2": 2}),
    ],
)
def test_a_job_waits_for_as_few_machines_as_it_needs(free, where):
    machines = {"m0": 4, "m1": 4, "m2": 4}
    view = round_of(machines, app("a", job(6, spans=True)), pool=free)
    assert got(YarnCs().allocate(view, {})) == ({"a": where} if where else {})
    assert counts(YarnCs(consolidate=False).allocate(view, {})) == {"a": 6}


def test_a_running_job_that_could_grow_does_not_block():
    grows = app("a", job(4, least=1), kept={"m0": 2}, joined=1.0)
    outcome = YarnCs().allocate(
        round_of({"m0": 4, "m1": 1}, grows, app("b", job(1), joined=2.0), pool={"m1": 1}), {}
    )
    assert counts(outcome) == {"a": 1}
    full = app("a", job(4, least=1), kept={"m0": 4}, joined=1.0)
    outcome = YarnCs().allocate(
        round_of({"m0": 4, "m1": 1}, full, app("b", job(1), joined=2.0), pool={"m1": 1}), {}
    )
    assert counts(outcome) == {"b": 1}
    assert kinds(outcome)["a"] == "Satisfied"


def test_fewest_machines():
    cluster = Cluster((Machine("a", 8), Machine("b", 4), Machine("c", 4)))
    assert [fewest_machines(n, cluster) for n in (1, 8, 9, 12, 13, 16)] == [1, 1, 2, 2, 3, 3]
