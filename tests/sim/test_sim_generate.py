from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from themis_ray.errors import InvalidInputError
from themis_ray.sim import figures
from themis_ray.sim.generate import GENERATORS, generate, quantile
from themis_ray.sim.jobs import TraceApp, TraceJob
from themis_ray.sim.tuners import Curve, halvings, plan_of


@pytest.mark.parametrize("name", GENERATORS)
def test_the_same_seed_gives_the_same_workload(name: str) -> None:
    assert generate(f"{name}:seed=3").apps == generate(f"{name}:seed=3").apps
    # Apps that are all alike leave nothing to chance.
    if name != "alike":
        assert generate(f"{name}:seed=3").apps != generate(f"{name}:seed=4").apps


@pytest.mark.parametrize("name", ["w1", "w2"])
def test_jobs_are_as_long_as_in_figure_4(name: str) -> None:
    trace = generate(f"{name}:seed=1,apps=400")
    # Under successive halving the jobs of an app have equal numbers of iterations: one draw each.
    jobs = [app.jobs if name == "w1" else app.jobs[:1] for app in trace.apps]
    minutes = [job.work_gpu_s / 60 for some in jobs for job in some]
    spread = 0.05 if name == "w1" else 0.2
    for fraction, expected in figures.TASK_GPU_MINUTES[1:-1]:
        assert np.quantile(minutes, fraction) == pytest.approx(expected, rel=spread)
    assert max(minutes) <= figures.TASK_GPU_MINUTES[-1][1] * 1.21


@pytest.mark.parametrize(
    ("name", "gpus", "jobs"),
    [
        ("w1", figures.GPUS_PER_JOB_W1, figures.JOBS_PER_APP_W1),
        ("w2", figures.GPUS_PER_JOB_W2, figures.JOBS_PER_APP_W2),
    ],
)
def test_gpus_and_jobs_per_app_are_as_in_figure_8(
    name: str, gpus: dict[int, float], jobs: tuple[int, ...]
) -> None:
    trace = generate(f"{name}:seed=2,apps=2000")
    counts = Counter(app.jobs[0].max_gpus for app in trace.apps)
    for size, share in gpus.items():
        assert counts[size] / 2000 == pytest.approx(share, abs=0.04)
    sizes = [len(app.jobs) for app in trace.apps]
    for fraction in (0.1, 0.25, 0.5, 0.75, 0.9):
        expected = float(np.quantile(jobs, fraction, method="nearest"))
        share_below = sum(size <= expected for size in sizes) / len(sizes)
        assert share_below >= fraction - 0.06
    assert np.mean(sizes) == pytest.approx(np.mean(jobs), rel=0.06)


def test_models_are_mixed_as_published_or_as_asked() -> None:
    counts = Counter(app.jobs[0].model for app in generate("w1:apps=2000").apps)
    for models, share in figures.MODEL_MIX.items():
        assert sum(counts[m] for m in models) / 2000 == pytest.approx(share, abs=0.03)
    minds = Counter(app.jobs[0].model for app in generate("w1:apps=1000,network=0.4").apps)
    assert sum(minds[m] for m in figures.NETWORK_MODELS) / 1000 == pytest.approx(0.4, abs=0.05)


def test_contention_makes_apps_arrive_faster() -> None:
    slow, fast = generate("w1:seed=5"), generate("w1:seed=5,contention=4")
    assert fast.apps[-1].arrival_s == pytest.approx(slow.apps[-1].arrival_s / 4, rel=1e-3)
    assert fast.apps[0].jobs == slow.apps[0].jobs


def test_the_load_is_the_work_over_what_the_cluster_can_do() -> None:
    trace = generate("w2:seed=1,apps=3000,load=0.7,gpus=32")
    work = sum(
        steps * app.jobs[i].serial_iter_s
        for app in trace.apps
        for phase in plan_of(app, 1)
        for i, steps in phase.runs
    )
    assert work / (32 * trace.apps[-1].arrival_s) == pytest.approx(0.7, rel=0.06)


