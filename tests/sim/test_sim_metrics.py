import pytest
from sim_worlds import app, cluster, job, simulate

from themis_ray.sim.jobs import Trace
from themis_ray.sim.judges import fluid_times_s, ideal_times_s, mean_apps
from themis_ray.sim.metrics import jain, summary
from themis_ray.sim.records import AppRecord, RunResult


def record(name: str, begin: float, end: float, gpu_s: float = 0, queued: float = 0) -> AppRecord:
    return AppRecord(name, begin, end, queued, gpu_s, gpu_s / 2, 1, 0)


def test_fluid_fair_share_by_hand() -> None:
    # On 4 GPUs: a alone has 4 until 10, then 2 each. b (200 GPU-s at 2) ends at 110; a had 40 + 200
    # by then, and does its last 160 on 4 GPUs in 40 s.
    trace = Trace.of("t", [app("a", job(400, 4)), app("b", job(200, 4), at=10)])
    assert fluid_times_s(trace, 4, 0) == pytest.approx({"a": 150, "b": 100})


def test_fluid_is_no_faster_than_the_longest_job() -> None:
    trace = Trace.of("t", [app("a", job(100), job(20))])
    assert fluid_times_s(trace, 4, 0) == pytest.approx({"a": 100})


def test_fluid_goes_through_phases() -> None:
    jobs = [job(112) for _ in range(4)]
    trace = Trace.of("t", [app("a", *jobs, tuner="successive_halving")])
    assert fluid_times_s(trace, 4, 0) == pytest.approx({"a": 112})
    assert fluid_times_s(trace, 1, 0) == pytest.approx({"a": 3 * 64})


@pytest.mark.timeout(30)
def test_phases_that_end_within_the_rounding_of_the_clock_all_end() -> None:
    # At 1e7 s the clock goes in steps of 1.9e-9 s: a's end is rounded to beyond b's.
    apps = [app("a", job(100 + 1.2e-9), at=1e7), app("b", job(100 + 1.5e-9), at=1e7)]
    assert fluid_times_s(Trace.of("t", apps), 2, 0) == pytest.approx({"a": 100, "b": 100})


def test_mean_apps_counts_an_app_itself() -> None:
    records = [record("a", 0, 100), record("b", 50, 150)]
    assert mean_apps(records) == pytest.approx({"a": 1.5, "b": 1.5})


def test_paper_and_exclusive_ideals_differ_for_small_apps() -> None:
    # 8 GPUs, a demand of 2, and 2 apps all the time: alone on 4 GPUs it takes 100 / 2.
    trace = Trace.of("t", [app("a", job(100, 2)), app("b", job(100, 2))])
    records = [record("a", 0, 60), record("b", 0, 60)]
    assert ideal_times_s("paper", trace, records, 8, 0) == pytest.approx({"a": 100, "b": 100})
    assert ideal_times_s("exclusive", trace, records, 8, 0) == pytest.approx({"a": 50, "b": 50})


def test_weight_lengthens_nobody_elses_ideal() -> None:
    trace = Trace.of("t", [app("a", job(100, 4), weight=2), app("b", job(100, 4))])
    records = [record("a", 0, 60), record("b", 0, 60)]
    ideal = ideal_times_s("exclusive", trace, records, 4, 0)
    assert ideal == pytest.approx({"a": 25, "b": 50})


def test_jain() -> None:
    assert jain([2, 2, 2]) == pytest.approx(1)
    assert jain([1, 0, 0, 0]) == pytest.approx(0.25)
    assert jain([1, 2]) == pytest.approx(9 / 10)


def test_figures_by_hand() -> None:
    trace = Trace.of("t", [app("a", job(100, 1)), app("b", job(100, 1), at=100)])
    result = RunResult(
        "p", 2, [record("b", 100, 400, 300, 200), record("a", 0, 100, 100)], rounds=7
    )
    figures = summary(result, trace, "fluid")
    assert figures["apps"] == [
        {"id": "a", "r": 1.0, "jct_s": 100, "gpu_hours": round(100 / 3600, 6)},
        {"id": "b", "r": 3.0, "jct_s": 300, "gpu_hours": round(300 / 3600, 6)},
    ]
    expected = {
        "judge": "fluid",
        "max_r": 3,
        "min_r": 1,
        "median_r": 2,
        "p95_r": 2.9,
        "p99_r": 2.98,
        "mean_r": 2,
        "jain_r": 0.8,
        "fraction_r_le_1": 0.5,
        "gpu_hours": round(400 / 3600, 6),
        "avg_jct_s": 200,
        "median_jct_s": 200,
        "p95_jct_s": 290,
        "p99_jct_s": 298,
        "makespan_s": 400,
        "avg_queue_s": 100,
        "median_queue_s": 100,
        "p95_queue_s": 190,
        "preemptions": 2,
        "mean_placement_score": 0.5,
        "utilisation": 0.5,
        "rounds": 7,
    }
    assert {key: figures[key] for key in expected} == expected


def test_a_lone_app_is_judged_alike_by_all_and_late_by_its_start() -> None:
    from themis_ray.sim.cluster_file import MoveCost

    apps = [app("a", job(400, 4))]
    result, _ = simulate(cluster(4), apps, move=MoveCost(0, 10))
    figures = summary(result, Trace.of("t", apps))
    assert figures["max_r_by_judge"] == {"fluid": 1.1, "exclusive": 1.1, "paper": 1.1}
