import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis_ray.core import valuation
from themis_ray.core.cluster import Allocation, Cluster, Level, Machine
from themis_ray.core.fairness import Phase
from themis_ray.errors import InvalidInputError

# The paper's worked example: four jobs, phases of 4 x 8, 2 x 16 and 1 x 36 iterations.
SERIAL_S = [80.0, 100.0, 100.0, 120.0]
CURRENT = [(8, s) for s in SERIAL_S]
FUTURE = [Phase(2, 16), Phase(1, 36)]
T_IDEAL_S = 2500.0

works = st.lists(st.tuples(st.floats(0, 100), st.floats(0.1, 100)), min_size=1, max_size=8)


@pytest.mark.parametrize(("gpus", "r"), [(1, 4), (2, 2), (4, 1.064), (8, 0.532), (16, 0.356)])
def test_worked_example(gpus: int, r: float) -> None:
    t_shared_s = valuation.successive_halving_t_shared_s(CURRENT, FUTURE, gpus=gpus, demand_max=8)
    assert t_shared_s / T_IDEAL_S == pytest.approx(r, abs=1e-12)


def test_the_makespan_split_promises_less_time_than_the_worked_example() -> None:
    assert valuation.phase_time_s(CURRENT, 16, 8, split="even") == 240
    assert valuation.phase_time_s(CURRENT, 16, 8, split="makespan") == pytest.approx(640 / 3)


def test_survivors_slower_than_the_median_revise_the_estimate() -> None:
    survivors = [(16, 120.0), (16, 100.0)]
    phase_2_s = valuation.phase_time_s(survivors, 2, 8)
    total_s = valuation.successive_halving_t_shared_s(
        survivors, [Phase(1, 36)], gpus=2, demand_max=8
    )
    assert phase_2_s == 1920
    assert total_s - phase_2_s == 2160


def test_fewer_gpus_than_jobs_are_packed_longest_first() -> None:
    assert valuation.phase_time_s(CURRENT, 2, 8) == 8 * (120 + 80)
    assert valuation.phase_time_s(CURRENT, 3, 8) == 8 * (100 + 80)


def test_demand_caps_a_share() -> None:
    assert valuation.phase_time_s([(10, 8.0)], 16, 4) == 20
    assert valuation.phase_time_s([(10, 8.0)], 16, 4, split="makespan") == 20


def test_jobs_that_are_done_leave_their_gpus_to_the_others() -> None:
    assert valuation.phase_time_s([(0, 50.0), (10, 8.0)], 4, 8) == 20


@pytest.mark.parametrize(
    ("gpus", "n", "shares"), [(16, 4, (4, 4, 4, 4)), (7, 3, (3, 2, 2)), (2, 3, (1, 1, 0))]
)
def test_split_even(gpus: int, n: int, shares: tuple[int, ...]) -> None:
    assert valuation.split_even(gpus, n) == shares


def test_single_job_is_equation_1() -> None:
    t_shared_s = valuation.single_job_t_shared_s(
        100, 60.0, gpus=8, demand_max=4, elapsed_s=500, slowdown=1.1
    )
    assert t_shared_s == pytest.approx(500 + 100 * 60 * 1.1 / 4)


def test_without_gpus_an_app_never_ends() -> None:
    assert valuation.single_job_t_shared_s(1, 1.0, gpus=0, demand_max=1) == math.inf
    assert (
        valuation.successive_halving_t_shared_s(CURRENT, FUTURE, gpus=0, demand_max=8) == math.inf
    )
    assert valuation.phase_time_s([], 0, 1) == 0


