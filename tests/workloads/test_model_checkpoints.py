from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from themis_ray.errors import CheckpointError
from themis_ray.workloads import checkpoint, load_checkpoint, save_checkpoint


def state(step: int) -> dict[str, Any]:
    return {"step": step, "weights": torch.full((500,), float(step)), "random": ["x", [1, 2], None]}


def is_whole(loaded: checkpoint.LoadedCheckpoint) -> bool:
    content = loaded.state
    return content["step"] == loaded.step and bool((content["weights"] == loaded.step).all())


def test_a_checkpoint_comes_back(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "new" / "folder", state(7), 7)
    loaded = load_checkpoint(tmp_path / "new" / "folder")
    assert loaded.step == 7
    assert is_whole(loaded)
    assert loaded.state["random"] == ["x", [1, 2], None]


def test_old_checkpoints_go_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "step-000000001-ab.pt.partial").write_text("left by a killed writer")
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, state(step), step, keep=2)
    steps = [int(path.stem.split("-")[1]) for path in checkpoint.list_checkpoints(tmp_path)]
    assert steps == [3, 2]
    assert len(list(tmp_path.glob("*.pt"))) == 2
    assert not list(tmp_path.glob("*.partial"))
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, {**state(4), "random": "first"}, 4)
    save_checkpoint(tmp_path, {**state(4), "random": "second"}, 4)
    assert load_checkpoint(tmp_path).state["random"] == "second"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_damaged_checkpoint_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for step in (1, 2):
        save_checkpoint(tmp_path, state(step), step)
    torn = payload_of(tmp_path, 2)
    whole = torn.read_bytes()
    rng = random.Random(0)
    for size in [0, 1, len(whole) - 1, *(rng.randrange(len(whole)) for _ in range(10))]:
        torn.write_bytes(whole[:size])
        assert load_checkpoint(tmp_path).step == 1
        assert str(torn) in caplog.text
    for _ in range(10):
        at = rng.randrange(len(whole))
        torn.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert load_checkpoint(tmp_path).step == 1
    torn.write_bytes(whole)
    assert load_checkpoint(tmp_path).step == 2


def test_without_a_good_one_the_error_names_each_path(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, state(1), 1)
    save_checkpoint(tmp_path, state(2), 2)
    first, second = payload_of(tmp_path, 1), payload_of(tmp_path, 2)
    first.write_bytes(b"torn")
    second.unlink()
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(tmp_path)
    assert str(first) in str(caught.value)
    assert str(second) in str(caught.value)


def test_an_empty_or_absent_folder_is_named(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(CheckpointError, match=str(folder)):
            load_checkpoint(folder)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"format": 1}',
        '{"format": 99, "step": 1, "files": {}}',
        '{"format": 1, "step": 1, "files": {"../step-1.pt": {"bytes": 1, "crc32": 1}}}',
        '{"format": 1, "step": 1, "files": {}}',
    ],
)
def test_a_strange_manifest_is_refused(tmp_path: Path, text: str) -> None:
    manifest = save_checkpoint(tmp_path, state(1), 1)
    manifest.write_text(text)
    with pytest.raises(CheckpointError, match=str(manifest)):
        load_checkpoint(tmp_path)


def test_a_checkpoint_cannot_run_code(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, {"evil": Evil(str(tmp_path / "ran"))}, 1)
    with pytest.raises(CheckpointError, match="more than tensors"):
        load_checkpoint(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_a_full_disk_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(tmp_path, state(1), 1)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match="No space left"):
        save_checkpoint(tmp_path, state(2), 2)
    monkeypatch.undo()
    assert load_checkpoint(tmp_path).step == 1


class Evil:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (open, (self.path, "w"))


def payload_of(folder: Path, step: int) -> Path:
    described = json.loads((folder / f"step-{step:09d}.json").read_text())
    (name,) = described["files"]
    return folder / name
