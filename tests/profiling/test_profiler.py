"""S(G) measured on a Ray cluster of two nodes, over a link between them that is slow."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.ray_process import eventually, left_over, starts_arbiter
from tests.tune.trainables import Counting
from themis_ray.core.cluster import Level
from themis_ray.core.events import AppReport, BidReceived, Reported
from themis_ray.core.journal import Entry
from themis_ray.core.slowdown import PRIORS, Signature
from themis_ray.live.journal_reader import read_journal
from themis_ray.profiling.profile_file import ModelProfile, save_profile
from themis_ray.profiling.profiler import (
    ClusterFound,
    ProfileJob,
    look_around,
    profile_model,
)

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


@dataclass(frozen=True)
class Slowed:
    """What was measured over the slow link, and what was said on the way."""

    cluster: ClusterFound
    told: dict[str, int]
    found: ModelProfile


@pytest.fixture(scope="module")
def slowed(two_racks: Any) -> Slowed:
    """One and two GPUs, together and apart, measured over the slow link."""
    cluster = look_around()
    told: dict[str, int] = {}

    def on_steps(placement: Any, steps: int) -> None:
        told[str(placement.signature)] = told.get(str(placement.signature), 0) + steps

    job = ProfileJob(CONFIG, iterations=2, warmup=1, comm_hook=slow_link(SECONDS_PER_BYTE))
    return Slowed(cluster, told, profile_model(job, [1, 2], cluster, on_steps))


def test_a_slow_link_between_nodes_shows_up(slowed: Slowed) -> None:
    cluster, told, found = slowed.cluster, slowed.told, slowed.found
    assert cluster.unit == "GPU"
    assert sorted((m.gpus, m.rack, m.slots) for m in cluster.machines) == [
        (2, "r0", 1),
        (2, "r1", 1),
    ]
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


def slowdown_in_bid(journal: Path, app: str) -> float:
    """S(two GPUs in two racks) less S(two on one machine), by an app's first bid to the arbiter.

    A bid says r: the difference between its two rows, in seconds, is that of S times the seconds
    that the work would take on two GPUs without any slowdown.
    """
    report: AppReport | None = None
    for _, line in read_journal(journal, pytest.fail):
        event = line.event if isinstance(line, Entry) else None
        if isinstance(event, Reported) and event.app == app and event.round_id is not None:
            report = event.report
        if isinstance(event, BidReceived) and event.table.app == app:
            rows = {row.parts: row.r for row in event.table.rows if row.level is Level.CLUSTER}
            assert report is not None
            later_s = (rows[1, 1] - rows[2,]) * report.t_ideal_s
            work_gpu_s = sum(job.iterations_left * job.serial_iter_s for job in report.jobs)
            return later_s / (work_gpu_s / 2)
    raise AssertionError(f"{app} made no bid")


def test_what_was_measured_is_in_the_bids_that_the_arbiter_gets(
    slowed: Slowed, tmp_path: Path
) -> None:
    """In those of an app that has the file, of one that is told of it, and of no other model."""
    from ray import tune

    from themis_ray import ThemisScheduler

    profile, journal = tmp_path / "p.yaml", tmp_path / "journal.jsonl"
    save_profile(profile, CONFIG["model"], slowed.found)
    with starts_arbiter(lease_s=30.0, journal=str(journal)) as start:
        start()
        for app, model, profiles in (
            ("owner", CONFIG["model"], profile),
            ("neighbour", CONFIG["model"], None),
            ("stranger", "resnet18", None),
        ):
            tune.run(
                Counting,
                config={"model": model, "index": 0},
                stop={"training_iteration": 1},
                resources_per_trial={"cpu": 0.1, "gpu": 1},
                scheduler=ThemisScheduler(
                    app=app, min_gpus_per_trial=2, max_gpus_per_trial=2, profiles=profiles
                ),
                storage_path=str(tmp_path),
                verbose=0,
            )
    s = {m.placement: max(1.0, m.slowdown) for m in slowed.found.measured}
    difference = s["1+1/cluster"] - s["2"]
    assert difference > 1  # the link is slower than anything else here
    assert slowdown_in_bid(journal, "owner") == pytest.approx(difference, rel=0.01)
    assert slowdown_in_bid(journal, "neighbour") == pytest.approx(difference, rel=0.01)
    assert slowdown_in_bid(journal, "stranger") == pytest.approx(PRIORS[Level.CLUSTER] - 1)


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
