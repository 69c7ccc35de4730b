"""The cluster files that we ship, against the installed Ray: no network, no cloud account."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from themis_ray.core.cluster import Machine

# Third-party: the autoscaler's modules use what newer setuptools and protobuf call deprecated.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

CLUSTERS = Path(__file__).parent.parent / "clusters"
CLOUD = ["aws-gpu.yaml", "azure-nc.yaml", "gcp-gpu.yaml"]
LAUNCHER = [*CLOUD, "on-prem.yaml"]
RACK = "themis.io/rack"
Change = Callable[[dict[str, Any]], None]


def load(name: str) -> dict[str, Any]:
    document = yaml.safe_load((CLUSTERS / name).read_text())
    assert isinstance(document, dict)
    # As separate copies: YAML anchors make shared objects, which a change would reach together.
    return copy.deepcopy(document)


def checked(config: dict[str, Any]) -> dict[str, Any]:
    """What ``ray up`` does before it talks to a provider, in its order."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    prepared: dict[str, Any] = prepare_config(config)
    validate_config(prepared)
    return prepared


def worker_types(config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    types = config["available_node_types"]
    return {name: node for name, node in types.items() if name != config["head_node_type"]}


@pytest.mark.parametrize("name", LAUNCHER)
def test_ray_accepts_every_launcher_file(name: str) -> None:
    prepared = checked(load(name))
    assert prepared["cluster_name"] == "themis"


def test_the_on_premises_file_needs_no_more_than_its_addresses() -> None:
    from ray.autoscaler._private.local.config import bootstrap_local

    config = bootstrap_local(checked(load("on-prem.yaml")))
    assert config["max_workers"] == len(config["provider"]["worker_ips"])


@pytest.mark.parametrize("name", LAUNCHER)
def test_every_start_command_sets_the_authentication_mode(name: str) -> None:
    config = load(name)
    commands = config["head_start_ray_commands"] + config["worker_start_ray_commands"]
    starts = [command for command in commands if "start" in command]
    assert len(starts) == 3
    assert all("RAY_AUTH_MODE=token" in command for command in starts)
    assert "~/.ray/auth_token" in config["file_mounts"]


@pytest.mark.parametrize("name", LAUNCHER)
def test_the_package_is_installed_and_the_arbiter_started_on_the_head_only(name: str) -> None:
    config = load(name)
    assert any("themis_ray[" in command for command in config["setup_commands"])
    assert "themis start" in config["head_start_ray_commands"][-1]
    assert not any("themis start" in command for command in config["worker_start_ray_commands"])


@pytest.mark.parametrize("name", LAUNCHER)
def test_the_arbiter_is_started_with_options_that_it_knows(name: str) -> None:
    from themis_ray.core.policies import POLICIES

    words = load(name)["head_start_ray_commands"][-1].split()
    assert words[words.index("--policy") + 1] in POLICIES


@pytest.mark.parametrize("name", CLOUD)
def test_workers_have_gpus_a_rack_and_enough_room(name: str) -> None:
    config = load(name)
    workers = worker_types(config)
    assert workers
    for node in workers.values():
        assert node["labels"][RACK]
        assert node["resources"]["GPU"] > 0
        assert node["resources"]["CPU"] >= node["resources"]["GPU"]
        assert 0 < node["min_workers"] <= node["max_workers"]
    assert sum(node["min_workers"] for node in workers.values()) <= config["max_workers"]


def test_on_prem_machines_tell_their_rack() -> None:
    config = load("on-prem.yaml")
    for commands in ("head_start_ray_commands", "worker_start_ray_commands"):
        assert f'--labels="{RACK}=' in config[commands][1]


def test_kuberay_has_a_token_racks_and_an_arbiter() -> None:
    spec = load("kuberay.yaml")["spec"]
    assert spec["authOptions"] == {"mode": "token"}
    (head,) = spec["headGroupSpec"]["template"]["spec"]["containers"]
    assert "themis start" in head["lifecycle"]["postStart"]["exec"]["command"][-1]
    racks = [group["labels"][RACK] for group in spec["workerGroupSpecs"]]
    assert len(set(racks)) == len(racks) > 1
    for group in spec["workerGroupSpecs"]:
        # KubeRay refuses labels among the start parameters.
        assert "labels" not in group["rayStartParams"]
        assert group["replicas"] == group["minReplicas"] == group["maxReplicas"]


def test_all_files_pin_one_ray() -> None:
    wanted = load("kuberay.yaml")["spec"]["rayVersion"]
    for name in LAUNCHER:
        (install,) = (c for c in load(name)["setup_commands"] if "ray[" in c and "uv pip" in c)
        assert f"=={wanted}" in install


# -- what Ray refuses, so that our files cannot drift into it --------------------------------------


def unknown_key(config: dict[str, Any]) -> None:
    config["themis"] = {"policy": "themis-paper"}


def typo_in_a_node_type(config: dict[str, Any]) -> None:
    next(iter(worker_types(config).values()))["max_worker"] = 3


def gpus_as_text(config: dict[str, Any]) -> None:
    next(iter(worker_types(config).values()))["resources"]["GPU"] = "4"


def half_a_gpu(config: dict[str, Any]) -> None:
    next(iter(worker_types(config).values()))["resources"]["GPU"] = 0.5


def unknown_head_type(config: dict[str, Any]) -> None:
    config["head_node_type"] = "haed"


def more_workers_than_allowed(config: dict[str, Any]) -> None:
    config["max_workers"] = 0


@pytest.mark.parametrize("name", CLOUD)
@pytest.mark.parametrize(
    ("change", "error"),
    [
        (unknown_key, jsonschema.ValidationError),
        (typo_in_a_node_type, jsonschema.ValidationError),
        (gpus_as_text, jsonschema.ValidationError),
        (half_a_gpu, jsonschema.ValidationError),
        (unknown_head_type, ValueError),
        (more_workers_than_allowed, ValueError),
    ],
)
def test_ray_refuses_a_broken_file(name: str, change: Change, error: type[Exception]) -> None:
    config = load(name)
    change(config)
    with pytest.raises(error):
        checked(config)


def test_ray_refuses_node_types_on_premises() -> None:
    from click import ClickException

    config = load("on-prem.yaml")
    config["available_node_types"] = {"gpu": {"node_config": {}, "resources": {}}}
    with pytest.raises(ClickException):
        checked(config)


# -- simulated clusters ----------------------------------------------------------------------------

SIMULATED = sorted((CLUSTERS / "simulated").glob("*.yaml"))


def test_all_simulated_clusters_are_there() -> None:
    assert {file.stem for file in SIMULATED} == {
        "large-1024",
        "large-10240",
        "paper-simulator-168",
        "testbed-64",
        "tiresias-60",
    }


@pytest.mark.parametrize("file", SIMULATED, ids=lambda file: file.stem)
def test_a_simulated_cluster_has_the_gpus_of_its_name(file: Path) -> None:
    document = yaml.safe_load(file.read_text())
    assert document["name"] == file.stem
    gpus = 0
    for group in document["machines"]:
        machine = Machine("m", group["gpus"], group["rack"], group["slots"])
        gpus += group["count"] * machine.gpus
    assert gpus == int(file.stem.rsplit("-", 1)[1])


@pytest.mark.parametrize("file", SIMULATED, ids=lambda file: file.stem)
def test_profiles_get_worse_with_distance_and_are_the_same_everywhere(file: Path) -> None:
    models = yaml.safe_load(file.read_text())["models"]
    for profile in models.values():
        levels = [profile[level] for level in ("slot", "machine", "rack", "cluster")]
        assert levels == sorted(levels)
        assert levels[0] >= 1
    # The paper's Table 1: 103.6 images/s on one machine, 80.4 on two.
    assert models["vgg16"]["rack"] == round(103.6 / 80.4, 2)
    assert models["inception3"]["rack"] == 1
    assert models == yaml.safe_load(SIMULATED[0].read_text())["models"]
