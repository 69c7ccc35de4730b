"""Kill -9 of the process that writes checkpoints, at a random byte, a hundred times."""

from __future__ import annotations

import multiprocessing
import random
import signal
from pathlib import Path
from typing import Any

import pytest
import workload_jobs as jobs
import workload_writers

from themis_ray.workloads import load_checkpoint, save_checkpoint
from themis_ray.workloads.checkpoint import list_checkpoints

KILLS = 100
LIMIT_S = 60.0


class Undisturbed:
    """The weights of a run that nobody kills, at each step up to the one asked for."""

    def __init__(self) -> None:
        self._trainer = jobs.make_trainer()
        self._weights = [jobs.weights(self._trainer)]

    def at(self, step: int) -> dict[str, Any]:
        while len(self._weights) <= step:
            self._trainer.run(1)
            self._weights.append(jobs.weights(self._trainer))
        return self._weights[step]


@pytest.mark.parametrize("wait", [True, False], ids=["at once", "in the background"])
def test_a_job_whose_writer_is_killed_always_goes_on(tmp_path: Path, wait: bool) -> None:
    # Forked from a clean process that has done the imports, which take seconds: those of the jobs,
    # and what the first optimiser imports.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", "themis_ray.workloads.tune_loop", "torch._dynamo"])
    undisturbed = Undisturbed()
    with jobs.make_trainer() as first:
        first.run(1)
        first.save(tmp_path)
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    rng = random.Random(1)
    step, killed = 1, 0
    died_in: set[int] = set()
    while killed < KILLS:
        # In any of the payloads and manifests that it would write, all bytes alike.
        fatal_byte = rng.randrange(workload_writers.SAVES * size)
        arguments = (str(tmp_path), fatal_byte, wait)
        writer = context.Process(target=workload_writers.train_until_killed, args=arguments)
        writer.start()
        writer.join(timeout=LIMIT_S)
        assert writer.exitcode in (0, -signal.SIGKILL)
        killed += writer.exitcode == -signal.SIGKILL
        loaded = load_checkpoint(tmp_path)
        assert step <= loaded.step <= step + workload_writers.SAVES
        assert jobs.same_bits(dict(loaded.state["model"]), undisturbed.at(loaded.step))
        died_in.add(loaded.step - step)
        step = loaded.step
    assert died_in >= set(range(workload_writers.SAVES))
    # What the killed ones left behind goes with the next checkpoint.
    save_checkpoint(tmp_path, {}, step + 1)
    assert len(list_checkpoints(tmp_path)) == 2
    assert len(list(tmp_path.iterdir())) == 4
