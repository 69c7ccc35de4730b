from pathlib import Path

import pytest
from reproduce_fakes import fake_outcome

from themis_ray.core.policies import POLICIES
from themis_ray.errors import InvalidInputError
from themis_ray.reproduce.ablation import variants
from themis_ray.reproduce.evaluate import evaluate, runs_of
from themis_ray.reproduce.figure import Figure, published
from themis_ray.reproduce.registry import FIGURES, figures_of_traces, select
from themis_ray.reproduce.runs import Run, cluster_of, policy_of, trace_of
from themis_ray.reproduce.sizes import SIZES
from themis_ray.sim.jobs import Trace

FULL = SIZES["full"]
QUICK = SIZES["quick"]


def by_name(figure: Figure) -> str:
    return figure.name


@pytest.mark.parametrize(
    ("figure", "row", "column", "value"),
    [
        ("themis-table-3", "r", "16 GPUs", 0.34),
        ("themis-fig-9", "themis-paper", "max", 1.33),
        ("themis-fig-9", "tiresias-l", "max", 2.58),
        ("themis-fig-10", "gandiva", "min", 0.07),
        ("themis-fig-11", "themis-paper", "GPU-hours", 1228.7),
        ("themis-fig-12", "slaq", "GPU-hours", 1360),
        ("themis-fig-13", "srtf", "share at 1", 0.521),
        ("themis-fig-14", "optimus", "4x", 6.29),
        ("themis-fig-15", "slaq", "60 %", 5.76),
        ("themis-fig-16", "themis-paper", "100 %", 630),
        ("themis-fig-17", "themis-paper", "20 %", 1.355),
        ("themis-fig-18", "liar's time, % more", "40 %", 75),
        ("themis-fig-19a", "lease 10 min", "f=0.8", 2.3),
        ("themis-fig-19b", "lease 40 min", "f=1", 2676),
        ("tiresias-table-1", "sf", "p95", 3.45),
        ("tiresias-table-3", "yarn-cs", "median", 27),
        ("tiresias-table-4", "tiresias-l", "median", 13),
        ("tiresias-table-5", "yarn-cs", "average", 2.41),
    ],
)
def test_published_values_are_those_of_the_papers(
    figure: str, row: str, column: str, value: float
) -> None:
    assert published(figure)[row][column] == value


@pytest.mark.parametrize("figure", FIGURES, ids=by_name)
def test_every_published_value_stands_beside_one_of_ours(figure: Figure) -> None:
    outcomes = {run: fake_outcome(run) for run in runs_of([figure], FULL, 2)}
    result = evaluate(figure, FULL, 2, outcomes)
    for row, columns in figure.published.items():
        assert set(columns) <= set(result.cells[row]), row
    assert result.cells
    assert not result.errors


@pytest.mark.parametrize("figure", FIGURES, ids=by_name)
@pytest.mark.parametrize("size", ["default", "full"])
def test_every_claim_can_be_judged(figure: Figure, size: str) -> None:
    sizes = SIZES[size]
    outcomes = {run: fake_outcome(run) for run in runs_of([figure], sizes, 1)}
    result = evaluate(figure, sizes, 1, outcomes)
    for claim in result.claims:
        assert claim.holds is not None, claim.text
        assert bool(claim.because) is not claim.holds
        assert claim.evidence


@pytest.mark.parametrize("size", ["quick", "default"])
def test_all_runs_can_be_had(size: str) -> None:
    traces: dict[tuple[str, int], Trace] = {}
    for run in runs_of(FIGURES, SIZES[size], 1):
        key = (run.trace, run.seed)
        if key not in traces:
            traces[key] = trace_of(run)
        assert policy_of(run, traces[key]).name == run.policy
        assert cluster_of(run.cluster).cluster.gpus >= 60


def test_figures_share_runs() -> None:
    alone = sum(len(set(figure.runs(FULL, 0).values())) for figure in FIGURES)
    assert len(runs_of(FIGURES, FULL, 1)) < 0.7 * alone


def test_names_are_unique_and_say_where_the_figure_is_from() -> None:
    names = [figure.name for figure in FIGURES]
    assert len(set(names)) == len(names)
    for name in names:
        assert name.split("-")[0] in {"themis", "tiresias", "mechanism", "ablation"}


def test_a_beginning_names_several_figures() -> None:
    assert [figure.name for figure in select(["mechanism-w2"], FIGURES)] == [
        "mechanism-w2-1x",
        "mechanism-w2-2x",
        "mechanism-w2-4x",
    ]
    both = select(["themis-fig-19"], FIGURES)
    assert [figure.name for figure in both] == ["themis-fig-19a", "themis-fig-19b"]
    assert select([], FIGURES) == FIGURES
    with pytest.raises(InvalidInputError, match=r"(?s)no figure 'themis-fig-1'.*themis-fig-9 "):
        select(["themis-fig-1"], FIGURES)


def test_all_policies_are_compared_in_every_cell() -> None:
    for figure in select(["mechanism"], FIGURES):
        assert set(figure.runs(FULL, 0)) == set(POLICIES)
        assert all(run.policy == label for label, run in figure.runs(FULL, 0).items())


def test_the_ablation_changes_one_option_at_a_time() -> None:
    found = variants()
    some = {"horizon = 0.5", "horizon = 2.0", "ideal = told", "anew = False", "fairness_knob = 4/5"}
    assert some <= set(found)
    assert "horizon = 1.0" not in found
    default = Run("testbed-64", "w2:apps=2", "themis")
    trace = trace_of(default)
    for options in found.values():
        assert len(options) == 1
        changed = Run("testbed-64", "w2:apps=2", "themis", options=options)
        assert policy_of(changed, trace) != policy_of(default, trace)


def test_traces_of_a_folder_are_figures_at_each_contention(tmp_path: Path) -> None:
    rows = [f"{i},0,{60 * i},single,vgg16,2,600,1,1" for i in range(2 * QUICK.trace_apps)]
    head = "app_id,job_id,arrival_s,tuner,model,max_gpus,iterations,serial_iter_s,min_gpus"
    (tmp_path / "mine.csv").write_text("\n".join([head, *rows]) + "\n")
    figures = figures_of_traces(tmp_path)
    assert [figure.name for figure in figures] == [f"traces-mine-{n}x" for n in (1, 2, 4)]
    # Five jobs of five minutes are there at any time, of 2 GPUs each.
    for figure, gpus in zip(figures, (12, 8, 4), strict=True):
        run = figure.runs(QUICK, 0)["drf"]
        assert cluster_of(run.cluster).cluster.gpus == gpus
        assert f"({gpus} GPUs" in figure.setup(QUICK)
    one, two, three = (trace_of(figures[0].runs(QUICK, seed)["drf"]) for seed in range(3))
    assert [app.id for app in one.apps] == [str(i) for i in range(QUICK.trace_apps)]
    assert [app.id for app in (one.apps + two.apps)] == [str(i) for i in range(len(rows))]
    assert three == one
    for folder, said in ((tmp_path / "none", "no such folder"), (tmp_path / "empty", "no .csv")):
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(InvalidInputError, match=said):
            figures_of_traces(folder)
