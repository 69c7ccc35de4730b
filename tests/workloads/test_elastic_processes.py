"""Several real processes in a lease: same training, and no hang when one is lost."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import ray
import workload_jobs as jobs
from ray.util.placement_group import PlacementGroup
from workload_jobs import await_death, call

from themis_ray.workloads import ElasticSampler, load_checkpoint

Grant = Callable[[int], PlacementGroup]


def test_training_does_not_depend_on_the_number_of_processes(lease: Grant) -> None:
    trial = jobs.start_trial(lease(3))
    alone = jobs.train_plain(1)
    assert alone["k"] == 1
    for k in (2, 3):
        several = call(trial, jobs.train_plain, k)
        assert several["k"] == k
        assert several["losses"] == pytest.approx(alone["losses"], rel=1e-10)
        for name, value in alone["weights"].items():
            assert (value - several["weights"][name]).abs().max() < 1e-10


@pytest.mark.parametrize(("k", "leases"), [(2, [3, 7, 2]), (3, [6, 6])])
def test_leases_of_equal_size_change_no_bit(
    lease: Grant, tmp_path: Path, k: int, leases: list[int]
) -> None:
    trial = jobs.start_trial(lease(k))
    same_weights, same_losses = call(
        trial, jobs.train_with_breaks, k, leases, str(tmp_path / "checkpoints")
    )
    assert same_weights
    assert same_losses


def test_a_lost_rank_ends_the_step(lease: Grant, tmp_path: Path) -> None:
    trial = jobs.start_trial(lease(2))
    folder = str(tmp_path / "checkpoints")
    # A death, then a hang; each time the same lease takes another set of ranks.
    for signum in (jobs.KILL, jobs.STOP):
        pid_file = tmp_path / f"pid-{signum}"
        took, message = call(trial, jobs.lose_a_rank, signum, str(pid_file), folder)
        assert took < 60
        assert "last checkpoint" in message
        await_death(int(pid_file.read_text()))
    assert call(trial, jobs.go_on, folder) == 3
    own_pid = call(trial, os.getpid)
    ray.kill(trial)
    await_death(own_pid)


@pytest.mark.parametrize("signum", [jobs.KILL, jobs.STOP])
def test_a_lost_rank_is_replaced_in_the_same_lease(
    lease: Grant, tmp_path: Path, signum: int
) -> None:
    """The losses and the weights have the bits of a run that lost nothing."""
    trial = jobs.start_trial(lease(2))
    losses, weights = call(trial, jobs.train_rich, 2)
    pid_file = tmp_path / "pid"
    # After a death the last checkpoint is gone back to; after a hang the start, as there is none.
    folder = str(tmp_path / "checkpoints") if signum == jobs.KILL else None
    again, their_weights, step = call(trial, jobs.train_past_a_loss, signum, str(pid_file), folder)
    await_death(int(pid_file.read_text()))
    assert step == 2 * jobs.STEPS
    assert again == losses
    assert jobs.same_bits(weights, their_weights)


def test_losses_without_end_are_given_up(lease: Grant) -> None:
    trial = jobs.start_trial(lease(2))
    message = call(trial, jobs.give_up, jobs.AlwaysFatal(), 1)
    assert "rank 1 died" in message
    assert "1 restarts before" in message
    # What would be raised again is not tried again.
    message = call(trial, jobs.give_up, jobs.Faulty(), 3)
    assert "no such example" in message
    assert "restarts" not in message


def test_each_rank_writes_its_part_of_a_checkpoint(lease: Grant, tmp_path: Path) -> None:
    trial = jobs.start_trial(lease(2))
    expected = call(trial, jobs.save_in_parts, 2, str(tmp_path))
    [manifest] = tmp_path.glob("*.json")
    files = json.loads(manifest.read_text())["files"]
    assert len(files) == 2
    assert min(entry["bytes"] for entry in files.values()) > 2000
    loaded = load_checkpoint(tmp_path)
    assert loaded.step == jobs.STEPS
    assert jobs.same_bits(jobs.tensors(loaded.state), expected)
    with jobs.make_trainer(model=jobs.rich_model, step_fn=jobs.single_precision) as alone:
        assert alone.restore(tmp_path) == jobs.STEPS
        alone.run(1)


def test_parts_of_two_checkpoints_are_not_mixed(lease: Grant, tmp_path: Path) -> None:
    trial = jobs.start_trial(lease(2))
    expected = call(trial, jobs.save_twice_at_once, str(tmp_path))
    newest = load_checkpoint(tmp_path)
    assert newest.step == 3
    newest.path.unlink()
    for loaded, tensors in zip((load_checkpoint(tmp_path), newest), expected, strict=True):
        assert jobs.same_bits(jobs.tensors(loaded.state), tensors)


def test_the_part_of_a_lost_rank_is_written_for_it(lease: Grant, tmp_path: Path) -> None:
    trial = jobs.start_trial(lease(2))
    pid_file, folder = tmp_path / "pid", tmp_path / "checkpoints"
    step, saved = call(trial, jobs.lose_a_rank_that_holds_a_part, str(pid_file), str(folder))
    await_death(int(pid_file.read_text()))
    assert step == 2 * jobs.STEPS
    loaded = load_checkpoint(folder)
    assert loaded.step == jobs.STEPS
    assert jobs.same_bits(jobs.tensors(loaded.state), saved)
    with jobs.make_trainer(model=jobs.rich_model, step_fn=jobs.single_precision) as alone:
        assert alone.restore(folder) == jobs.STEPS


def test_ten_random_leases_change_nothing(lease: Grant, tmp_path: Path) -> None:
    """Same steps, same data order, same losses as in one undisturbed process."""
    trial = jobs.start_trial(lease(4))
    rng = random.Random(7)
    folder, notes = tmp_path / "checkpoints", tmp_path / "notes"
    notes.mkdir()
    losses: list[float] = []
    batches: list[list[int]] = []
    sizes = []
    for number in range(10):
        sizes.append(rng.randint(1, 4))
        noted = notes / str(number)
        steps = rng.randint(1, 3)
        losses += call(trial, jobs.train_one_lease, sizes[-1], steps, str(folder), str(noted))
        batches += jobs.batches_noted(noted)
    assert len(set(sizes)) == 4
    with jobs.make_trainer() as alone:
        assert losses == pytest.approx(alone.run_losses(len(losses)), rel=1e-9)
        last = load_checkpoint(folder)
        assert last.step == alone.step
        for name, value in jobs.weights(alone).items():
            assert (value - last.state["model"][name]).abs().max() < 1e-9
    order = ElasticSampler(jobs.EXAMPLES, jobs.GLOBAL_BATCH, seed=5)
    for step, batch in enumerate(batches):
        expected = order.batch(step).tolist()
        # Ranks without a part of their own borrow examples, which come last.
        assert batch[: len(expected)] == expected
    assert len(batches) == len(losses)