def test_tiresias_has_its_480_gangs() -> None:
    trace = generate("tiresias")
    counts = Counter(app.jobs[0].min_gpus for app in trace.apps)
    assert counts == {1: 240, 2: 40, 4: 80, 8: 90, 16: 25, 32: 5}
    assert trace.apps[-1].arrival_s / 479 == pytest.approx(30, rel=0.15)
    lengths = [app.jobs[0].work_gpu_s / app.jobs[0].max_gpus for app in trace.apps]
    assert min(lengths) >= 120
    assert max(lengths) <= 7200


def test_philly_is_mostly_single_gpus_with_a_long_tail() -> None:
    trace = generate("philly:apps=4000,max_gpus=8")
    jobs = [app.jobs[0] for app in trace.apps]
    assert max(job.max_gpus for job in jobs) == 8
    assert sum(job.max_gpus == 1 for job in jobs) / 4000 == pytest.approx(0.935, abs=0.02)
    lengths = [job.work_gpu_s / job.max_gpus for job in jobs]
    assert np.quantile(lengths, 0.5) == pytest.approx(1144, rel=0.15)
    assert np.quantile(lengths, 0.95) == pytest.approx(43646, rel=0.3)


def test_quantiles_hit_the_points_they_are_given() -> None:
    points = ((0.0, 1.0), (0.5, 10.0), (1.0, 1000.0))
    assert [quantile(points, u) for u in (0, 0.25, 0.5, 0.75, 1)] == pytest.approx(
        [1, 10**0.5, 10, 100, 1000]
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("w9", "no workload 'w9'; there are: w1, w2"),
        ("w1:sed=1", "'sed=1' is no option; write NAME=VALUE with one of seed"),
        ("w1:seed", "'seed' is no option"),
        ("w1:apps=many", "apps='many' is not a whole number"),
        ("w1:apps=0", "apps=0; use a number above 0"),
        ("w1:tuner=asha", "tuner=asha; use single"),
        ("w1:gang=yes", "gang='yes' is neither true nor false"),
        ("w1:network=nan", "network=nan; use a share from 0 to 1"),
    ],
)
def test_specs_that_cannot_be_used(spec: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        generate(spec)


def test_halving_keeps_the_better_half_for_twice_as_long() -> None:
    assert halvings(5) == [5, 3, 2, 1]
    app = generate("w2:seed=1,apps=40").apps
    multi = next(a for a in app if len(a.jobs) >= 8)
    phases = plan_of(multi, 1)
    assert [len(p.runs) for p in phases] == halvings(len(multi.jobs))
    winner = phases[-1].runs[0][0]
    assert all(winner in dict(p.runs) for p in phases)
    total = sum(dict(p.runs)[winner] for p in phases)
    assert total == pytest.approx(multi.jobs[winner].iterations)
    steps = [p.runs[0][1] for p in phases]
    assert [b / a for a, b in pairwise(steps)] == pytest.approx([2] * (len(steps) - 1))


def test_curve_stopping_stops_jobs_that_cannot_win_and_never_the_best() -> None:
    trace = generate("w1:seed=1,apps=30,tuner=curve_stopping")
    app = next(a for a in trace.apps if len(a.jobs) >= 10)
    (phase,) = plan_of(app, 1)
    ran = [steps / app.jobs[i].iterations for i, steps in phase.runs]
    assert max(ran) == 1
    assert min(ran) < 1


def test_curve_stopping_can_tell_losses_above_1_apart() -> None:
    jobs = tuple(TraceJob(f"{i}", "m", 1, 100, 1.0, 1, loss) for i, loss in enumerate((2.5, 2.3)))
    (phase,) = plan_of(TraceApp("a", 0.0, "curve_stopping", jobs), 0)
    assert phase.runs[1] == (1, 100)
    assert phase.runs[0][1] <= 100


@pytest.mark.parametrize("final_loss", [0.2, 1.0, 3.5])
def test_losses_fall(final_loss: float) -> None:
    curve = Curve(final_loss, 0.1)
    assert curve.loss(0) > curve.loss(10) > final_loss
    assert curve.loss(1000) == pytest.approx(final_loss)


def test_curves_fall_to_their_final_loss() -> None:
    curve = Curve(0.2, 0.1)
    assert curve.loss(0) == 1
    assert curve.loss(1000) == pytest.approx(0.2)
    assert curve.decrease(3) == pytest.approx(curve.loss(3) - curve.loss(4))
