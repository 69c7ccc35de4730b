"""What a journal tells of apps, jobs and machines, and the trace that is made of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.sim.recorded import CONFIG, MACHINES, busy_agents, record
from themis_ray.core import events as ev
from themis_ray.core.cluster import Allocation, Level, Machine
from themis_ray.core.journal import Entry, Header, Line, header_of
from themis_ray.core.policies import Drf, ThemisPaper, TiresiasL
from themis_ray.core.policies.base import Policy
from themis_ray.errors import JournalError
from themis_ray.sim.cluster_file import MoveCost, load_cluster
from themis_ray.sim.replay_history import History
from themis_ray.sim.replay_live import live_figures, live_result
from themis_ray.sim.replay_trace import Recorded, cluster_yaml, recorded_workload
from themis_ray.sim.settings import Failure
from themis_ray.sim.traces import load_trace, write_themis_csv

ONE = Allocation({"m0": 1})
HEADER = header_of(Drf(), CONFIG, "r1", now_s=100.0, wall_s=5100.0)


def job(name: str, left: float, done: float = 0.0, **more: object) -> ev.JobReport:
    return ev.JobReport(name, left, 2.0, iterations_done=done, **more)  # type: ignore[arg-type]


def report(*jobs: ev.JobReport, r: float = 1.5) -> ev.AppReport:
    return ev.AppReport(r, r * 10, 10.0, len(jobs), jobs=jobs)


def history(*lines: Line) -> History:
    made = History()
    for line in lines:
        made.take("here", line)
    return made.finish()


def timed(*events: tuple[float, ev.Event]) -> list[Line]:
    return [Entry(time_s, event) for time_s, event in events]


def life(name: str, begin_s: float) -> list[Line]:
    """An app that joins, runs one of its two jobs for 19 s, and leaves after 22 s."""
    group = f"{name}/j0/x"
    return timed(
        (begin_s, ev.AppJoined(name, report(job("j0", 10), job("j1", 10)), 2.0)),
        (begin_s + 1, ev.GroupRequested(name, group, ONE)),
        (begin_s + 2, ev.GroupReady(group)),
        (begin_s + 10, ev.Reported(name, report(job("j0", 6, 4), job("j1", 10), r=2.0))),
        (begin_s + 21, ev.GroupGone(group)),
        (begin_s + 22, ev.Reported(name, report(r=2.5))),
        (begin_s + 22, ev.AppLeft(name)),
    )


CLUSTER = Entry(100.0, ev.ClusterChanged((Machine("m0", 2),)))


def test_a_life_exactly() -> None:
    told = history(HEADER, CLUSTER, *life("a", 103.0))
    recorded = recorded_workload(told, "j")
    [app] = recorded.trace.apps
    # 4 iterations were told of at 10 s; then its group lived 11 s, and an iteration takes 2 s.
    assert [(j.id, j.iterations) for j in app.jobs] == [("j0", 4 + 11 / 2)]
    assert (app.arrival_s, app.weight, app.tuner) == (0.0, 2.0, "single")
    assert recorded.notes == ("1 jobs that never ran are left out",)
    result = live_result(told, recorded)
    [was] = result.apps
    assert (was.jct_s, was.queued_s, was.gpu_s, was.preemptions) == (22.0, 3.0, 19.0, 0)
    figures = live_figures(told, recorded, "fluid", 0)
    assert figures is not None
    # Alone, its one job takes 19 s on its GPU.
    assert figures["apps"][0]["r"] == pytest.approx(22 / 19)
    assert figures["apps"][0]["reported_r"] == 2.5


def test_a_job_has_run_no_more_than_it_had_left() -> None:
    lines = life("a", 103.0)
    early = replace(lines[3], event=ev.Reported("a", report(job("j0", 1, 4), job("j1", 10))))  # type: ignore[type-var]
    told = history(HEADER, CLUSTER, *lines[:3], early, *lines[4:])
    [app] = recorded_workload(told, "j").trace.apps
    assert app.jobs[0].iterations == 5


def test_what_was_refused_did_not_happen() -> None:
    lines = life("a", 103.0)
    refused = [Entry(104.0, ev.AppLeft("a"), "UnknownAppError")]
    told = history(HEADER, CLUSTER, lines[0], *refused, *lines[1:])
    assert [app.end_s for app in told.apps] == [told.begin_s + 22]


def test_a_name_that_comes_again_is_another_app() -> None:
    told = history(HEADER, CLUSTER, *life("a", 103.0), *life("a", 203.0))
    trace = recorded_workload(told, "j").trace
    assert [(app.id, app.arrival_s) for app in trace.apps] == [("a", 0.0), ("a#2", 100.0)]


def test_an_app_that_outlives_the_journal() -> None:
    lines = life("a", 103.0)[:4]
    told = history(HEADER, CLUSTER, *lines, Entry(120.0, ev.Tick()))
    recorded = recorded_workload(told, "j")
    [app] = recorded.trace.apps
    assert [j.iterations for j in app.jobs] == [10, 10]  # what was expected of them
    assert recorded.notes[0].startswith("still running at the end: a;")
    assert live_result(told, recorded).apps[0].gpu_s == 15.0
    assert live_figures(told, recorded, "fluid", 0) is None


def test_an_app_lives_on_over_a_restart_with_another_clock() -> None:
    """The second arbiter's clock shows 7 where the first one's showed 115."""
    lines = life("a", 103.0)
    second = header_of(Drf(), CONFIG, "r2", now_s=7.0, wall_s=5115.0, hold_until_s=13.0)
    held = (ev.HeldGroup("a/j0/x", ONE),)
    later = timed(
        (7.1, ev.ClusterChanged((Machine("m0", 2),))),
        (8.0, ev.AppJoined("a", report(job("j0", 6, 4), job("j1", 10)), 2.0, held)),
        (16.0, ev.GroupGone("a/j0/x")),
        (17.0, ev.AppLeft("a")),
    )
    told = history(HEADER, CLUSTER, *lines[:4], second, *later)
    recorded = recorded_workload(told, "j")
    [was] = live_result(told, recorded).apps
    assert (was.jct_s, was.gpu_s) == (22.0, 19.0)
    assert recorded.failures == ()


def test_what_no_restarted_arbiter_hears_of_has_ended() -> None:
    lines = life("a", 103.0)
    second = header_of(Drf(), CONFIG, "r2", now_s=900.0, wall_s=5900.0)
    told = history(HEADER, CLUSTER, *lines[:4], second, *life("b", 903.0))
    recorded = recorded_workload(told, "j")
    was = {record.id: record for record in live_result(told, recorded).apps}
    assert was["a"].gpu_s == 8.0  # from 105 until it was last heard of
    assert was["b"].gpu_s == 19.0


def test_a_journal_without_its_beginning_tells_what_it_can() -> None:
    header = replace(HEADER, part=3, machines=(Machine("m0", 2),))
    lines = life("a", 103.0)
    later = replace(lines[3].event, report=replace(lines[3].event.report, elapsed_s=50.0))  # type: ignore[union-attr]
    told = history(header, Entry(113.0, later), *lines[4:])
    [app] = told.apps
    assert (app.joined_s, app.left_s) == (5113.0 - 50, 5125.0)
    assert recorded_workload(told, "j").cluster.cluster.gpus == 2


def test_machines_that_come_and_go() -> None:
    big, small = Machine("m0", 2), Machine("m1", 1, "r1")
    lines = life("a", 103.0)
    told = history(
        HEADER,
        CLUSTER,
        lines[0],
        *timed((104.0, ev.ClusterChanged((big, small)))),
        *lines[1:3],
        *timed((107.0, ev.ClusterChanged((replace(big, gpus=1),)))),
        *timed((108.0, ev.ClusterChanged((Machine("m0", 0),)))),
        *lines[3:],
        *timed((130.0, ev.ClusterChanged(()))),
    )
    recorded = recorded_workload(told, "j")
    assert recorded.cluster.cluster.machines == (big, small)
    assert recorded.failures == (
        Failure(0.0, "m1"),
        Failure(1.0, "m1", up=True),
        Failure(4.0, "m1"),
        Failure(5.0, "m0"),
        Failure(22.0, "m0", up=True),
        Failure(22.0, "m1", up=True),
    )


def test_measured_figures_become_profiles() -> None:
    measured = {"slowdown": (1.0, 1.0, 1.25, 1.5), "restart_s": 9.0, "skew": 0.5}
    lines = life("a", 103.0)
    told = history(
        HEADER,
        CLUSTER,
        *lines[:3],
        *timed((113.0, ev.Reported("a", report(job("j0", 6, 4, model="VGG16", **measured))))),
        *lines[4:],
    )
    recorded = recorded_workload(told, "j")
    profile = recorded.cluster.profile("VGG16")
    assert profile.by_level == dict(zip(Level, (1.0, 1.0, 1.25, 1.5), strict=True))
    assert profile.move == MoveCost(0.0, 0.0)  # its group made progress all the time
    assert profile.skew == 0.5
    assert recorded.trace.apps[0].jobs[0].model == "vgg16"


def test_what_a_start_costs_is_read_off_the_groups() -> None:
    """Six iterations of 2 s in a group of 19 s: 7 s were lost in it."""
    lines = life("a", 103.0)
    slow = replace(lines[3], event=ev.Reported("a", report(job("j0", 2, 4), job("j1", 10))))  # type: ignore[type-var]
    told = history(HEADER, CLUSTER, *lines[:3], slow, *lines[4:])
    assert recorded_workload(told, "j").cluster.profile("a").move == MoveCost(0.0, 7.0)


def test_without_groups_by_name_a_start_costs_what_the_apps_reckoned() -> None:
    lines = timed(
        (103.0, ev.AppJoined("a", report(job("j0", 10, restart_s=9.0)))),
        (104.0, ev.GroupRequested("a", "a-g1", ONE)),
        (105.0, ev.GroupReady("a-g1")),
        (113.0, ev.Reported("a", report(job("j0", 6, 4, restart_s=9.0, held=ONE)))),
        (125.0, ev.AppLeft("a")),
    )
    recorded = recorded_workload(history(HEADER, CLUSTER, *lines), "j")
    assert [j.iterations for j in recorded.trace.apps[0].jobs] == [10]
    assert recorded.cluster.profile("a").move == MoveCost(2.0, 7.0)


@pytest.mark.parametrize("policy", [ThemisPaper(), Drf(), TiresiasL()], ids=lambda p: p.name)
def test_the_work_that_was_done_is_found_again(policy: Policy) -> None:
    agents = [agent for agent in busy_agents() if agent.app != "d"]  # that one never answers
    told = history(*record(policy, 5000, agents).lines)
    recorded = recorded_workload(told, "j")
    assert recorded.notes == ()
    for agent in agents:
        [app] = [app for app in recorded.trace.apps if app.id == agent.app]
        assert app.arrival_s == pytest.approx(agent.joins_s)
        assert app.weight == agent.weight
        # What is done while a report is on its way is not seen.
        assert [j.iterations for j in app.jobs] == [
            pytest.approx(spec.work_gpu_s, abs=spec.gpus * agent.answers_after_s + 1e-6)
            for spec in agent.jobs
        ]
        assert [j.min_gpus for j in app.jobs] == [spec.gpus for spec in agent.jobs]


def workload(until_s: float = 2000.0) -> Recorded:
    return recorded_workload(history(*record(Drf(), until_s).lines), "j")


def test_trace_and_cluster_files_read_back_the_same(tmp_path: Path) -> None:
    recorded = workload()
    (tmp_path / "t.csv").write_text(write_themis_csv(recorded.trace))
    (tmp_path / "c.yaml").write_text(cluster_yaml(recorded.cluster))
    assert load_trace(tmp_path / "t.csv").apps == recorded.trace.apps
    cluster = load_cluster(tmp_path / "c.yaml")
    assert cluster.profiles == recorded.cluster.profiles
    sizes = [(m.gpus, m.rack, m.slots) for m in (*MACHINES, Machine("m3", 1))]
    assert [(m.gpus, m.rack, m.slots) for m in cluster.cluster.machines] == sizes


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([HEADER], "j: no machine with a GPU was ever there"),
        ([HEADER, CLUSTER], "j: no app has run a job in it"),
        ([HEADER, CLUSTER, *life("a", 103.0)[:1], *life("a", 103.0)[-1:]], "no app has run"),
    ],
)
def test_a_journal_with_nothing_in_it_is_told(lines: list[Header | Entry], message: str) -> None:
    with pytest.raises(JournalError, match=message):
        recorded_workload(history(*lines), "j")
