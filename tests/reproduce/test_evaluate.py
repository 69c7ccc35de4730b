from collections.abc import Mapping
from dataclasses import replace

from reproduce_fakes import fake_outcome

from themis_ray.reproduce.claims import least
from themis_ray.reproduce.evaluate import evaluate
from themis_ray.reproduce.figure import Claim, Figure, Outcomes, Values
from themis_ray.reproduce.outcome import Outcome
from themis_ray.reproduce.page import Study, render
from themis_ray.reproduce.runs import Run
from themis_ray.reproduce.sizes import SIZES, Sizes

QUICK = SIZES["quick"]


def runs(sizes: Sizes, seed: int) -> Mapping[str, Run]:
    return {name: Run("testbed-64", "w1", name, seed=seed) for name in ("drf", "srtf")}


def hours(outcomes: Outcomes) -> Values:
    return {name: {"GPU-hours": outcome.figure("gpu_hours")} for name, outcome in outcomes.items()}


FIGURE = Figure(
    name="themis-x",
    title="X",
    setup=lambda sizes: "How.",
    runs=runs,
    values=hours,
    claims=(Claim("srtf needs least.", least("srtf", "GPU-hours"), "Since it moves."),),
    published={"drf": {"GPU-hours": 7}},
    unit="h",
    digits=1,
)


def outcomes(*hours_of: tuple[float, float]) -> dict[Run, Outcome]:
    out = {}
    for seed, values in enumerate(hours_of):
        for run, value in zip(runs(QUICK, seed).values(), values, strict=True):
            document = fake_outcome(run).document
            out[run] = Outcome({**document, "figures": {"gpu_hours": value}})
    return out


def test_cells_have_mean_spread_and_the_published_value() -> None:
    result = evaluate(FIGURE, QUICK, 2, outcomes((4.0, 3.0), (6.0, 5.0)))
    cell = result.cells["drf"]["GPU-hours"]
    assert (cell.mean, cell.published) == (5.0, 7)
    assert cell.deviation is not None
    assert round(cell.deviation, 6) == round(2**0.5, 6)
    assert result.cells["srtf"]["GPU-hours"].published is None
    assert result.claims[0].holds
    assert (result.claims[0].seeds, result.claims[0].of) == (2, 2)


def test_claims_are_judged_on_means_and_for_each_seed() -> None:
    # In one of two seeds it holds, on the means it does not.
    result = evaluate(FIGURE, QUICK, 2, outcomes((4.0, 3.0), (4.0, 9.0)))
    (claim,) = result.claims
    assert (claim.holds, claim.seeds, claim.of) == (False, 1, 2)
    assert claim.because == "Since it moves."
    page = render(Study("themis reproduce", QUICK, 2, [result]))
    assert "| drf | 4.0 ± 0.0 [7] |" in page
    assert "**Does not hold**: srtf 6, the best other is drf 4 (1 of 2 seeds). Since it" in page
    assert "| [X](#themis-x) | 0 of 1 | srtf needs least. |" in page


def test_one_seed_has_no_spread() -> None:
    result = evaluate(FIGURE, QUICK, 1, outcomes((4.0, 3.0)))
    assert result.cells["drf"]["GPU-hours"].deviation is None
    page = render(Study("themis reproduce", QUICK, 1, [result], ["traces"], "x.html"))
    assert "| drf | 4.0 [7] |" in page
    assert "Left out: traces" in page
    assert "[x.html](x.html)" in page


def test_a_stuck_run_is_shown_and_its_claims_are_not_judged() -> None:
    found = outcomes((4.0, 3.0))
    stuck = runs(QUICK, 0)["srtf"]
    found[stuck] = Outcome({"error": "nothing moves", "seconds": 1.0})
    result = evaluate(FIGURE, QUICK, 1, found)
    assert list(result.cells) == ["drf"]
    assert result.claims[0].holds is None
    assert result.errors == ("srtf on w1, seed 0: nothing moves",)
    assert "**A run failed.** srtf on w1" in render(Study("c", QUICK, 1, [result]))
    # Also when the values need that run.
    needy = replace(FIGURE, values=lambda got: {"x": {"y": got["srtf"].figure("gpu_hours")}})
    result = evaluate(needy, QUICK, 1, found)
    assert not result.cells
    assert result.errors[1] == "seed 0: no values without srtf"
