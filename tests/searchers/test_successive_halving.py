"""``SuccessiveHalving``: the paper's worked example through its own API, and who survives."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.paper_tune import PaperTune
from themis_ray.agent.agent import Agent, AgentSettings
from themis_ray.core.cluster import NOTHING, Allocation
from themis_ray.core.commands import SendOffer
from themis_ray.errors import ConfigError
from themis_ray.searchers.api import AppState, TrialInfo, finish_s, time_left_s
from themis_ray.searchers.successive_halving import SuccessiveHalving

SERIAL_S = (80.0, 100.0, 100.0, 120.0)


def worked_example(**options: Any) -> tuple[SuccessiveHalving, PaperTune]:
    """Four jobs, phases of 8, 16 and 36 iterations, 4 GPUs a job at first and 8 at most."""
    search = SuccessiveHalving(4, (8, 16, 36), **{"eta": 2, "gpus": 4, "max_gpus": 8, **options})
    tune = PaperTune(search, lambda index, iteration: float(index), 4, 1000)
    tune.step()
    return search, tune


def seen(tune: PaperTune) -> AppState:
    return AppState(
        tuple(
            TrialInfo(t.trial_id, t.done, 1000, SERIAL_S[t.index], 1, 8, not t.is_finished())
            for t in tune.trials
        )
    )


R = {1: 4, 2: 2, 4: 1.064, 8: 0.532, 16: 0.356}


@pytest.mark.parametrize("options", [{}, {"gpus": 8, "split": "even"}])
@pytest.mark.parametrize("gpus", R)
def test_the_first_bid_of_the_worked_example(gpus: int, options: dict[str, Any]) -> None:
    search = SuccessiveHalving(4, (8, 16, 36), **{"gpus": 4, "max_gpus": 8, **options})
    tune = PaperTune(search, lambda i, k: float(i), 4, 1000)
    for trial in tune.coming:
        search.on_trial_add(tune, trial)
    tune.trials, tune.coming = tune.coming, []
    search.observe(seen(tune))
    assert search.num_phases() == 3
    assert time_left_s(search, (gpus,)) / 2500 == pytest.approx(R[gpus])


def test_the_same_bid_comes_out_of_the_agent() -> None:
    """T_id = 10,000 GPU-s / 16 GPUs * 4 apps = 2500 s, and a row for each bundle."""
    search = SuccessiveHalving(4, (8, 16, 36), gpus=4, max_gpus=8)
    tune = PaperTune(search, lambda i, k: float(i), 4, 1000)
    agent = Agent(AgentSettings("a", trial_max=8), 0.0, cluster_gpus=16, n_avg=4.0)
    agent.use(search)
    for trial in tune.coming:
        search.on_trial_add(tune, trial)
        agent.add_trial(trial.trial_id, 1000)
        agent.trial_waits(trial.trial_id, trial.trial_id)
        timer = agent.trials[trial.trial_id].timer
        timer.record(SERIAL_S[trial.index], agent.signature(Allocation({"m0": 1})))
        timer.restart_s = 0.0
    assert agent.t_ideal_s() == pytest.approx(2500)
    offer = SendOffer("a", 1, Allocation({"m0": 16}), NOTHING, NOTHING, {"m0": "r0"}, 4.0, 16, 600)
    rows = {(row.size, len(row.parts)): row for row in agent.bid(offer, 0.0).table.rows}
    for size, parts in {1: (1,), 2: (1, 1), 4: (1,) * 4, 8: (2,) * 4, 16: (4,) * 4}.items():
        assert rows[size, len(parts)].parts == parts
        assert rows[size, len(parts)].r == pytest.approx(R[size])


def test_the_revision_once_the_survivors_are_known() -> None:
    """The 100 and the 120 s job go on: on 2 GPUs phase 2 takes 1920 s and phase 3 2160 s."""
    search, tune = worked_example()
    while search._brackets[0].phase == 0:
        tune.step()
    search.observe(seen(tune))
    assert sorted(t.index for t in tune.trials if not t.is_finished()) == [2, 3]
    assert search.num_phases() == 2
    times = [finish_s(search.jobs_in_phase(phase, (2,)), 2) for phase in range(2)]
    assert times == [1920.0, 2160.0]


def test_demand_grows_from_phase_to_phase() -> None:
    search, tune = worked_example(gpus=1)
    sizes: dict[int, set[int]] = {}
    while any(not t.is_finished() for t in tune.trials):
        running = [t for t in tune.trials if t.status == "RUNNING"]
        for trial in running:
            bundles = len(trial.placement_group_factory.bundles)
            sizes.setdefault(search._bracket_of[trial.trial_id].phase, set()).add(bundles)
        tune.step()
    assert sizes == {0: {1}, 1: {2}, 2: {4}}
    assert {t.index: t.ends for t in tune.trials} == {0: [8], 1: [8], 2: [24], 3: [60]}


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 12),
    st.integers(1, 3),
    st.integers(2, 4),
    st.integers(0, 1000),
    st.sampled_from([None, 1, 2, 3, 100]),
)
def test_each_phase_keeps_the_best(
    trials: int, iterations: int, eta: int, seed: int, at_once: int | None
) -> None:
    rng = random.Random(seed)
    scores = [rng.uniform(-1, 1) for _ in range(trials)]
    search = SuccessiveHalving(trials, iterations, eta=eta)
    tune = PaperTune(search, lambda i, _: scores[i], trials, 10**6, seed, at_once=at_once)
    ends = tune.run(20_000)
    size = min(trials, at_once or trials)
    milestones = search._milestones
    for start in range(0, trials, size):
        bracket = sorted(range(start, min(start + size, trials)), key=lambda i: -scores[i])
        count, phase = len(bracket), 0
        while phase < len(milestones) - 1:
            keep = max(1, count // eta)
            assert all(ends[i] == milestones[phase] for i in bracket[keep:count])
            count, phase = keep, phase + 1
        assert all(ends[i] == milestones[-1] for i in bracket[:count])


def test_ties_and_trials_without_a_score() -> None:
    def metric(index: int, iteration: int) -> Any:
        return {0: math.nan, 1: ..., 2: 1.0, 3: 1.0}[index]

    ends = PaperTune(SuccessiveHalving(4, 1), metric, 4, 100).run()
    assert ends == {0: 1, 1: 1, 2: 7, 3: 3}


def test_a_failed_trial_comes_back_to_its_bracket() -> None:
    search, tune = worked_example(gpus=1)
    trial = next(t for t in tune.trials if t.status == "RUNNING")
    search.on_trial_error(tune, trial)
    trial.status = "PENDING"
    search.on_trial_add(tune, trial)
    assert len(search._brackets) == 1
    assert sorted(tune.run().values()) == [8, 8, 24, 60]


def test_it_can_be_saved_and_restored(tmp_path: Any) -> None:
    search, tune = worked_example(gpus=1)
    for _ in range(30):
        tune.step()
    search.save(str(tmp_path / "state"))
    again = SuccessiveHalving(4, (8, 16, 36), gpus=1, max_gpus=8, metric="m", mode="max")
    again.restore(str(tmp_path / "state"))
    assert again._brackets == search._brackets


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: SuccessiveHalving(0), "n = 0"),
        (lambda: SuccessiveHalving(4, 0), "iterations = 0"),
        (lambda: SuccessiveHalving(4, (1, 2)), "make 3: 4 -> 2 -> 1"),
        (lambda: SuccessiveHalving(4, eta=1), "eta = 1"),
        (lambda: SuccessiveHalving(4, gpus=4, max_gpus=2), "max_gpus = 2"),
        (lambda: SuccessiveHalving(4, mode="best"), "mode = 'best'"),
        (lambda: SuccessiveHalving(4, split="odd"), "split = 'odd'"),  # type: ignore[arg-type]
        (lambda: SuccessiveHalving(4).set_search_properties("m", None), "mode='min'"),
        (
            lambda: SuccessiveHalving().set_search_properties("m", "max", total_num_samples=-1),
            "give it n",
        ),
    ],
)
def test_arguments_that_cannot_be_used(make: Callable[[], Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        make()
