"""Every policy keeps the public contract, and a few properties that the contract leaves out."""

import copy
import random
from dataclasses import replace

import pytest

from themis_ray.core import rounds
from themis_ray.core.policies import POLICIES, make_policy
from themis_ray.errors import ConfigError
from themis_ray.testing import policy_contract
from themis_ray.testing.policy_contract import decide, random_view

NAMES = [
    *("themis", "themis-paper", "tiresias-l", "tiresias-g", "gandiva", "optimus", "slaq", "srtf"),
    *("srsf", "sf", "drf", "yarn-cs", "best-effort", "strawman", "max-min-r"),
]

# An auction is solved several times over in each scenario.
AUCTIONS = ("themis", "themis-paper")


def test_all_fifteen_are_registered_by_name():
    assert sorted(POLICIES) == sorted(NAMES)
    assert all(make_policy(name).name == name for name in NAMES)


def test_unknown_names_and_options_are_refused():
    with pytest.raises(ConfigError, match="no policy 'tiresias'; there are: best-effort, drf"):
        make_policy("tiresias")
    with pytest.raises(ConfigError, match=r"policy .drf.: .*colour"):
        make_policy("drf", colour="red")


@pytest.mark.parametrize("name", NAMES)
class TestContract(policy_contract.PolicyContract):
    @pytest.fixture(autouse=True)
    def _named(self, name, monkeypatch):
        services = {"services": (600.0, 2400.0, 9600.0)} if name == "tiresias-g" else {}
        monkeypatch.setattr(TestContract, "scenarios", 12 if name in AUCTIONS else 60)
        monkeypatch.setattr(TestContract, "policy", make_policy(name, **services), raising=False)
        # A blocked queue leaves GPUs idle: that is what yarn-cs is the baseline for.
        monkeypatch.setattr(TestContract, "work_conserving", name != "yarn-cs")


@pytest.mark.parametrize("name", NAMES)
def test_decisions_do_not_depend_on_what_was_decided_before(name):
    used = make_policy(name)
    for seed in range(5 if name in AUCTIONS else 20):
        view = random_view(random.Random(seed), seed)
        assert decide(used, view) == decide(make_policy(name), copy.deepcopy(view))


@pytest.mark.parametrize("name", [name for name in NAMES if POLICIES[name].preempts])
def test_gpus_of_jobs_without_checkpoints_stay_where_they_are(name):
    """The arbiter renews those that are about to end; a preemptive policy is shown them all."""
    for seed in range(60):
        view = random_view(random.Random(seed), seed)
        apps = {name: _pin(app) for name, app in view.apps.items()}
        view = replace(view, apps=apps)
        outcome = decide(make_policy(name), view)
        rounds.check(outcome, view.pool)
        for app in apps.values():
            if app.expiring:
                assert app.expiring <= outcome.awards[app.id].gpus


def _pin(app):
    return replace(app, report=replace(app.report, pinned=app.expiring))
