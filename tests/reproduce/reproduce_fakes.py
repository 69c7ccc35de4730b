"""Outcomes that nobody simulated, for tests of what is made of them."""

from __future__ import annotations

import random
import zlib
from typing import Any

from themis_ray.reproduce.outcome import Outcome
from themis_ray.reproduce.runs import Run
from themis_ray.sim.judges import JUDGES

APPS = 20


def fake_outcome(run: Run) -> Outcome:
    """An outcome with all that figures look at, seeded by the run."""
    rng = random.Random(zlib.crc32(repr(run).encode()))
    # The largest of many like numbers would be level with another run's.
    scale = rng.uniform(1, 5)
    names = [
        *("avg_jct_s", "median_jct_s", "p95_jct_s", "gpu_hours", "mean_placement_score"),
        *("avg_queue_s", "median_queue_s", "p95_queue_s"),
    ]
    apps: list[dict[str, Any]] = [
        {
            "id": f"a{i:03d}",
            # The same in every run of a trace.
            "gpus": (1, 4, 1, 8, 1, 16)[i % 6],
            "jobs": 1 + i % 3,
            "work_gpu_s": (1, 4, 1, 8, 1, 99)[i % 6] * (100.0 + 300 * i),
            "jct_s": rng.uniform(100, 10_000),
            "queued_s": rng.uniform(0, 100),
            "gpu_s": rng.uniform(100, 10_000),
        }
        for i in range(APPS)
    ]
    return Outcome(
        {
            "figures": {name: rng.uniform(1, 100) for name in names},
            "r": {judge: [scale * rng.uniform(0.5, 3) for _ in apps] for judge in JUDGES},
            "apps": apps,
            "placement": [[0.75, rng.uniform(1, 9)], [1.0, rng.uniform(1, 9)]],
            "seconds": 1.0,
        }
    )
