"""What ``themis`` does for a short app on a full cluster, and for a gang that lies apart."""

from __future__ import annotations

import math

import pytest
from sim_worlds import app, cluster, job, simulate

from themis_ray.core.cluster import Allocation
from themis_ray.core.settings import ArbiterConfig
from themis_ray.sim.cluster_file import MoveCost
from themis_ray.sim.jobs import Trace, TraceApp
from themis_ray.sim.judges import fluid_times_s
from themis_ray.sim.records import AppRecord, RunResult, Stay

NOTICE_S = 10.0
MOVE = MoveCost(10, 35)
TIMES = ArbiterConfig(lease_s=600.0, notice_s=NOTICE_S, grace_s=30.0)
DAY_S = 86400.0


def run(
    apps: list[TraceApp], *gpus: int, **options: object
) -> tuple[RunResult, dict[str, AppRecord], dict[str, float]]:
    """A run under ``themis``, and r of each app by the fluid T_id."""
    result, done = simulate(
        cluster(*gpus, rack=1.5), apps, "themis", move=MOVE, arbiter=TIMES, **options
    )
    ideal = fluid_times_s(Trace.of("t", apps), sum(gpus), 0)
    return result, done, {name: one.jct_s / ideal[name] for name, one in done.items()}


# -- a short app on a full cluster -------------------------------------------------------------


def full(*short: TraceApp, long_s: float = DAY_S) -> list[TraceApp]:
    return [*(app(f"long{i}", job(long_s)) for i in range(4)), *short]


def test_a_short_app_on_a_full_cluster_need_not_wait_for_a_lease_to_end() -> None:
    """It has come soon after all leases were renewed, which end at 1200 s."""
    apps = full(app("short", job(60), at=700))
    _, done, r = run(apps, 4)
    _, waiting, r_waiting = run(apps, 4, recall_factor=math.inf)
    assert done["short"].jct_s == pytest.approx(NOTICE_S + 35 + 60, abs=1)
    assert waiting["short"].jct_s > 500
    assert r["short"] < 2
    assert r["short"] < r_waiting["short"] / 4
    assert max(r.values()) < max(r_waiting.values())


def test_one_holder_loses_a_restart_at_either_end_and_the_time_between() -> None:
    apps = full(app("short", job(60), at=700))
    _, done, r = run(apps, 4)
    hit = [name for name, one in done.items() if one.preemptions]
    assert len(hit) == 1
    (held_up,) = (done[name] for name in hit)
    assert (held_up.preemptions, held_up.restarts) == (1, 0)
    others = [done[f"long{i}"].jct_s for i in range(4) if f"long{i}" not in hit]
    assert others == pytest.approx([35 + DAY_S] * 3)
    # Its checkpoint, the short app's start and run, and a start of its own.
    lost_s = held_up.jct_s - others[0]
    assert lost_s == pytest.approx(10 + 35 + 60 + 35, abs=1)
    assert r[hit[0]] < 1.01


def test_an_app_as_long_as_the_others_takes_nothing_before_its_time() -> None:
    apps = full(app("as-long", job(4000), at=700), long_s=4000)
    _, done, _ = run(apps, 4)
    result, same, _ = run(apps, 4, recall_factor=math.inf)
    assert done == same
    first = min(stay.begin_s for stay in result.stays if stay.app == "as-long")
    assert first >= 1200 - NOTICE_S


@pytest.mark.parametrize("factor", [1.0, 1.25, 3.0])
def test_short_apps_one_after_the_other_cost_each_holder_little(factor: float) -> None:
    short = [app(f"short{i}", job(60), at=700 + 40 * i) for i in range(8)]
    _, done, r = run(full(*short), 4, recall_factor=factor)
    assert all(r[one.id] < 5 for one in short)
    assert all(r[f"long{i}"] < 1.05 for i in range(4))
    assert sum(one.preemptions for one in done.values()) <= len(short)


def test_a_short_gang_is_given_gpus_of_several_holders() -> None:
    apps = full(app("gang", job(4 * 60, 4), at=700))
    _, done, r = run(apps, 4)
    assert done["gang"].jct_s == pytest.approx(NOTICE_S + 35 + 60, abs=1)
    assert [done[f"long{i}"].preemptions for i in range(4)] == [1] * 4
    assert all(r[f"long{i}"] < 1.01 for i in range(4))


# -- a gang that lies apart --------------------------------------------------------------------


def wide_stays(work_s: float) -> tuple[list[Stay], AppRecord]:
    """A gang of 4 that finds two GPUs on either machine; two come free at 535 s."""
    apps = [
        app("x", job(2 * 500, 2)),
        app("y", job(3 * 8000, 3)),
        app("wide", job(4 * work_s, 4), at=10),
    ]
    result, done, _ = run(apps, 4, 5)
    stays = [stay for stay in result.stays if stay.app == "wide"]
    assert stays[0].gpus == Allocation({"m0": 2, "m1": 2})
    assert done["y"].preemptions == 0
    return stays, done["wide"]


@pytest.mark.parametrize("work_s", [1000.0, 20000.0])
def test_a_gang_that_lies_apart_moves_together_when_it_has_long_to_run(work_s: float) -> None:
    stays, done = wide_stays(work_s)
    apart, together = stays
    assert together.gpus == Allocation({"m0": 4})
    assert (apart.s, together.s) == (1.5, 1.0)
    # It moves when its lease comes up for renewal.
    assert 535 < together.begin_s < 10 + 600 + NOTICE_S
    assert (done.preemptions, done.restarts) == (1, 0)


def test_a_gang_that_lies_apart_stays_when_it_is_nearly_done() -> None:
    """At 610 s it has 70 s left on one machine: less than 45 s more as it lies."""
    (only,), done = wide_stays(440.0)
    assert only.end_s == pytest.approx(10 + 35 + 440 * 1.5)
    assert (done.preemptions, done.restarts) == (0, 0)
