"""Small jobs, and a stand-in for the trial process that a lease starts."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
import torch.distributed as dist
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from themis_ray.errors import WorkerDiedError
from themis_ray.workloads import ElasticTrainer, elastic, run_trial
from themis_ray.workloads.snapshot import tensors_of

EXAMPLES = 22
GLOBAL_BATCH = 7
"""22 = 3 x 7 + 1: shards of 3, 2 and 2 among three ranks, and a last batch of one example."""


STEPS = 6
GPUS = 4
LEAK_LIMIT_S = 30.0
CALL_LIMIT_S = 200.0
KILL, STOP = signal.SIGKILL, signal.SIGSTOP


class Points(torch.utils.data.Dataset):
    """Random images in double precision, so that sums in another order agree to 1e-12."""

    def __init__(self, examples: int = EXAMPLES) -> None:
        generator = torch.Generator().manual_seed(3)
        self.x = torch.randn(examples, 3, 8, 8, generator=generator, dtype=torch.float64)
        self.y = torch.arange(examples) % 4

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.x[index], self.y[index]


class FatalPoints(Points):
    """Sends a signal to the process of rank 1 in the middle of training."""

    def __init__(self, signum: int, pid_file: str, after: int = 20) -> None:
        super().__init__()
        self._signum, self._pid_file, self._left = signum, pid_file, after

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if dist.is_initialized() and dist.get_rank() == 1:
            self._left -= 1
            if self._left == 0:
                Path(self._pid_file).write_text(str(os.getpid()))
                os.kill(os.getpid(), self._signum)
        return super().__getitem__(index)


def plain_model() -> Any:
    """No batch normalisation, no dropout: exact for every number of processes."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 6, 3),
        torch.nn.Tanh(),
        torch.nn.Flatten(),
        torch.nn.Linear(6 * 36, 24),
        torch.nn.Tanh(),
        torch.nn.Linear(24, 4),
    ).double()


def rich_model() -> Any:
    """Buffers, and a layer that draws random numbers."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 6, 3),
        torch.nn.BatchNorm2d(6),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.3),
        torch.nn.Flatten(),
        torch.nn.Linear(6 * 36, 4),
    )


def single_precision(model: Any, batch: Any) -> Any:
    """A step of one's own, for a model in single precision."""
    return torch.nn.functional.cross_entropy(model(batch[0].float()), batch[1])


def make_trainer(**options: Any) -> ElasticTrainer:
    chosen: dict[str, Any] = {
        "model": plain_model,
        "optimizer_fn": partial(torch.optim.SGD, lr=0.05, momentum=0.9),
        "dataset": Points,
        "global_batch": GLOBAL_BATCH,
        "seed": 5,
    }
    return ElasticTrainer(**{**chosen, **options})


def weights(trainer: ElasticTrainer) -> dict[str, Any]:
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def tensors(state: Any) -> dict[Any, Any]:
    """Copies of what a job learns: the model's tensors and the optimiser's."""
    found = tensors_of({"model": state["model"], "optimizer": state["optimizer"]})
    return {path: tensor.clone() for path, tensor in found}


