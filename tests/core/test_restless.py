"""The apps that want something, kept from change to change."""

from __future__ import annotations

import pytest
from arbiter_driver import gpus, report

from themis_ray.core import rounds
from themis_ray.core.app import App
from themis_ray.core.cluster import NOTHING, Cluster, Machine
from themis_ray.core.explain import AppGone, Waiting
from themis_ray.core.restless import is_calm
from themis_ray.core.state import State


@pytest.fixture
def state() -> State:
    made = State()
    made.set_cluster(Cluster((Machine("m0", 4), Machine("m1", 4))), 0)
    for name in ("c", "b", "a"):
        told = report(2, gang=2, steady=True)
        made.enter(App(name, 1.0, 0.0, 0.0, told, Waiting(0)))
    return made


def lease(state: State, app: str, **on: int) -> str:
    made = state.new_lease(state.apps[app], gpus(**on), 0, 100)
    state.settle(0)
    return made.id


def test_an_app_is_calm_once_it_holds_what_it_wants(state: State) -> None:
    assert set(state.restless.apps) == {"a", "b", "c"}
    assert state.restless.calm == {}
    mine = lease(state, "a", m0=2)
    assert set(state.restless.apps) == {"b", "c"}
    assert set(state.restless.calm) == {mine}
    lease(state, "b", m0=1)
    assert set(state.restless.apps) == {"b", "c"}


def test_it_is_restless_when_it_awaits_gpus_or_is_about_to_lose_them(state: State) -> None:
    lease(state, "a", m0=2)
    lease(state, "b", m0=2)
    lease(state, "c", m0=2)  # there are none left on this machine
    assert set(state.restless.apps) == {"c"}
    state.unhold(state.apps["a"].leases["L1"], gpus(m0=2), 1)
    state.settle(1)
    assert set(state.restless.apps) == {"a"}
    rounds.give_notice(state, dict(state.apps["b"].leases), 1)
    assert "b" in state.restless.apps
    assert set(state.restless.calm) == {"L3"}


def test_a_renewal_leaves_it_calm(state: State) -> None:
    lease(state, "a", m0=2)
    old = state.apps["a"].leases["L1"]
    new = state.new_lease(state.apps["a"], gpus(m0=2), 50, 150)
    assert "a" in state.restless.apps
    state.move(old, new, gpus(m0=2))
    assert "a" not in state.restless.apps
    assert set(state.restless.calm) == {"L2"}


def test_whoever_leaves_or_loses_its_machine_is_not_calm(state: State) -> None:
    lease(state, "a", m0=2)
    lease(state, "b", m1=2)
    assert set(state.restless.calm) == {"L1", "L2"}
    state.set_cluster(Cluster((Machine("m0", 4),)), 1)
    assert set(state.restless.apps) == {"b", "c"}
    app = state.apps["a"]
    state.unhold(app.leases["L1"], gpus(m0=2), 1)
    state.leave("a", AppGone("done"))
    assert set(state.restless.apps) == {"b", "c"}
    assert state.restless.calm == {}


@pytest.mark.parametrize("steady", [True, False])
@pytest.mark.parametrize("pinned", [True, False])
def test_only_what_says_so_when_it_changes_its_mind_is_calm(steady: bool, pinned: bool) -> None:
    held = gpus(m0=1) if pinned else NOTHING
    told = report(0, gang=1, steady=steady, pinned=held)
    assert is_calm(App("a", 1.0, 0, 0, told, Waiting(0))) is (steady and not pinned)


def test_those_concerned_come_in_the_order_in_which_they_joined(state: State) -> None:
    lease(state, "b", m0=2)
    some = list(state.apps["b"].leases.values())
    names = [app.id for app in state.restless.concerned(some, state.apps)]
    assert names == ["c", "b", "a"]
    assert [app.id for app in state.restless.concerned([], state.apps)] == ["c", "a"]
    some[0].app = "gone"
    assert [app.id for app in state.restless.concerned(some, state.apps)] == ["c", "a"]


def test_what_is_remembered_says_nothing_of_it(state: State) -> None:
    before = repr(state)
    assert state.restless.apps
    assert repr(state) == before
