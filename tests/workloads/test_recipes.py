"""The recipes of ``docs/workloads.md``, run as they are printed, with leases taken away."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import recipe_parts
import torch
from ray import tune

from tests.ray_process import small_ray, starts_arbiter
from tests.rival import Rival
from themis_ray import ThemisScheduler
from themis_ray.workloads import warm_runtime_env
from themis_ray.workloads.warm_start import PRELOAD

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    # The data loader of torchdata calls it.
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
]

PAGE = Path(__file__).parents[2] / "docs" / "workloads.md"
CONFIG = {"lr": 0.05}
EVERY = 7
EPOCHS = 6
STEPS = EPOCHS * recipe_parts.EXAMPLES // recipe_parts.BATCH
GPUS = 2
LIBRARIES = ("lightning", "transformers")

Start = Callable[..., dict[str, Any]]


def blocks(section: str) -> list[str]:
    """The Python blocks of a section of the page."""
    text = PAGE.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def recipe(section: str, parts: dict[str, Any], sizes: dict[str, str]) -> Any:
    """A section's code with smaller numbers than the page's, each of which must be in it."""
    code = "\n\n".join(blocks(section))
    for printed, small in sizes.items():
        assert printed in code, f"{printed!r} is not in the page"
        code = code.replace(printed, small)
    return recipe_parts.module_with(code, parts)


SIZES = {
    "EVERY = 500": f"EVERY = {EVERY}",
    "max_steps=10_000": f"max_steps={2 * EVERY}",
    "global_batch=64": "global_batch=7",
}


def lightning_recipe() -> Any:
    pytest.importorskip("lightning")
    pytest.importorskip("torchdata")
    sizes = {**SIZES, "max_epochs=50": f"max_epochs={EPOCHS}"}
    return recipe("Lightning", recipe_parts.for_lightning(), sizes)


def transformers_recipe() -> Any:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    epochs = f"num_train_epochs={EPOCHS}, per_device_train_batch_size={recipe_parts.BATCH}"
    sizes = {**SIZES, "num_train_epochs=3": epochs}
    return recipe("Hugging Face", recipe_parts.for_transformers(), sizes)


RECIPES = pytest.mark.parametrize("make", [lightning_recipe, transformers_recipe])


@pytest.fixture(scope="module")
def ray_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yields a file: trials take their time as long as it is not there."""
    hurry = tmp_path_factory.mktemp("recipes") / "hurry"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(recipe_parts.HURRY, str(hurry))
        # For the trials, which load the parts beside this file.
        here = str(Path(__file__).parent)
        patch.setenv("PYTHONPATH", f"{here}:{os.environ.get('PYTHONPATH', '')}")
        with small_ray(num_gpus=GPUS, runtime_env=warm_runtime_env([*PRELOAD, *LIBRARIES])):
            yield hurry


@pytest.fixture
def arbiter(ray_here: Path) -> Iterator[Start]:
    with starts_arbiter(lease_s=10.0, notice_s=4.0, grace_s=20.0) as start:
        yield start


class TakesTurns(tune.Callback):
    """Twice, when the trial has made some progress, a rival takes all GPUs for a moment."""

    def __init__(self, rival: Rival, hurry: Path) -> None:
        self.rival, self.hurry = rival, hurry
        self.reports = self.paused = 0
        self.steps: list[int] = []

    def on_trial_result(self, result: dict[str, Any], **info: Any) -> None:
        self.steps.append(result["step"])
        self.reports += 1
        if self.reports == 1 and self.paused < 2:
            self.rival.want(GPUS)

    def on_step_end(self, **info: Any) -> None:
        if self.rival.wants and self.rival.held == GPUS:
            self.paused += 1
            self.reports = 0
            if self.paused == 2:
                self.hurry.touch()
            self.rival.want(0)
            self.rival.wait_held(0)


def run(train: Any, folder: Path, **options: Any) -> Any:
    analysis = tune.run(
        train,
        config=CONFIG,
        resources_per_trial={"cpu": 1, "gpu": 1},
        storage_path=str(folder),
        verbose=0,
        **options,
    )
    [trial] = analysis.trials
    assert trial.num_failures == 0
    return trial


def weights(trial: Any) -> dict[str, Any]:
    """What the trial's last checkpoint holds of the model."""
    folder = Path(trial.checkpoint.path)
    if (folder / "last.ckpt").exists():
        return dict(torch.load(folder / "last.ckpt", weights_only=False)["state_dict"])
    from safetensors.torch import load_file

    return dict(load_file(folder / "model.safetensors"))


@RECIPES
def test_an_interrupted_trial_ends_as_an_undisturbed_one(
    ray_here: Path, arbiter: Start, tmp_path: Path, make: Callable[[], Any]
) -> None:
    made = make()
    ray_here.touch()
    alone = run(made.train, tmp_path / "alone")
    ray_here.unlink()
    arbiter(min_bidders=1)
    rival = Rival()
    turns = TakesTurns(rival, ray_here)
    scheduler = ThemisScheduler(app=made.__name__, iterations_per_trial=STEPS // EVERY)
    leased = run(made.train, tmp_path / "leased", scheduler=scheduler, callbacks=[turns])
    rival.close()
    assert turns.paused == 2, "the trial was not interrupted"
    assert leased.last_result["step"] == alone.last_result["step"] == STEPS
    assert turns.steps == sorted(set(turns.steps)), "a report came twice"
    expected = weights(alone)
    assert weights(leased).keys() == expected.keys()
    assert all(torch.equal(weights(leased)[name], value) for name, value in expected.items())


@RECIPES
def test_several_gpus_train_together(
    ray_here: Path, arbiter: Start, tmp_path: Path, make: Callable[[], Any]
) -> None:
    made = make()
    ray_here.touch()
    arbiter(lease_s=300.0)
    losses = []
    for gpus in (1, 2):
        scheduler = ThemisScheduler(app=f"{gpus}", min_gpus_per_trial=gpus, max_gpus_per_trial=gpus)
        trial = run(made.train_on_several, tmp_path / str(gpus), scheduler=scheduler)
        assert trial.last_result["train_step"] == 2 * EVERY
        assert trial.last_result["themis/gpus"] == gpus
        losses.append(trial.last_result["loss"])
    if make is lightning_recipe:
        # The other model has dropout, which each rank draws for itself.
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
