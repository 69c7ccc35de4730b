"""S(G) measured on a Ray cluster of two nodes, over a link between them that is slow."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.ray_process import eventually, left_over
from themis_ray.core.cluster import Level
from themis_ray.core.slowdown import Signature
from themis_ray.profiling.profiler import ProfileJob, look_around, profile_model

pytest.importorskip("torchvision")

CONFIG = {"model": "squeezenet1_1", "global_batch": 4, "image_size": 32, "eval_examples": 1}
SECONDS_PER_BYTE = 1e-6
# squeezenet1_1 with 10 classes: 727,626 parameters of 4 bytes.
BYTES = 2_910_504


def slow_link(seconds_per_byte: float) -> Callable[[Any, Any], Any]:
    """A DDP communication hook that sleeps for what would cross from one node to another."""

    def hook(state: Any, bucket: Any) -> Any:
        import ray
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

        table = ray.util.placement_group_table(ray.util.get_current_placement_group())
        if len(set(table["bundles_to_node_id"].values())) > 1:
            time.sleep(seconds_per_byte * bucket.buffer().nbytes)
        return allreduce_hook(state, bucket)

    return hook


def test_a_slow_link_between_nodes_shows_up(two_racks: Any) -> None:
    cluster = look_around()
    assert cluster.unit == "GPU"
    assert sorted((m.gpus, m.rack, m.slots) for m in cluster.machines) == [
        (2, "r0", 1),
        (2, "r1", 1),
    ]
    told: dict[str, int] = {}

    def on_steps(placement: Any, steps: int) -> None:
        told[str(placement.signature)] = told.get(str(placement.signature), 0) + steps

    job = ProfileJob(CONFIG, iterations=2, warmup=1, comm_hook=slow_link(SECONDS_PER_BYTE))
    found = profile_model(job, [1, 2], cluster, on_steps)
    assert told == {"1": 2, "2": 2, "1+1/cluster": 2}
    assert found.not_measured == [
        "2 GPUs on two machines of a rack: no rack has two machines with any free"
    ]
    by_placement = {m.placement: m for m in found.measured}
    assert {name: m.iterations for name, m in by_placement.items()} == told
    apart = by_placement["1+1/cluster"]
    assert apart.iter_s >= SECONDS_PER_BYTE * BYTES
    assert apart.slowdown == pytest.approx(2 * apart.iter_s / by_placement["1"].iter_s)
    # Watched on its way between two processes: classifier.1 is 589,824 bytes with 1,000 classes.
    assert found.skew == pytest.approx(589_824 / BYTES)
    s = found.table().s
    assert s(Signature((1, 1), Level.CLUSTER)) == max(1.0, apart.slowdown)
    eventually("nothing is left of it", lambda: not left_over())


def test_a_placement_that_fails_is_named_and_the_others_are_measured(two_racks: Any) -> None:
    def broken(state: Any, bucket: Any) -> Any:
        raise ValueError("the link is down")

    job = ProfileJob(CONFIG, iterations=1, warmup=0, comm_hook=broken)
    cluster = look_around()
    cluster = type(cluster)("GPU", cluster.machines[:1], cluster.node_ids)
    found = profile_model(job, [1, 2], cluster)
    assert [m.placement for m in found.measured] == ["1"]
    assert any(line.startswith("2: it failed: ") for line in found.not_measured)
    eventually("nothing is left of it", lambda: not left_over())
