"""Cases small enough to be worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sim_worlds import FREE, app, cluster, job, simulate

from themis_ray.core.settings import ArbiterConfig
from themis_ray.errors import InvalidInputError, ThemisError
from themis_ray.sim import watch
from themis_ray.sim.cluster_file import MoveCost
from themis_ray.sim.jobs import TraceApp
from themis_ray.sim.settings import Failure

close = pytest.approx


@pytest.mark.parametrize("policy", ["themis-paper", "themis", "best-effort", "srtf", "drf"])
def test_a_single_job_alone_takes_its_start_and_its_work(policy: str) -> None:
    _, done = simulate(cluster(4), [app("a", job(1000, 4, 1))], policy, move=MoveCost(10, 35))
    assert done["a"].jct_s == close(35 + 1000 / 4)
    assert done["a"].gpu_s == close(4 * (35 + 250))
    assert done["a"].queued_s == close(0, abs=1e-6)


def test_names_may_hold_any_character() -> None:
    named = replace(job(1000, 4, 1), id="lr=1/8, a/b#2")
    _, done = simulate(cluster(4), [TraceApp("x/y#1", 0.0, "single", (named,))])
    assert done["x/y#1"].jct_s == close(250)


def test_work_takes_no_more_gpus_than_the_demand() -> None:
    _, done = simulate(cluster(4), [app("a", job(1000, 2, 1))])
    assert done["a"].jct_s == close(500)
    assert done["a"].gpu_s == close(1000)


@pytest.mark.parametrize(
    ("gpus", "racks", "s"), [((8,), 1, 1.2), ((4, 4), 1, 1.5), ((4, 4), 2, 2.0)]
)
def test_a_gang_is_slowed_down_by_where_it_lies(
    gpus: tuple[int, ...], racks: int, s: float
) -> None:
    sim = cluster(*gpus, slots=2, racks=racks, slot=1, machine=1.2, rack=1.5, cluster=2)
    _, done = simulate(sim, [app("a", job(800, 8))])
    assert done["a"].jct_s == close(100 * s)
    assert done["a"].score_gpu_s / done["a"].gpu_s == close(1 / s)


def test_a_gang_within_a_slot_has_the_slots_slowdown() -> None:
    sim = cluster(8, slots=2, slot=1.1, machine=1.2)
    _, done = simulate(sim, [app("a", job(400, 4))])
    assert done["a"].jct_s == close(110)


def test_an_elastic_job_shuns_gpus_that_would_slow_it_down() -> None:
    sim = cluster(3, 1, rack=1.5)
    _, done = simulate(sim, [app("a", job(300, 4, 1))])
    assert done["a"].jct_s == close(100)  # 3 GPUs at S = 1, not 4 at S = 1.5


def test_first_in_first_out_queues() -> None:
    _, done = simulate(cluster(1), [app("a", job(100)), app("b", job(50), at=10)], "yarn-cs")
    assert done["a"].jct_s == close(100)
    assert done["b"].jct_s == close(140)
    assert done["b"].queued_s == close(90)


def test_the_shortest_job_preempts_and_the_loser_saves_and_starts_again() -> None:
    apps = [app("long", job(1000)), app("short", job(100), at=200)]
    notice = ArbiterConfig(lease_s=5000, notice_s=20)
    _, done = simulate(cluster(1), apps, "srtf", move=MoveCost(10, 35), arbiter=notice)
    # Notice at 200, checkpoint from 210 to 220; the short one runs from 220 + 35 to 355.
    assert done["short"].jct_s == close(155)
    # The long one worked from 35 to 210, and does the rest from 355 + 35.
    assert done["long"].jct_s == close(355 + 35 + 1000 - 175)
    assert done["long"].preemptions == 1
    assert done["long"].queued_s == close(135)


def test_two_like_apps_share_evenly() -> None:
    apps = [app(name, job(1200, 2, 1)) for name in "ab"]
    _, done = simulate(cluster(2), apps, "drf")
    assert done["a"].jct_s == close(1200)
    assert done["b"].jct_s == close(1200)


def test_a_job_grows_when_gpus_come_free_and_it_pays() -> None:
    apps = [app("a", job(1000, 2, 1)), app("b", job(100, 1))]
    _, done = simulate(cluster(2), apps, "drf", move=MoveCost(0, 10))
    # b ends at 110; by then a has done 100, and goes on with 2 GPUs after a start of 10.
    assert done["b"].jct_s == close(110)
    assert done["a"].jct_s == close(120 + 900 / 2, abs=1.1)
    assert done["a"].restarts == 1
    assert done["a"].preemptions == 0


def test_a_job_does_not_grow_when_it_does_not_pay() -> None:
    apps = [app("a", job(120, 2, 1)), app("b", job(100, 1))]
    _, done = simulate(cluster(2), apps, "drf", move=MoveCost(0, 50))
    assert done["a"].jct_s == close(170)
    assert done["a"].restarts == 0


def test_jobs_of_an_app_share_its_gpus() -> None:
    _, done = simulate(cluster(2), [app("a", job(100), job(60), job(50))])
    # Longest first: 100 on one GPU; 60, then 50 on the other.
    assert done["a"].jct_s == close(110)


def test_successive_halving_runs_its_phases_one_after_another() -> None:
    # Seven times 16 s in three phases: 16, 32 and 64 s, with 4, 2 and 1 jobs.
    jobs = [job(112) for _ in range(4)]
    _, done = simulate(cluster(4), [app("a", *jobs, tuner="successive_halving")])
    assert done["a"].jct_s == close(16 + 32 + 64)
    assert done["a"].gpu_s == close(4 * 16 + 2 * 32 + 64)


def test_a_failed_machine_costs_what_was_not_saved() -> None:
    failures = (Failure(250, "m0"), Failure(400, "m0", up=True))
    _, done = simulate(
        cluster(2), [app("a", job(1000, 2))], failures=failures, checkpoint_every_s=100
    )
    # At 250 it had 200 s saved; it goes on at 400 with 300 s to do.
    assert done["a"].jct_s == close(400 + 300)
    assert done["a"].preemptions == 1


def test_a_job_moves_off_a_failed_machine() -> None:
    _, done = simulate(
        cluster(1, 1),
        [app("a", job(100))],
        failures=(Failure(30, "m0"), Failure(30, "m1", up=True)),
    )
    assert done["a"].jct_s == close(130)


def test_a_job_that_would_not_grow_asks_for_gpus_again_when_its_machine_fails() -> None:
    # When c ends at 300, a is offered a third GPU that does not pay; until its end it wants no
    # more. What it loses at 400 it wants back.
    apps = [app("a", job(1380, 4, 1)), app("c", job(100)), app("d", job(1000))]
    failures = (Failure(400, "m0"), Failure(410, "m0", up=True))
    _, done = simulate(cluster(4), apps, "drf", move=MoveCost(0, 200), failures=failures)
    assert done["a"].queued_s == close(10)
    assert done["a"].finish_s < 410 + 200 + 1380


def test_an_app_whose_gang_waits_goes_on_asking_for_it_while_its_other_job_cannot_grow() -> None:
    apps = [
        app("a", job(400, 4, 2), job(1380, 4, 2), job(400, 2, 1), tuner="curve_stopping"),
        app("b", job(1000, 3, 2), at=100, tuner="curve_stopping"),
        app("c", job(400, 3, 3), job(400, 4, 4), job(50, 4, 4), job(100, 3, 2)),
    ]
    _, done = simulate(cluster(2, 2, 1), apps, "slaq", move=MoveCost(0, 100))
    assert set(done) == {"a", "b", "c"}


def test_gpus_that_a_gang_is_about_to_need_are_not_taken_by_a_small_job_of_its_app() -> None:
    apps = [
        app("a", job(400, 4), job(5000, 1), at=100),
        app("b", job(2500, 2)),
        app("c", job(2500, 2)),
    ]
    notice = ArbiterConfig(lease_s=5000, notice_s=20)
    result, _ = simulate(cluster(2, 2), apps, "srtf", move=MoveCost(10, 35), arbiter=notice)
    gang = [stay for stay in result.stays if (stay.app, stay.job) == ("a", "0")]
    # b and c have had notice at 100 and leave at 120; the gang works from 155, at S = 1.1.
    assert [(stay.begin_s, stay.end_s) for stay in gang] == [(close(120), close(265))]


@pytest.mark.parametrize("policy", ["themis", "themis-paper", "drf", "srtf", "best-effort"])
def test_an_app_alone_takes_up_a_machine_that_comes_later(policy: str) -> None:
    failures = (Failure(0, "m1"), Failure(50, "m1", up=True))
    _, done = simulate(cluster(1, 1), [app("a", job(4000), job(4000))], policy, failures=failures)
    assert done["a"].jct_s == close(50 + 4000)


def test_a_job_that_nothing_is_left_for_is_reported() -> None:
    with pytest.raises(ThemisError, match="no job gets on any more, and 1 apps wait"):
        simulate(cluster(1), [app("a", job(400))], failures=(Failure(10, "m0"),))


def test_jobs_that_lose_all_their_work_at_each_end_of_a_lease_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "LEASES_WITHOUT_WORK", 50)
    apps = [app("a", job(4000)), app("b", job(4000))]
    with pytest.raises(ThemisError, match=r"a checkpoint takes 60 s, longer than notice and grace"):
        simulate(
            cluster(1),
            apps,
            "themis-paper",
            move=MoveCost(60, 0),
            arbiter=ArbiterConfig(lease_s=300, notice_s=20),
        )


def test_arrivals_at_one_instant_meet_in_one_round() -> None:
    result, done = simulate(cluster(1, 1, 1), [app(name, job(100)) for name in "abc"])
    assert [record.jct_s for record in done.values()] == close([100, 100, 100])
    assert result.rounds == 1


def test_a_gang_too_large_for_the_cluster_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="needs 4 GPUs at once"):
        simulate(cluster(2), [app("a", job(10, 4))])


def test_weights_scale_the_fair_share() -> None:
    apps = [app("a", job(3000, 3, 1), weight=2), app("b", job(3000, 3, 1))]
    _, done = simulate(cluster(3), apps, "drf", move=FREE)
    assert done["a"].jct_s < done["b"].jct_s
