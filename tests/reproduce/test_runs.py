from dataclasses import replace
from pathlib import Path

import pytest

from themis_ray.core.policies import POLICIES
from themis_ray.errors import ConfigError, InvalidInputError
from themis_ray.reproduce import runner
from themis_ray.reproduce.cache import Cache
from themis_ray.reproduce.code_version import code_version, modules
from themis_ray.reproduce.outcome import Outcome
from themis_ray.reproduce.runner import do_runs
from themis_ray.reproduce.runs import ONE_LARGE, Run, execute, services_of, trace_of

SMALL = Run(
    "tiresias-60", "tiresias:length=0.01,contention=100", "best-effort", restart_s=0.0, first=60
)
TRACE = (
    "app_id,job_id,arrival_s,tuner,model,max_gpus,iterations,serial_iter_s\n"
    "a,0,0,single,vgg16,2,600,1\nb,0,60,single,vgg16,2,600,1\n"
)


def test_an_outcome_has_every_app_by_every_judge() -> None:
    run = Run("testbed-64", "w2:apps=3,length=0.05,jobs=0.1", "themis-paper", seed=2)
    outcome = execute(run)
    trace = trace_of(run)
    assert outcome.error is None
    assert [app["id"] for app in outcome.apps] == [app.id for app in trace.apps]
    for judge in ("fluid", "exclusive", "paper"):
        assert len(outcome.r(judge)) == 3
    assert outcome.figure("max_r") == pytest.approx(outcome.max_r("fluid"))
    assert outcome.r_at("fluid", 100) == outcome.max_r("fluid")
    assert 0 <= outcome.share_well_placed() <= 1
    # Deterministic but for how long it took.
    again = execute(run)
    assert {**again.document, "seconds": 0} == {**outcome.document, "seconds": 0}


def test_the_key_follows_all_inputs(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text(TRACE)
    changes = (
        {"seed": 1},
        {"lease_s": 300.0},
        {"restart_s": None},
        {"error": 0.1},
        {"lies": (("a", 2.0),)},
        {"options": (("x", 1),)},
        {"cluster": "testbed-64"},
        {"cluster": ONE_LARGE["name"]},
        {"first": 2},
        {"ideal": "paper"},
        {"trace": "w1"},
        {"trace": str(file)},
    )
    keys = {SMALL.key("v"), SMALL.key("w"), *(replace(SMALL, **c).key("v") for c in changes)}  # type: ignore[arg-type]
    assert len(keys) == 2 + len(changes)
    on_file = replace(SMALL, trace=str(file))
    before = on_file.key("v")
    file.write_text(TRACE.replace("600", "700"))
    assert on_file.key("v") != before


def test_a_policy_depends_on_its_own_file_and_not_on_the_others() -> None:
    def of(policy: str) -> frozenset[str]:
        return modules(POLICIES[policy].__module__)

    own = {"fair_clock", "urgency", "replacing", "remaining"}
    assert {f"themis_ray.core.policies.{name}" for name in own} <= of("themis")
    assert "themis_ray.core.policies.themis" not in of("themis-paper") | of("drf")
    assert "themis_ray.core.solver" in of("themis-paper")
    assert "themis_ray.core.policies.base" in of("drf")
    runs = modules("themis_ray.reproduce.runs")
    assert {"themis_ray.sim.driver", "themis_ray.core.arbiter", "themis_ray.sim.judges"} <= runs
    assert "themis_ray.core.policies.themis" not in runs
    assert not any(".cli" in name or ".page" in name for name in runs)
    assert len({code_version(policy) for policy in POLICIES}) == len(POLICIES)


def test_known_runs_are_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path)
    seen: list[tuple[str, bool]] = []

    def done(run: Run, outcome: Outcome, known: bool) -> None:
        seen.append((run.policy, known))

    first = do_runs([SMALL, SMALL], jobs=1, cache=cache, done=done)
    assert seen == [("best-effort", False)]

    def forbidden(run: Run) -> Outcome:
        raise AssertionError(f"{run.title} is known")

    monkeypatch.setattr(runner, "execute", forbidden)
    assert do_runs([SMALL], jobs=1, cache=Cache(tmp_path), done=done) == first
    assert seen[1:] == [("best-effort", True)]


def test_half_a_file_is_not_an_outcome(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.put(SMALL, Outcome({"figures": {}, "seconds": 1.0}))
    (file,) = tmp_path.iterdir()
    file.write_text(file.read_text()[:-3])
    assert cache.get(SMALL) is None
    assert Cache(None).get(SMALL) is None


def test_a_failure_is_not_kept(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.put(SMALL, Outcome({"error": "stuck", "seconds": 1.0}))
    assert list(tmp_path.iterdir()) == []


def test_several_processes_give_the_same_outcomes(tmp_path: Path) -> None:
    runs = [replace(SMALL, seed=seed) for seed in (0, 1)]
    alone = do_runs(runs, jobs=1, cache=Cache(None))
    together = do_runs(runs, jobs=2, cache=Cache(None))
    for run in runs:
        assert together[run].document | {"seconds": 0} == alone[run].document | {"seconds": 0}


def test_what_cannot_be_had_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no such file"):
        execute(replace(SMALL, trace=str(tmp_path / "none.csv")))
    with pytest.raises(ConfigError, match="hue"):
        execute(replace(SMALL, policy="drf", options=(("hue", 1),)))
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match="--cache"):
        Cache(tmp_path / "file")


def test_the_first_apps_are_those_that_fit(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    lines = TRACE.replace("serial_iter_s\n", "serial_iter_s,min_gpus\n").splitlines()
    rows = [
        f"{name},0,{at},single,vgg16,{g},60,1,{g}"
        for name, at, g in (("a", 0, 2), ("b", 1, 128), ("c", 2, 60), ("d", 3, 1))
    ]
    file.write_text("\n".join([lines[0], *rows]) + "\n")
    run = Run("tiresias-60", str(file), "drf", first=2)
    assert [app.id for app in trace_of(run).apps] == ["a", "c"]


def test_services_tell_the_distribution_of_the_jobs() -> None:
    trace = trace_of(SMALL)
    works = sorted(job.work_gpu_s for app in trace.apps for job in app.jobs)
    services = services_of(trace)
    assert 20 <= len(services) <= 100
    assert works[0] <= services[0] < services[-1] <= works[-1]


def test_equal_apps_are_equal_and_smaller_workloads_smaller() -> None:
    alike = trace_of(Run("one-large-64", "alike:apps=5", "drf"))
    assert len({app.jobs for app in alike.apps}) == 1
    assert {app.arrival_s for app in alike.apps} == {0.0}
    many = trace_of(Run("testbed-64", "w1:apps=4", "drf"))
    few = trace_of(Run("testbed-64", "w1:apps=4,jobs=0.1", "drf"))
    assert len(few.apps) == len(many.apps)
    assert few.jobs < 0.3 * many.jobs
