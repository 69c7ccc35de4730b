"""What a search's answers amount to: Equation 2, T_id by phases, and adapters that fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from themis_ray.agent.agent import Agent, AgentSettings
from themis_ray.agent.forecast import Forecast, PhaseSum
from themis_ray.core.cluster import Allocation, Level
from themis_ray.core.commands import SendOffer
from themis_ray.searchers.api import (
    AllTrials,
    AppState,
    JobInfo,
    PhaseSearch,
    RemainingSearch,
    TrialInfo,
    share_out,
)


class Phases(PhaseSearch):
    """Phases of equal jobs of one second an iteration: ``(jobs, iterations, GPUs of a job)``."""

    def __init__(self, *phases: tuple[int, float, int]) -> None:
        self.given = list(phases)
        self.asked = 0

    def num_phases(self) -> int:
        return len(self.given)

    def jobs_in_phase(self, phase: int, allocation: Sequence[int]) -> Sequence[JobInfo]:
        self.asked += 1
        count, iterations, most = self.given[phase]
        jobs = [JobInfo(f"t{i}", iterations, 1.0, 1, most) for i in range(count)]
        return share_out(jobs, allocation)


def test_equation_2_sums_the_slowest_of_each_phase() -> None:
    forecast = Forecast(Phases((4, 10, 2), (2, 20, 4), (1, 40, 8)))
    forecast.see(AppState(), 0.0)
    assert forecast.time_left_s(8) == 10 / 2 + 20 / 4 + 40 / 8
    assert forecast.time_left_s(2) == 20 + 20 + 20
    assert sum(phase.work_gpu_s for phase in forecast.phases) == 120
    # Four GPUs on four machines of two racks: jobs of one GPU do not mind, the others do.
    assert forecast.time_left_s(4, Level.CLUSTER) == pytest.approx(10 + 13 + 13)


def test_nothing_is_asked_twice_while_nothing_changes() -> None:
    search = Phases((4, 10, 2), (2, 20, 4))
    forecast = Forecast(search)
    forecast.see(AppState(), 0.0)
    first = [forecast.time_left_s(n) for n in range(1, 9)]
    asked = search.asked
    assert [forecast.time_left_s(n) for n in range(1, 9)] == first
    assert search.asked == asked
    forecast.see(AppState(), 1.0)
    assert [forecast.time_left_s(n) for n in range(1, 9)] == first
    assert search.asked > asked


def test_work_that_is_done_stays_with_its_phase() -> None:
    """T_id by phases: the first used 8 GPUs for 40 GPU-s, whatever came after."""
    search = Phases((4, 10, 2), (2, 20, 4), (1, 40, 4))
    forecast = Forecast(search)
    forecast.see(AppState(), 0.0)
    assert forecast.whole(0.0) == [PhaseSum(40, 8, 5), PhaseSum(40, 8, 5), PhaseSum(40, 4, 10)]
    search.given = [(2, 15, 4), (1, 40, 4)]
    forecast.see(AppState(), 50.0)
    whole = forecast.whole(50.0)
    assert [(p.work_gpu_s, p.demand) for p in whole] == [(50, 8), (30, 8), (40, 4)]
    search.given = [(1, 5, 4)]
    forecast.see(AppState(), 115.0)
    whole = forecast.whole(115.0)
    assert [(p.work_gpu_s, p.demand) for p in whole] == [(50, 8), (65, 8), (5, 4)]


def trials_done(*iterations: float, gpus: int = 2) -> AppState:
    return AppState(
        tuple(TrialInfo(f"t{i}", n, 100, max_gpus=gpus) for i, n in enumerate(iterations))
    )


def test_the_longest_job_of_each_phase_sets_its_pace() -> None:
    """Counted from where the phase began: also of what is over and of what is half done."""
    search = Phases((4, 10, 2), (2, 20, 2))
    forecast = Forecast(search)
    forecast.see(trials_done(0, 0, 0, 0), 0.0)
    assert forecast.whole(0.0) == [PhaseSum(40, 8, 5), PhaseSum(40, 4, 10)]
    assert [phase.gpus for phase in forecast.whole(0.0)] == [8, 4]
    # One job has 4 of 16 iterations to do; the others are done.
    search.given = [(1, 4, 2), (2, 20, 2)]
    forecast.see(trials_done(12, 10, 10, 10), 42.0)
    assert forecast.whole(42.0)[0] == PhaseSum(46, 8, 8)
    assert forecast.whole(42.0)[0].gpus == 46 / 8
    search.given = [(2, 20, 2)]
    forecast.see(trials_done(16, 10, 10, 10), 46.0)
    assert forecast.whole(46.0) == [PhaseSum(46, 8, 8), PhaseSum(40, 4, 10)]
    search.given = [(2, 5, 2)]
    forecast.see(trials_done(31, 25, 10, 10), 76.0)
    assert forecast.whole(76.0) == [PhaseSum(46, 8, 8), PhaseSum(40, 4, 10)]


def app_of(search: Any, **settings: Any) -> Agent:
    agent = Agent(AgentSettings("a", **settings), 0.0, cluster_gpus=16, n_avg=4.0)
    for i in range(4):
        agent.add_trial(f"t{i}", 10)
        agent.trial_waits(f"t{i}", f"g{i}")
    agent.use(search)
    return agent


def test_t_id_is_the_papers_or_goes_by_phases() -> None:
    phases = ((4, 10, 2), (2, 20, 4), (1, 40, 2))
    assert app_of(Phases(*phases)).t_ideal_s() == pytest.approx(120 / 8 * 4)
    # On 16 / 4 GPUs: the last phase can use only two of its four.
    exclusive = app_of(Phases(*phases), ideal="exclusive").t_ideal_s()
    assert exclusive == pytest.approx(40 / 4 + 40 / 4 + 40 / 2)
    assert app_of(Phases(*phases), weight=2.0).t_ideal_s() == pytest.approx(120 / 8 * 2)


def test_a_report_tells_the_work_of_each_phase() -> None:
    agent = app_of(Phases((4, 10, 2), (2, 20, 4), (1, 40, 2)))
    assert agent.state_of_app(0.0).phases == ((40, 8), (40, 8), (40, 2))


def test_a_report_of_trials_that_end_by_themselves_has_one_phase() -> None:
    """3 trials of 10 iterations and one of 60 that each use 2 GPUs: 90 GPU-s in 30 s or more.

    A trial that lives on after its last iteration is taken to do another one.
    """
    agent = app_of(AllTrials(), trial_max=2)
    assert agent.state_of_app(0.0).phases == ((40, 8),)
    agent.trials["t3"].iterations_total = 60
    agent.changed()
    assert agent.state_of_app(0.0).phases == ((90, 3),)
    agent.trials["t3"].iterations_done = 40
    agent.trials["t0"].iterations_done = 10
    agent.changed()
    assert agent.state_of_app(0.0).phases == ((91, pytest.approx(91 / 30)),)


def test_trials_that_share_a_gpu_need_half_of_it() -> None:
    agent = app_of(AllTrials(), sharers=2)
    assert agent.state_of_app(0.0).phases == ((20, 2),)


def test_without_work_nothing_is_told() -> None:
    assert Agent(AgentSettings("a"), 0.0, cluster_gpus=8).state_of_app(0.0).phases == ()


class Fails(RemainingSearch):
    """Works as long as it is not given three GPUs."""

    def jobs_remaining(self, allocation: Sequence[int]) -> Sequence[JobInfo]:
        if sum(allocation) >= 3:
            raise KeyError("boom")
        return share_out(self.app.jobs(), allocation)


class Lies(RemainingSearch):
    def jobs_remaining(self, allocation: Sequence[int]) -> Sequence[JobInfo]:
        return [JobInfo("t0", float("nan"), 1.0)]


@pytest.mark.parametrize(("search", "word"), [(Fails(), "boom"), (Lies(), "nan iterations")])
def test_an_adapter_that_fails_is_told_of_and_replaced(search: Any, word: str) -> None:
    agent, other = app_of(search), app_of(AllTrials())
    offer = SendOffer("a", 1, Allocation({"m": 8}), Allocation(), Allocation(), {"m": "r"}, 4.0,
                      16, 600)  # fmt: skip
    assert agent.bid(offer, 5.0) == other.bid(offer, 5.0)
    assert type(search).__name__ in agent.forecast.trouble
    assert word in agent.forecast.trouble
    assert agent.remarks() == [agent.forecast.trouble]
    assert agent.state_of_app(6.0).notes == (agent.forecast.trouble,)


def test_trials_to_come_and_concurrency_count() -> None:
    forecast = Forecast(AllTrials())
    trials = (TrialInfo("a", 0, 10), TrialInfo("b", 5, 10))
    forecast.see(AppState(trials, to_come=2, concurrency=2.0), 5.0)
    assert sum(phase.work_gpu_s for phase in forecast.phases) == 10 + 5 + 20
    # Two at once however many GPUs there are: b ends at 5, the third at 15, the fourth at 20.
    assert forecast.time_left_s(8) == 20
    assert forecast.time_left_s(1) == 35
