"""How many GPUs a trace would hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis_ray.reproduce.traces import demand
from themis_ray.sim.jobs import TraceApp, TraceJob


def app(arrival_s: float, gpus: int, length_s: float) -> TraceApp:
    job = TraceJob("0", "vgg16", gpus, length_s * gpus, 1.0)
    return TraceApp(f"{arrival_s}", arrival_s, "single", (job,))


def test_the_demand_is_that_which_work_sees() -> None:
    assert demand([app(5, 3, 10)]) == 3
    assert demand([app(0, 1, 10), app(0, 3, 10)]) == 4
    # 10 s at 4 GPUs and 40 s at 1.
    assert demand([app(0, 3, 10), app(0, 1, 50)]) == pytest.approx((10 * 16 + 40) / 80)
    # A gap counts nothing.
    assert demand([app(0, 2, 10), app(1000, 2, 10)]) == 2


@given(
    st.lists(
        st.tuples(st.integers(0, 100), st.integers(1, 8), st.integers(1, 50)),
        min_size=1,
        max_size=12,
    )
)
def test_demand_is_between_the_least_and_the_most_held(rows: list[tuple[int, int, int]]) -> None:
    apps = [app(*row) for row in rows]
    held = [sum(g for at, g, long in rows if at <= t < at + long) for t in range(151)]
    found = demand(apps)
    assert min(h for h in held if h) - 1e-9 <= found <= max(held) + 1e-9
    assert found == pytest.approx(sum(h * h for h in held) / sum(held))