def test_slowdown_does_not_touch_a_job_on_one_gpu() -> None:
    assert valuation.phase_time_s([(10, 1.0)], 1, 4, slowdown=1.3) == 10
    assert valuation.phase_time_s([(10, 1.0)] * 2, 2, 4, slowdown=1.3) == 10
    assert valuation.phase_time_s([(10, 1.0)] * 2, 4, 4, slowdown=1.3) == 6.5


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: valuation.split_even(-1, 2), "0 or more GPUs"),
        (lambda: valuation.phase_time_s([(1, 1.0)], 1, 0), "demand of 1 or more"),
        (lambda: valuation.phase_time_s([(-1, 1.0)], 1, 1), "finite and 0 or more"),
        (lambda: valuation.phase_time_s([(1, math.nan)], 1, 1), "finite and 0 or more"),
        (lambda: valuation.phase_time_s([(1, 1.0)], 2, 2, slowdown=0.5), "1 or more"),
        (lambda: valuation.phase_time_s([(1, 1.0)], 1, 1, split="best"), "'even' or 'makespan'"),
        (lambda: valuation.median_iter_s([]), "list the jobs"),
        (lambda: valuation.place_best_first(3, [Machine("a", 2)]), "do not fit"),
    ],
)
def test_bad_values_are_refused(call: object, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        call()  # type: ignore[operator]


@given(works, st.integers(1, 24), st.integers(1, 8))
def test_makespan_time_never_grows_with_a_gpu(
    work: list[tuple[float, float]], gpus: int, demand: int
) -> None:
    one_more_s = valuation.phase_time_s(work, gpus + 1, demand, split="makespan")
    assert one_more_s <= valuation.phase_time_s(work, gpus, demand, split="makespan") * (1 + 1e-9)


@given(works, st.integers(1, 24), st.integers(1, 8))
def test_makespan_is_never_slower_than_even(
    work: list[tuple[float, float]], gpus: int, demand: int
) -> None:
    even_s = valuation.phase_time_s(work, gpus, demand, split="even")
    assert valuation.phase_time_s(work, gpus, demand, split="makespan") <= even_s * (1 + 1e-9)


@given(works, st.integers(1, 24), st.integers(1, 8), st.sampled_from(["even", "makespan"]))
def test_a_phase_is_never_faster_than_its_work_and_its_longest_job(
    work: list[tuple[float, float]], gpus: int, demand: int, split: valuation.Split
) -> None:
    time_s = valuation.phase_time_s(work, gpus, demand, split=split)
    jobs = [n * s for n, s in work]
    assert time_s >= max(sum(jobs) / gpus, max(jobs) / min(gpus, demand)) * (1 - 1e-9)


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=5), st.integers(0, 12), st.integers(1, 5))
def test_split_makespan_is_optimal(work: list[float], extra: int, demand: int) -> None:
    gpus = len(work) + extra

    def best(i: int, left: int) -> float:
        if i == len(work):
            return 0.0
        room = min(demand, left - (len(work) - i - 1))
        return min(max(work[i] / k, best(i + 1, left - k)) for k in range(1, room + 1))

    shares = valuation.split_makespan(work, gpus, demand)
    assert sum(shares) <= gpus
    assert max(shares) <= demand
    reached = max(w / k for w, k in zip(work, shares, strict=True))
    assert reached == pytest.approx(best(0, gpus))


RACKED = [
    Machine("a", 4, "r0"),
    Machine("b", 2, "r0"),
    Machine("c", 2, "r1"),
    Machine("d", 8, "r2"),
]


@pytest.mark.parametrize(
    ("gpus", "bundle"),
    [
        (0, {}),
        (2, {"b": 2}),
        (3, {"a": 3}),
        (8, {"d": 8}),
        (10, {"a": 2, "d": 8}),
    ],
)
def test_a_bundle_is_placed_on_the_fewest_machines(gpus: int, bundle: dict[str, int]) -> None:
    assert valuation.place_best_first(gpus, RACKED) == Allocation(bundle)


def test_one_rack_is_better_than_two() -> None:
    machines = [Machine("a", 3, "r0"), Machine("b", 2, "r1"), Machine("c", 2, "r1")]
    assert valuation.place_best_first(4, machines) == Allocation({"b": 2, "c": 2})


def test_each_job_has_the_slowdown_of_its_own_placement() -> None:
    cluster = Cluster(tuple(Machine(f"m{i}", 4, f"r{i // 2}") for i in range(4)))
    by_level = {Level.SLOT: 1.0, Level.MACHINE: 1.0, Level.RACK: 1.1, Level.CLUSTER: 1.3}
    slowdown = valuation.placed_slowdown(cluster.capacity, cluster, by_level)
    assert slowdown([4, 4, 4, 4]) == [1, 1, 1, 1]
    assert slowdown([8, 8]) == [1.1, 1.1]
    assert slowdown([16]) == [1.3]


@given(
    st.lists(st.integers(0, 8), min_size=1, max_size=6),
    st.lists(st.integers(0, 8), max_size=6),
)
def test_laying_out_uses_each_gpu_once(machines: list[int], wanted: list[int]) -> None:
    bundle = {f"m{i}": gpus for i, gpus in enumerate(machines)}
    racks = {m: f"r{i % 2}" for i, m in enumerate(bundle)}
    room = sum(machines)
    shares = []
    for share in wanted:
        shares.append(min(share, room))
        room -= shares[-1]
    placed = valuation.lay_out(shares, bundle, racks)
    assert [part.size for part in placed] == shares
    assert sum(placed, Allocation()) <= Allocation(bundle)