def same_bits(left: dict[Any, Any], right: dict[Any, Any]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


class BusyThenFree:
    """Picks a port that is taken, twice, and then any free one."""

    def __init__(self) -> None:
        self._holder = socket.socket(socket.AF_INET6)
        self._holder.bind(("::", 0))
        self._holder.listen()
        self.calls = 0

    def __call__(self) -> int:
        self.calls += 1
        return self._holder.getsockname()[1] if self.calls <= 2 else 0

    def close(self) -> None:
        self._holder.close()


def train_plain(k: int) -> dict[str, Any]:
    with make_trainer(max_processes=k) as trainer:
        losses = trainer.run_losses(STEPS)
        return {"k": trainer.processes, "losses": losses, "weights": weights(trainer)}


def train_with_breaks(k: int, leases: list[int], folder: str) -> tuple[bool, bool]:
    """Whether a run in leases of some steps has the weights and losses of an undisturbed one."""
    options = {**RICH, "max_processes": k}
    with make_trainer(**options) as trainer:
        whole = trainer.run_losses(sum(leases))
        expected = weights(trainer)
    with make_trainer(**options) as trainer:
        losses = trainer.run_losses(leases[0])
        trainer.save(folder)
        moved = not same_bits(weights(trainer), expected)
    for steps in leases[1:]:
        picker = BusyThenFree()
        with make_trainer(**options, pick_port=picker) as trainer:
            assert trainer.restore(folder) == len(losses)
            resumed = trainer.run_losses(steps)
            assert picker.calls == 3
            picker.close()
            # The same processes can be given the state once more.
            trainer.restore(folder)
            assert trainer.run_losses(steps) == resumed
            losses += resumed
            trainer.save(folder)
            same = same_bits(weights(trainer), expected)
    return moved and same, losses == whole


def lose_a_rank(signum: int, pid_file: str, folder: str) -> tuple[float, str]:
    """Lose rank 1 in mid-training; return the seconds until the error, and its message."""
    points = FatalPoints(signum, pid_file)
    with make_trainer(dataset=points, step_timeout_s=10.0, max_restarts=0) as trainer:
        trainer.run(1)
        trainer.save(folder)
        begin = time.monotonic()
        with pytest.raises(WorkerDiedError, match=r"rank|no step") as caught:
            trainer.run(1000)
        took = time.monotonic() - begin
        with pytest.raises(WorkerDiedError, match="make a new one and restore"):
            trainer.run(1)
        return took, str(caught.value)


class FatalOnce(Points):
    """Sends a signal to the process of rank 1, unless one of its predecessors has had it."""

    def __init__(self, signum: int, pid_file: str, after: int) -> None:
        super().__init__()
        self._signum, self._pid_file, self._left = signum, pid_file, after

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if dist.is_initialized() and dist.get_rank() == 1:
            self._left -= 1
            if self._left == 0 and not Path(self._pid_file).exists():
                Path(self._pid_file).write_text(str(os.getpid()))
                os.kill(os.getpid(), self._signum)
        return super().__getitem__(index)


RICH = {"model": rich_model, "step_fn": single_precision, "deterministic": True}


def train_rich(k: int) -> tuple[list[float], dict[str, Any]]:
    """An undisturbed run."""
    with make_trainer(**RICH, max_processes=k) as trainer:
        losses = trainer.run_losses(2 * STEPS)
        return losses, weights(trainer)


def train_past_a_loss(
    signum: int, pid_file: str, save_to: str | None
) -> tuple[list[float], dict[str, Any], int]:
    """The same run, in which rank 1 is lost on the way; with a checkpoint before that or none."""
    fatal = FatalOnce(signum, pid_file, after=30)
    with make_trainer(**RICH, dataset=fatal, step_timeout_s=10.0) as trainer:
        losses = trainer.run_losses(STEPS)
        if save_to is not None:
            trainer.save(save_to, wait=False)
        losses += trainer.run_losses(STEPS)
        return losses, weights(trainer), trainer.step


def hang_once(config: dict[str, Any]) -> None:
    """A trial of two reports; between them, rank 1 hangs the first time."""
    points = FatalOnce(STOP, config["pid_file"], after=30)
    options = {"step_timeout_s": 10.0, "max_restarts": config["max_restarts"]}
    with make_trainer(dataset=points, **options) as trainer:
        run_trial(trainer, steps_per_report=STEPS, max_steps=2 * STEPS)


class AlwaysFatal(Points):
    """Kills the process of rank 1 at its first example, each time."""

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if dist.is_initialized() and dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class Faulty(Points):
    """Has a mistake that shows in rank 1 only."""

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if dist.is_initialized() and dist.get_rank() == 1:
            raise KeyError("no such example")
        return super().__getitem__(index)


def give_up(dataset: Any, restarts: int) -> str:
    with make_trainer(dataset=dataset, max_restarts=restarts, step_timeout_s=10.0) as trainer:
        with pytest.raises(WorkerDiedError) as caught:
            trainer.run(1)
        with pytest.raises(WorkerDiedError, match="make a new one"):
            trainer.run(1)
        return str(caught.value)


def save_in_parts(k: int, folder: str) -> dict[Any, Any]:
    """Write a checkpoint of which each rank has a part, while the training goes on."""
    with make_trainer(model=rich_model, step_fn=single_precision, max_processes=k) as trainer:
        trainer.run(STEPS)
        expected = tensors(trainer.state_dict())
        trainer.save(folder, wait=False, sharded=True)
        trainer.run(1)
    return expected


@contextmanager
def rank_0_writes_later() -> Iterator[threading.Event]:
    """Until the event is set, this process does not write its part of a checkpoint."""
    gate, at_once = threading.Event(), elastic.write_payload

    def later(*arguments: Any) -> Any:
        assert gate.wait(60)
        return at_once(*arguments)

    elastic.write_payload = later
    try:
        yield gate
    finally:
        elastic.write_payload = at_once


def save_twice_at_once(folder: str) -> list[dict[Any, Any]]:
    """Two checkpoints in parts, the second begun before the first is written."""
    states = []
    with make_trainer(model=rich_model, step_fn=single_precision) as trainer:
        trainer.run(1)
        with rank_0_writes_later() as gate:
            for _ in range(2):
                trainer.run(1)
                states.append(tensors(trainer.state_dict()))
                trainer.save(folder, wait=False, sharded=True)
            gate.set()
            trainer.flush()
    return states


def lose_a_rank_that_holds_a_part(pid_file: str, folder: str) -> tuple[int, dict[Any, Any]]:
    """Rank 1 is killed after it has copied its part, and before it is asked to write it."""
    fatal = FatalOnce(KILL, pid_file, after=30)
    with make_trainer(**RICH, dataset=fatal, step_timeout_s=10.0) as trainer:
        trainer.run(STEPS)
        with rank_0_writes_later() as gate:
            saved = tensors(trainer.state_dict())
            trainer.save(folder, wait=False, sharded=True)
            trainer.run(STEPS)
            gate.set()
            trainer.flush()
        return trainer.step, saved


def train_with_loaders(k: int, workers: int, folder: str) -> tuple[list[float], list[float]]:
    """Train, save, train; the losses before and after the save."""
    with make_trainer(max_processes=k, deterministic=True, loader_workers=workers) as trainer:
        before = trainer.run_losses(STEPS)
        trainer.save(folder)
        return before, trainer.run_losses(STEPS)


def start_loading() -> int:
    """Train a bit and leave it at that, with everything running; return the process."""
    global _running
    _running = make_trainer(max_processes=1, loader_workers=2)
    _running.run(1)
    return os.getpid()


_running: ElasticTrainer | None = None


class Numbered(Points):
    """Each example says which it is."""

    def __getitem__(self, index: int) -> tuple[Any, Any, int]:
        return *super().__getitem__(index), index


class NotedStep:
    """Writes down which examples the rank sees."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, model: Any, batch: Any) -> Any:
        rank = dist.get_rank() if dist.is_initialized() else 0
        with (self._folder / f"{rank}.jsonl").open("a") as file:
            file.write(f"{batch[2].tolist()}\n")
        return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])


def train_one_lease(k: int, steps: int, folder: str, notes: str) -> list[float]:
    """What a trial does in one lease: go on from the checkpoint, train, save."""
    Path(notes).mkdir()
    step_fn = NotedStep(Path(notes))
    with make_trainer(dataset=Numbered, step_fn=step_fn, max_processes=k) as trainer:
        if any(Path(folder).glob("*.json")):
            trainer.restore(folder)
        losses = trainer.run_losses(steps)
        trainer.save(folder)
        return losses


def batches_noted(notes: Path) -> list[list[int]]:
    """The examples of each step of a lease, rank after rank."""
    ranks = [
        [json.loads(line) for line in (notes / f"{rank}.jsonl").read_text().splitlines()]
        for rank in range(len(list(notes.iterdir())))
    ]
    return [[i for part in step for i in part] for step in zip(*ranks, strict=True)]


def go_on(folder: str) -> int:
    with make_trainer() as trainer:
        trainer.restore(folder)
        trainer.run(2)
        return trainer.step


class TrialProcess:
    """Runs what it is sent, as the actor of a trial would."""

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)


def start_trial(group: PlacementGroup) -> Any:
    """A trial's actor in bundle 0, as Tune places it."""
    strategy = PlacementGroupSchedulingStrategy(
        placement_group=group,
        placement_group_bundle_index=0,
        placement_group_capture_child_tasks=True,
    )
    options = {"num_cpus": 1, "num_gpus": 1, "scheduling_strategy": strategy}
    return ray.remote(TrialProcess).options(**options).remote()


def call(trial: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a function in a trial's process."""
    return ray.get(trial.call.remote(function, *arguments), timeout=CALL_LIMIT_S)


def await_death(pid: int, limit_s: float = 30.0) -> None:
    deadline = time.monotonic() + limit_s
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_alive(pid)


def is_alive(pid: int) -> bool:
    try:
        # A zombie is dead; whoever started it has only not asked yet.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def assert_nothing_left() -> None:
    """No placement group, and every GPU free again."""
    deadline = time.monotonic() + LEAK_LIMIT_S
    while (held := _held()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not held


def _held() -> list[Any]:
    states = [entry["state"] for entry in ray.util.placement_group_table().values()]
    held: list[Any] = [state for state in states if state != "REMOVED"]
    free = ray.available_resources().get("GPU", 0)
    return held if free == GPUS else [*held, f"{GPUS - free} GPUs in use"]
