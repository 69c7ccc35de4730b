"""Real torchvision models on real digits, in this process, without Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from themis_ray.errors import CheckpointError, ConfigError
from themis_ray.workloads import DatasetSpec, ElasticTrainer, ModelSpec
from themis_ray.workloads.data import _digits_table
from themis_ray.workloads.trainable import ClassifierJob


def weights(job: ClassifierJob) -> dict[str, Any]:
    return {name: value.clone() for name, value in job.trainer.model.state_dict().items()}


@pytest.mark.parametrize(("model", "side"), [("resnet50", 32), ("inception_v3", 75), ("vgg16", 32)])
def test_a_step_a_checkpoint_and_the_same_step_again(model: str, side: int, tmp_path: Path) -> None:
    config = {"model": model, "global_batch": 4, "eval_examples": 4}
    with ClassifierJob(config) as job:
        first = job.advance()
        assert first["train_step"] == 1
        assert first["loss"] > 0
        assert 0 <= first["accuracy"] <= 1
        assert first["themis/gpus"] == 1
        assert first["themis/iter_s"] > 0
        assert job._held_out[0].shape[-1] == side
        job.save(tmp_path)
        second = job.advance()
        assert second["checkpoint_train_step"] == 1
        after = weights(job)
        # Into the same model: VGG16 alone takes seconds to build.
        job.restore(tmp_path)
        assert job.trainer.step == 1
        assert job.advance()["loss"] == second["loss"]
        assert all(torch.equal(after[name], value) for name, value in weights(job).items())


@pytest.mark.parametrize(("model", "side"), [("alexnet", 63), ("resnet152", 32)])
def test_a_step_at_the_smallest_size(model: str, side: int) -> None:
    with ClassifierJob({"model": model, "global_batch": 2, "eval_examples": 2}) as job:
        before = {name: p.detach().clone() for name, p in job.trainer.model.named_parameters()}
        assert job._held_out[0].shape[-1] == side
        assert 0 < job.advance()["loss"] < 100
        after = dict(job.trainer.model.named_parameters())
        assert not any(torch.equal(before[name], after[name]) for name in before)


def test_auxiliary_heads_are_trained_at_their_published_weight() -> None:
    spec = ModelSpec("inception_v3", 4, 299, auxiliary=True)
    model = spec.build().double()
    # What the heads say must not depend on chance here.
    model.dropout.p = 0.0
    images = torch.randn(2, 3, 299, 299, generator=torch.Generator().manual_seed(1)).double()
    targets = torch.tensor([0, 3])
    outputs = model(images)
    cross_entropy = torch.nn.functional.cross_entropy
    main, head = (cross_entropy(logits, targets) for logits in outputs)
    loss = spec.loss(outputs, targets)
    assert loss.item() == pytest.approx((main + 0.4 * head).item())
    loss.backward(retain_graph=True)
    learned = model.AuxLogits.fc.weight.grad.clone()
    model.zero_grad()
    head.backward()
    assert torch.allclose(learned, 0.4 * model.AuxLogits.fc.weight.grad)
    with torch.no_grad():
        assert model.eval()(images).shape == (2, 4)


@pytest.mark.parametrize(
    ("model", "heads", "auxiliary"), [("googlenet", 2, None), ("googlenet", 0, False)]
)
def test_a_classifier_has_the_heads_that_its_images_allow(
    model: str, heads: int, auxiliary: bool | None
) -> None:
    config = {"model": model, "global_batch": 2, "eval_examples": 2, "auxiliary": auxiliary}
    with ClassifierJob(config) as job:
        before = weights(job)
        found = [name for name in before if name.startswith("aux") and "fc2.weight" in name]
        assert len(found) == heads
        report = job.advance()
        assert report["loss"] > 0
        assert 0 <= report["accuracy"] <= 1
        after = weights(job)
        assert not any(torch.equal(before[name], after[name]) for name in found)


def test_a_resnet_resumed_at_a_checkpoint_has_the_bits_of_an_undisturbed_run(
    tmp_path: Path,
) -> None:
    config = {"model": "resnet18", "global_batch": 8, "eval_examples": 4, "lr": 0.05}
    with ClassifierJob(config) as whole:
        for _ in range(6):
            expected = whole.advance()
    with ClassifierJob(config) as before:
        for _ in range(3):
            before.advance()
        before.save(tmp_path)
    # What else draws random numbers in the process must not matter.
    torch.rand(17)
    with ClassifierJob(config) as after:
        after.restore(tmp_path)
        for _ in range(3):
            got = after.advance()
        assert (got["loss"], got["accuracy"]) == (expected["loss"], expected["accuracy"])
        left, right = weights(whole), weights(after)
        assert all(torch.equal(left[name], right[name]) for name in left)


def test_training_learns_the_digits() -> None:
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 10))
    data = DatasetSpec(image_size=8)
    with ElasticTrainer(
        model, lambda p: torch.optim.SGD(p, lr=0.1), data.load, global_batch=64
    ) as trainer:
        before = trainer.run(1)
        trainer.run(3 * trainer.steps_per_epoch)
        assert trainer.run(1) < before / 3


def test_a_restored_trial_keeps_its_own_learning_rate(tmp_path: Path) -> None:
    config = {"model": "squeezenet1_1", "global_batch": 2, "eval_examples": 2}
    with ClassifierJob({**config, "lr": 0.01}) as parent:
        parent.advance()
        parent.save(tmp_path)
    with ClassifierJob({**config, "lr": 0.002}) as child:
        child.restore(tmp_path)
        assert [group["lr"] for group in child.trainer.optimizer.param_groups] == [0.002]


def test_the_last_step_is_the_one_asked_for() -> None:
    config = {"model": "squeezenet1_1", "global_batch": 2, "eval_examples": 2}
    with ClassifierJob({**config, "steps_per_report": 2, "max_steps": 3}) as job:
        assert [job.advance()["train_step"] for _ in range(2)] == [2, 3]
        assert job.done


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    config = {"global_batch": 2, "eval_examples": 2}
    with ClassifierJob({**config, "model": "squeezenet1_1"}) as job:
        job.save(tmp_path)
    with (
        ClassifierJob({**config, "model": "resnet18"}) as job,
        pytest.raises(CheckpointError, match="not one of this job"),
    ):
        job.restore(tmp_path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"learning_rate": 0.1}, "unknown key 'learning_rate'"),
        ({"momentun": 0.1}, "did you mean 'momentum'"),
        ({"model": "resnet5"}, "did you mean resnet50"),
        ({"model": "inception_v3", "image_size": 32}, "at least 75"),
        ({"model": "vit_b_16", "image_size": 40}, "a multiple of that, not 40"),
        ({"model": "resnet18", "width": 64}, "VGG and AlexNet"),
        ({"model": "resnet18", "auxiliary": True}, "resnet18 has no auxiliary heads"),
        ({"model": "inception_v3", "auxiliary": True}, r"inception_v3 \(from 299 pixels\)"),
        ({"loader_workers": -1, "model": "squeezenet1_1"}, "loader_workers"),
        ({"dataset": "mnist"}, "choose one of digits"),
        ({"dataset": "cifar10"}, "needs data_dir"),
        ({"dataset": "imagefolder", "data_dir": "absent"}, "sub-folder"),
        ({"dataset": "cifar10", "data_dir": "absent"}, "cifar-10-python.tar.gz"),
        ({"lr": -1.0}, "lr"),
        ({"lr": float("nan")}, "lr"),
        ({"global_batch": 0}, "global_batch"),
        ({"seed": -1, "model": "squeezenet1_1"}, "seed"),
        ({"amp": "int8", "model": "squeezenet1_1"}, "amp"),
    ],
)
def test_a_bad_config_says_how_to_mend_it(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ClassifierJob(config)


def test_the_split_is_fixed_and_without_overlap() -> None:
    data = DatasetSpec(image_size=8)
    train, test = data.load("train"), data.load("test")
    assert (len(train), len(test)) == (1438, 359)
    assert torch.equal(data.load("test")[5][0], test[5][0])
    images = {tuple(image.flatten().tolist()) for image, _ in train}
    assert all(tuple(image.flatten().tolist()) not in images for image, _ in test)
    image, label = train[0]
    assert image.shape == (3, 8, 8)
    assert 0 <= label < 10


def test_an_image_folder_is_split_or_brings_its_split(tmp_path: Path) -> None:
    draw(tmp_path / "flat", {"cat": 5, "dog": 5})
    spec = DatasetSpec("imagefolder", 16, str(tmp_path / "flat"))
    assert (len(spec.load("train")), len(spec.load("test"))) == (8, 2)
    assert spec.count_classes() == 2
    draw(tmp_path / "split" / "train", {"cat": 3, "dog": 2})
    draw(tmp_path / "split" / "val", {"cat": 1, "dog": 1})
    spec = DatasetSpec("imagefolder", 16, str(tmp_path / "split"))
    assert (len(spec.load("train")), len(spec.load("test"))) == (5, 2)
    assert spec.load("train")[0][0].shape == (3, 16, 16)


def draw(root: Path, counts: dict[str, int]) -> None:
    from PIL import Image

    for name, count in counts.items():
        (root / name).mkdir(parents=True)
        for i in range(count):
            Image.new("RGB", (20, 10), (i, 0, 0)).save(root / name / f"{i}.png")


def test_the_digits_are_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits

    table = _digits_table()
    assert (table[:, :-1] == load_digits().data).all()
    assert (table[:, -1] == load_digits().target).all()


def test_the_width_narrows_the_classifier() -> None:
    # AlexNet stands for VGG too, whose classifier has the same layers and takes longer to build.
    model = ModelSpec("alexnet", 10, width=32).build().eval()
    widths = [layer.out_features for layer in model.classifier if hasattr(layer, "out_features")]
    assert widths == [32, 32, 10]
    assert model(torch.zeros(1, 3, 63, 63)).shape == (1, 10)
