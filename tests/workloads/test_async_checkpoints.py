"""Checkpoints written beside the training, and to storages other than a local folder."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch
import workload_jobs as jobs
from pyarrow import fs

from themis_ray.errors import CheckpointError, ConfigError
from themis_ray.workloads import load_checkpoint, save_checkpoint
from themis_ray.workloads.saver import Saver
from themis_ray.workloads.snapshot import deal, put_back, snapshot, tensors_of, without
from themis_ray.workloads.storage import open_folder

State = dict[str, Any]


def state(step: int) -> State:
    return {"step": step, "weights": torch.full((500,), float(step)), "more": [1, ("a", None)]}


def uris(folder: Path) -> list[tuple[str, Any]]:
    """The same folder on storages of several kinds: where, and the file system it is a path in."""
    memory = fsspec.filesystem("memory")
    return [
        (f"file://{folder}/uri", None),
        (f"memory://{folder}/fsspec", None),
        (f"{folder}/of-fsspec", memory),
        ("mock/folder", fs._MockFileSystem()),
        ("sub", fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())),
    ]


def test_each_kind_of_storage_keeps_the_promises(tmp_path: Path) -> None:
    for where, filesystem in uris(tmp_path):
        with pytest.raises(CheckpointError, match="no complete checkpoint"):
            load_checkpoint(where, filesystem=filesystem)
        for step in (1, 2, 3):
            save_checkpoint(where, state(step), step, keep=2, filesystem=filesystem)
        loaded = load_checkpoint(where, filesystem=filesystem)
        assert loaded.step == 3
        assert torch.equal(loaded.state["weights"], state(3)["weights"])
        folder = open_folder(where, filesystem)
        # Two checkpoints of two files each.
        assert len(folder.names()) == 4
        damage(folder, next(name for name in folder.names() if name.startswith("step-000000003-")))
        assert load_checkpoint(where, filesystem=filesystem).step == 2


def damage(folder: Any, name: str) -> None:
    with folder.open(name) as file:
        content = bytearray(file.read())
    content[len(content) // 2] ^= 1
    with folder.create(name) as file:
        file.write(bytes(content))


def test_an_unknown_storage_is_a_clear_error() -> None:
    with pytest.raises(ConfigError, match="no file system for 'nosuch://x'"):
        save_checkpoint("nosuch://x", state(1), 1)


def test_a_snapshot_shares_nothing_and_uses_its_memory_again() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    first = snapshot({"model": model.state_dict(), "list": [torch.ones(2)], "step": 1})
    with torch.no_grad():
        model[0].weight.zero_()
    assert first["model"]["0.weight"].abs().sum() > 0
    # Layers tell of their version by this.
    assert first["model"]._metadata == model.state_dict()._metadata
    place = first["model"]["0.weight"].data_ptr()
    second = snapshot({"model": model.state_dict(), "list": [], "step": 2}, first)
    assert second["model"]["0.weight"].data_ptr() == place
    assert second["model"]["0.weight"].abs().sum() == 0
    assert (second["list"], second["step"]) == ([], 2)


def test_parts_are_even_and_make_the_whole_again() -> None:
    whole = {"a": {str(i): torch.rand(100 + i) for i in range(20)}, "b": [1, torch.rand(7)]}
    tensors = dict(tensors_of(whole))
    parts = deal({path: tensor.nbytes for path, tensor in tensors.items()}, 3)
    sizes = [sum(tensors[path].nbytes for path in part) for part in parts]
    assert max(sizes) < 1.2 * min(sizes)
    assert sorted(path for part in parts for path in part) == sorted(tensors)
    rest = without(whole, frozenset(path for part in parts[1:] for path in part))
    assert rest["a"]["19"] is None or ("a", "19") in parts[0]
    for part in parts[1:]:
        for path in part:
            put_back(rest, path, tensors[path])
    assert dict(tensors_of(rest)).keys() == tensors.keys()


def test_training_goes_on_while_two_snapshots_wait() -> None:
    """A third snapshot waits for the first one's write; the writes keep their order."""
    saver, gate, written = Saver(), threading.Event(), list[int]()

    def write(taken: State) -> Path:
        assert gate.wait(60)
        written.append(int(taken["weights"][0]))
        return Path()

    for step in (1, 2):
        taken = saver.take(state(step))
        saver.write(lambda taken=taken: write(taken))  # type: ignore[misc]
    assert written == []
    third = threading.Thread(target=lambda: saver.take(state(3)))
    third.start()
    third.join(0.1)
    assert third.is_alive()
    gate.set()
    third.join(60)
    assert saver.newest is not None
    assert saver.newest["step"] == 3
    saver.close()
    assert written == [1, 2]


def test_a_failed_write_is_told_at_the_next_occasion(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with jobs.make_trainer() as trainer:
        trainer.run(1)
        trainer.save(tmp_path / "file", wait=False)
        trainer.run(1)
        with pytest.raises(CheckpointError, match="cannot write"):
            trainer.flush()
        trainer.save(tmp_path / "folder", wait=False)
        trainer.flush()
        assert load_checkpoint(tmp_path / "folder").step == 2


def test_what_is_written_is_the_state_at_the_save(tmp_path: Path) -> None:
    with jobs.make_trainer() as trainer:
        trainer.run(2)
        expected = jobs.weights(trainer)
        trainer.save(tmp_path, wait=False)
        trainer.run(3)
        trainer.flush()
        losses = trainer.run_losses(1)
    loaded = load_checkpoint(tmp_path)
    assert loaded.step == 2
    assert jobs.same_bits(dict(loaded.state["model"]), expected)
    with jobs.make_trainer() as again:
        again.restore(tmp_path)
        again.run(3)
        assert again.run_losses(1) == losses
