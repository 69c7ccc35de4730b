import math

import pytest

from themis_ray.agent.bidder import Outlook, bid_table
from themis_ray.core.bids import check_against_offer
from themis_ray.core.cluster import Allocation, Level
from themis_ray.core.commands import SendOffer
from themis_ray.core.fairness import Phase
from themis_ray.sim.outlook import SimOutlook


def slowdown(gpus: int, level: Level) -> float:
    return 1.0 if gpus <= 1 else 1 + 0.1 * level


def outlook(jobs: list[tuple[float, float]], low: int, high: int, **more: object) -> SimOutlook:
    return SimOutlook(jobs, low, high, 10.0, 100.0, slowdown, 45.0, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("gpus", [1, 2, 3, 4, 5, 7, 8, 16, 40])
@pytest.mark.parametrize("level", [Level.MACHINE, Level.CLUSTER])
@pytest.mark.parametrize(("jobs", "high"), [(1, 1), (1, 4), (3, 2), (5, 4)])
def test_future_phases_cost_what_the_live_bidder_says(
    gpus: int, level: Level, jobs: int, high: int
) -> None:
    future = SimOutlook(
        [], 1, high, 0.0, 1.0, slowdown, 0.0, future=[Phase(jobs, 30)], median_iter_s=2.0
    )
    live = Outlook([(30, 2.0)] * jobs, 1, high, 0.0, 1.0, slowdown)
    assert future._phase_s(Phase(jobs, 30), gpus, level) == pytest.approx(
        live.time_left_s(gpus, level)
    )


def test_belief_scales_the_time_left() -> None:
    honest = outlook([(100, 1.0)], 1, 4)
    liar = outlook([(100, 1.0)], 1, 4, belief=0.5)
    assert liar.time_left_s(2) == honest.time_left_s(2) / 2
    assert liar.time_left_s(2) == liar.time_left_s(2)


def offer(**gpus: int) -> SendOffer:
    nothing = Allocation()
    racks = dict.fromkeys(gpus, "r0")
    return SendOffer("a", 1, Allocation(gpus), nothing, nothing, racks, 2.0, 16, 600.0)


def test_gangs_may_lie_on_several_machines() -> None:
    command = offer(m0=4, m1=4)
    table = bid_table("a", outlook([(100, 1.0)], 8, 8), command, [], 8)
    check_against_offer(table, command.offer)
    assert {(row.size, row.level) for row in table.rows} == {(8, Level.RACK), (8, Level.CLUSTER)}
    assert math.isinf(table.r_nothing)


def test_gangs_rather_lie_on_one_machine() -> None:
    table = bid_table("a", outlook([(100, 1.0)], 4, 4), offer(m0=4, m1=4), [], 4)
    best = min(table.rows, key=lambda row: row.r)
    assert best.parts == (4,)
    assert len(table.rows) == 3
