from __future__ import annotations

import math

import pytest

from themis_ray.core import rounds
from themis_ray.core.cluster import NOTHING, Allocation, Cluster, Machine
from themis_ray.core.events import AppReport
from themis_ray.core.explain import LeaseEnded, Waiting
from themis_ray.core.leases import Lease
from themis_ray.core.policies.base import Award, Outcome
from themis_ray.core.settings import ArbiterConfig
from themis_ray.core.state import App, State

CONFIG = ArbiterConfig(lease_s=100, notice_s=10, min_lease_s=20)


def gpus(**counts: int) -> Allocation:
    return Allocation(counts)


@pytest.fixture
def state() -> State:
    """App a holds four GPUs of m0 until 50 and one of m1 until 90; b holds nothing."""
    made = State()
    made.set_cluster(Cluster((Machine("m0", 4), Machine("m1", 4))), 0)
    for name in ("a", "b"):
        integral = made.contention.change(0, 1)
        made.apps[name] = App(name, 1.0, 0, integral, AppReport(1.0, 1.0, 1.0, 1), Waiting(0))
    for on, until in ((gpus(m0=4), 50), (gpus(m1=1), 90)):
        made.new_lease(made.apps["a"], on, 0, until)
    made.settle(0)
    made.flush()
    return made


def up(state: State, *names: str) -> dict[str, Lease]:
    return {name: state.apps["a"].leases[name] for name in names}


def test_what_is_put_up(state: State) -> None:
    a, b = state.apps["a"], state.apps["b"]
    soon = rounds.renewable(state, 40, CONFIG.notice_s)
    assert set(soon) == {"L1"}
    assert rounds.renewable(state, 39.9, CONFIG.notice_s) == {}
    assert rounds.put_up(state, soon) == gpus(m0=4, m1=3)
    assert rounds.parted(a, soon)[:2] == (gpus(m1=1), gpus(m0=4))
    assert rounds.parted(b, soon) == (NOTHING, NOTHING, math.inf)


def test_what_is_awaited_is_kept_and_not_put_up_again(state: State) -> None:
    state.new_lease(state.apps["b"], gpus(m0=2, m1=1), 1, 200)
    state.settle(1)
    assert rounds.parted(state.apps["b"], {})[0] == gpus(m0=2, m1=1)
    assert rounds.put_up(state, {}) == gpus(m1=2)


def test_leases_under_notice_are_neither_kept_nor_put_up(state: State) -> None:
    state.apps["a"].leases["L1"].final = True
    assert rounds.parted(state.apps["a"], {})[0] == gpus(m1=1)
    assert rounds.renewable(state, 45, CONFIG.notice_s) == {}


def test_a_decision_renews_grants_and_gives_notice(state: State) -> None:
    state.apps["a"].groups["g"] = None  # type: ignore[assignment]  # never looked at
    del state.apps["a"].groups["g"]
    outcome = Outcome({"a": Award(gpus(m0=3)), "b": Award(gpus(m0=1, m1=2), 0.5)})
    rounds.apply(state, outcome, up(state, "L1"), 40, CONFIG)
    leases = {x.id: x for app in state.apps.values() for x in app.leases.values()}
    assert leases["L3"].held == gpus(m0=3)
    assert leases["L3"].expires_s == 50 + 100  # counted from when the old lease ends
    assert leases["L4"].expires_s == 50 + 50
    assert "L1" not in leases  # the GPU that was lost was idle
    state.settle(40)
    assert leases["L4"].held == gpus(m0=1, m1=2)


def test_short_leases_last_the_minimum(state: State) -> None:
    outcome = Outcome({"b": Award(gpus(m1=1), 0.01)})
    rounds.apply(state, outcome, {}, 40, CONFIG)
    assert [x.expires_s for x in state.apps["b"].leases.values()] == [40 + 20]


def test_a_round_of_a_preemptive_policy_ends_leases_at_the_notice(state: State) -> None:
    outcome = Outcome({"b": Award(gpus(m0=4))})
    rounds.apply(state, outcome, up(state, "L1"), 20, CONFIG, preempts=True)
    assert [x.expires_s for x in state.apps["b"].leases.values()] == [20 + 10 + 100]


def test_pinned_gpus_leave_the_round(state: State) -> None:
    state.ledger.occupy("a", gpus(m0=3))
    state.apps["a"].report = AppReport(1.0, 1.0, 1.0, 5, pinned=gpus(m0=2))
    soon = up(state, "L1")
    rounds.renew_pinned(state, soon, 40, CONFIG)
    assert soon["L1"].held == gpus(m0=2)
    assert [(x.held, x.expires_s) for x in state.apps["a"].leases.values()][-1] == (
        gpus(m0=2),
        150,
    )
    rounds.renew_pinned(state, soon, 40, CONFIG, everything=True)
    # Of two GPUs on offer, three are in use: both are renewed.
    assert soon == {}


def test_notice_without_a_round(state: State) -> None:
    state.ledger.occupy("a", gpus(m0=1))
    rounds.give_notice(state, up(state, "L1"), 40)
    left = state.apps["a"].leases["L1"]
    assert (left.final, left.held) == (True, gpus(m0=1))
    assert state.changed["a"] == LeaseEnded("L1", gpus(m0=4))


@pytest.mark.parametrize(
    "awards",
    [
        {"a": Award(gpus(m0=5))},
        {"a": Award(gpus(m0=2)), "b": Award(gpus(m0=3))},
        {"a": Award(gpus(m9=1))},
        {"a": Award(gpus(m0=1), 0.0)},
        {"a": Award(gpus(m0=1), 1.1)},
    ],
)
def test_impossible_decisions_are_refused(awards: dict[str, Award]) -> None:
    with pytest.raises(ValueError, match="award"):
        rounds.check(Outcome(awards), gpus(m0=4))


def test_whether_gpus_stay_idle() -> None:
    assert rounds.left_idle(Outcome({"a": Award(gpus(m0=3))}), gpus(m0=4))
    assert not rounds.left_idle(Outcome({"a": Award(gpus(m0=4))}), gpus(m0=4))


def test_a_preempting_round_leaves_alone_what_it_confirms(state: State) -> None:
    both = Outcome({"a": Award(gpus(m0=4, m1=1))})
    config = ArbiterConfig(lease_s=60, notice_s=10)
    rounds.apply(state, both, up(state, "L1", "L2"), 15, config, preempts=True)
    leases = state.apps["a"].leases
    assert {x.id: x.expires_s for x in leases.values()} == {"L1": 50, "L2": 90}
    assert not any(x.final for x in leases.values())
    assert "a" not in state.changed  # nothing to tell
    # Less than half of L1 is left: all is leased anew.
    rounds.apply(state, both, up(state, "L1", "L2"), 25, config, preempts=True)
    assert [x.expires_s for x in state.apps["a"].leases.values()] == [25 + 10 + 60]


def test_for_whom_something_is_at_stake(state: State) -> None:
    a, b = state.apps["a"], state.apps["b"]
    a.report, b.report = AppReport(1.0, 1.0, 1.0, 5), AppReport(1.0, 1.0, 1.0, 0)
    assert not rounds.at_stake(a, {})  # it has the five GPUs that it wants
    assert rounds.at_stake(a, up(state, "L2"))
    assert not rounds.at_stake(b, up(state, "L2"))
    b.report = AppReport(1.0, 1.0, 1.0, 1)
    assert rounds.at_stake(b, {})
