"""Profile files, and what bids and the simulator make of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from themis_ray.agent.bidder import Outlook, bid_table
from themis_ray.core.cluster import Allocation, Level
from themis_ray.core.commands import SendOffer
from themis_ray.core.slowdown import PRIORS, Signature, skewed_priors
from themis_ray.errors import ConfigError
from themis_ray.profiling.profile_file import (
    Measured,
    ModelProfile,
    ProfileFile,
    load_profiles,
    save_profile,
    with_slowdowns,
)
from themis_ray.sim.cluster_file import MoveCost, Profile, parse_cluster, with_profiles


def measured(**iter_s: float) -> list[Measured]:
    """From ``p2_rack=0.6`` and the like."""
    return [
        Measured(Signature.parse(name[1:].replace("_", "/").replace("x", "+")), t, 0.01, 30)
        for name, t in iter_s.items()
    ]


VGG = ModelProfile(
    skew=0.743,
    settings={"global_batch": 32},
    measured=with_slowdowns(measured(p1=0.9, p2=0.5, p1x1_rack=0.72, p2x2_rack=0.45)),
    not_measured=["2 GPUs in two racks: only one rack has any free"],
)


def test_slowdowns_are_relative_to_one_gpu() -> None:
    s = {m.placement: m.slowdown for m in VGG.measured}
    assert s == {
        "1": 1.0,
        "2": pytest.approx(1 / 0.9),
        "1+1/rack": pytest.approx(1.6),
        "2+2/rack": pytest.approx(2.0),
    }


def test_a_model_that_does_not_fit_on_one_gpu() -> None:
    found = with_slowdowns(measured(p2x2_rack=0.4, p2=0.6))
    assert [m.slowdown for m in found] == [pytest.approx(4 / 3), 1.0]
    assert with_slowdowns([]) == []


def test_a_file_keeps_the_other_models(tmp_path: Path) -> None:
    path = tmp_path / "profiles.yaml"
    save_profile(path, "VGG16", VGG)
    save_profile(path, "resnet50", ModelProfile(skew=0.09))
    again = ModelProfile(skew=0.1)
    assert save_profile(path, "resnet50", again) == load_profiles(path)
    assert load_profiles(path).models == {"vgg16": VGG, "resnet50": again}
    assert [file.name for file in tmp_path.iterdir()] == ["profiles.yaml"]


def test_bids_take_what_was_measured_and_the_skewed_prior_elsewhere() -> None:
    table = ProfileFile(models={"VGG16": VGG}).tables()["vgg16"]
    assert table.s(Signature((1, 1), Level.RACK)) == pytest.approx(1.6)
    # Four single GPUs were not measured; as many on two machines were.
    assert table.s(Signature((1,) * 4, Level.RACK)) == pytest.approx(2.0)
    assert table.s(Signature((2,), Level.MACHINE)) == pytest.approx(1 / 0.9)
    assert table.s(Signature((1, 1), Level.CLUSTER)) == skewed_priors(0.743)[Level.CLUSTER]


def offered(profile: ModelProfile) -> dict[Level, float]:
    """r by level in the bid for two GPUs, of an app with one job of that model."""
    table = profile.table()

    def slowdown(gpus: int, level: Level) -> float:
        parts = (gpus,) if level <= Level.MACHINE else (1,) * gpus
        return table.s(Signature(parts, level))

    offer = SendOffer(
        app="a",
        round_id=1,
        offer=Allocation({"m0": 2, "m1": 2}),
        kept=Allocation(),
        expiring=Allocation(),
        racks={"m0": "r0", "m1": "r0"},
        n_avg=1.0,
        cluster_gpus=4,
        lease_s=60.0,
    )
    outlook = Outlook([(100.0, 0.9)], 2, 2, 0.0, 45.0, slowdown)
    rows = bid_table("a", outlook, offer, [], 2).rows
    return {row.level: row.r for row in rows if row.level >= Level.RACK or sum(row.parts) == 2}


def test_a_slower_link_lowers_the_next_bid() -> None:
    """r of an app whose link between machines was seen to be slow is worse, and only there."""
    base = {"p1": 0.9, "p2": 0.5}
    fast = offered(ModelProfile(measured=with_slowdowns(measured(**base, p1x1_rack=0.52))))
    slow = offered(ModelProfile(measured=with_slowdowns(measured(**base, p1x1_rack=0.9))))
    assert slow[Level.RACK] == pytest.approx(fast[Level.RACK] * 0.9 / 0.52)
    assert {k: v for k, v in slow.items() if k is not Level.RACK} == {
        k: v for k, v in fast.items() if k is not Level.RACK
    }


def test_the_simulator_takes_the_median_by_level(tmp_path: Path) -> None:
    assert VGG.by_level() == {
        Level.SLOT: pytest.approx(1 / 0.9),
        Level.MACHINE: pytest.approx(1 / 0.9),
        Level.RACK: pytest.approx(1.8),
        Level.CLUSTER: pytest.approx(1.8),  # not measured: the prior of 1.52 would be less
    }
    assert ModelProfile().by_level() == dict(PRIORS)
    quick = with_slowdowns(measured(p1=0.9, p2=0.45, p1x1_rack=0.54))
    assert ModelProfile(skew=0.743, measured=quick).by_level() == {
        Level.SLOT: 1.0,
        Level.MACHINE: 1.0,
        Level.RACK: pytest.approx(1.2),
        Level.CLUSTER: skewed_priors(0.743)[Level.CLUSTER],
    }


def test_profiles_replace_those_of_a_simulated_cluster(tmp_path: Path) -> None:
    document = {
        "machines": [{"gpus": 4}],
        "models": {"vgg16": {"rack": 1.29, "start_s": 9}, "inception3": {"rack": 1}},
    }
    save_profile(tmp_path / "p.yaml", "vgg16", VGG)
    sim = parse_cluster(document, "c", "c.yaml")
    found = with_profiles(sim, tmp_path / "p.yaml")
    assert found.profile("vgg16") == Profile(VGG.by_level(), MoveCost(start_s=9), 0.743)
    assert found.profile("inception3") == sim.profile("inception3")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("models: [", "is no YAML file"),
        ("format: 2", "format"),
        ("models: {a: {skew: 3}}", r"models\.a\.skew"),
        ("models: {a: {measured: [{placement: 2/room, iter_s: 1, slowdown: 1}]}}", "no placement"),
        ("models: {a: {measured: [{placement: '2', iter_s: -1, slowdown: 1}]}}", "iter_s"),
        ("models: {a: {measured: [{placement: '2', iter_s: .nan, slowdown: 1}]}}", "iter_s"),
        ("models: {a: {speed: 1}}", r"models\.a\.speed"),
        ("[1]", "the document"),
    ],
)
def test_a_wrong_file_is_said_with_its_field(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        load_profiles(path)


def test_a_missing_file_and_one_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="themis profile MODEL"):
        load_profiles(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="is a directory"):
        load_profiles(tmp_path)
    with pytest.raises(ConfigError, match="no such file"):
        save_profile(tmp_path / "no" / "folder.yaml", "a", VGG)
