"""Leases: renewal, notice, handover, grace."""

from __future__ import annotations

from arbiter_driver import Driver, gpus, handed_over, report

from themis_ray.core import events as ev
from themis_ray.core.cluster import NOTHING
from themis_ray.core.commands import (
    LeasesChanged,
    LeaseView,
    RemoveGroup,
)
from themis_ray.core.explain import (
    LeaseEnded,
    NotPreemptible,
)
from themis_ray.core.rounds import Phase
from themis_ray.core.settings import ArbiterConfig
from themis_ray.testing.policies import KeepingFirstCome, PreemptiveFirstCome


def test_renewal_does_not_stop_groups() -> None:
    d = Driver()
    d.join(0, "a", 4)
    d.group(1, "a", "g", gpus(m0=4))
    for now in (90, 190, 290):
        d.do(now)
        assert d.arbiter.phase is Phase.REPORTING
        d.answer(now)
        assert [(v.held, v.final) for v in d.views("a")] == [(gpus(m0=4), False)]
        assert not d.heard(RemoveGroup)
    assert [v.expires_s for v in d.views("a")] == [400]  # each lease begins where the last ends
    assert "g" in d.arbiter.state.groups


def test_a_loser_keeps_its_gpus_to_the_end_and_is_then_forced_after_the_grace() -> None:
    d = handed_over()
    d.do(99.9)
    assert d.said == []
    d.do(100)
    assert d.heard(LeasesChanged) == [LeasesChanged("a", (), LeaseEnded("L1", gpus(m0=4)))]
    assert d.held("b") == NOTHING  # the groups are still there
    assert d.arbiter.wakeup_s() == 104
    d.do(103.9)
    assert d.said == []
    d.do(104)
    assert {c.group for c in d.heard(RemoveGroup)} == {"g1", "g2"}
    d.do(105, ev.GroupGone("g1"))
    assert d.held("b") == gpus(m0=2)
    d.do(106, ev.GroupGone("g2"))
    assert d.held("b") == gpus(m0=4)
    assert [v.expires_s for v in d.views("b")] == [200]


def test_what_is_released_early_is_handed_over_at_once() -> None:
    d = handed_over()
    d.do(91, ev.GroupReleased("a", "g1"))
    assert [c.group for c in d.heard(RemoveGroup)] == ["g1"]
    assert d.held("b") == NOTHING  # a group that is asked to go is not gone
    d.do(92, ev.GroupGone("g1"))
    assert (d.held("a"), d.held("b")) == (gpus(m0=2), gpus(m0=2))
    assert {c.app for c in d.heard(LeasesChanged)} == {"a", "b"}


def test_gpus_are_handed_over_in_the_order_of_the_decisions() -> None:
    d = Driver()
    d.join(0, "a", 4)
    d.group(0, "a", "g1", gpus(m0=2))
    d.group(0, "a", "g2", gpus(m0=2))
    d.join(1, "b", 2)
    d.join(2, "c", 2)
    d.wants["a"] = 0
    d.do(90)
    d.answer(90)
    first, second = sorted(d.arbiter.state.pending.values(), key=lambda x: int(x.id[1:]))
    d.do(95, ev.GroupGone("g1"))
    assert d.held(first.app) == gpus(m0=2)
    assert d.held(second.app) == NOTHING
    d.do(96, ev.GroupGone("g2"))
    assert d.held(second.app) == gpus(m0=2)


def test_idle_gpus_of_a_lost_lease_change_hands_in_the_round() -> None:
    d = Driver()
    d.join(0, "a", 4)
    d.group(0, "a", "g1", gpus(m0=1))
    d.join(1, "b", 4)
    d.wants["a"] = 0
    d.do(90)
    d.answer(90)
    assert (d.held("a"), d.held("b")) == (gpus(m0=1), gpus(m0=3))


def test_leases_that_nobody_wants_any_more_end_with_notice() -> None:
    d = Driver()
    d.join(0, "a", 4)
    d.group(0, "a", "g1", gpus(m0=4))
    d.do(50, ev.Reported("a", report(0)))
    d.do(90)
    assert d.heard(LeasesChanged) == [
        LeasesChanged(
            "a",
            (LeaseView("L1", gpus(m0=4), NOTHING, 100, True),),
            LeaseEnded("L1", gpus(m0=4)),
        )
    ]
    d.do(100)
    assert d.held("a") == NOTHING
    d.do(104)
    assert [c.group for c in d.heard(RemoveGroup)] == ["g1"]


def test_a_lease_that_ends_while_a_round_is_held_up_waits_for_the_next() -> None:
    config = ArbiterConfig(lease_s=100, notice_s=2, report_timeout_s=5)
    d = Driver(config=config)
    d.join(0, "a", 2)
    d.group(0, "a", "g", gpus(m0=2))
    d.do(97, ev.AppJoined("b", report(2)))  # a round on the two free GPUs
    d.wants["b"] = 2
    d.answer(97, "b")
    d.do(100.5)
    assert d.held("a") == gpus(m0=2)
    d.answer(101, "a")
    d.answer(101)
    assert d.held("b") == gpus(m0=2)
    assert [(v.held, v.final) for v in d.views("a")] == [(gpus(m0=2), False)]
    assert "g" in d.arbiter.state.groups


def test_without_a_notice_period_leases_are_still_renewed() -> None:
    d = Driver(config=ArbiterConfig(lease_s=100, notice_s=0))
    d.join(0, "a", 4)
    d.group(0, "a", "g", gpus(m0=4))
    d.do(100)
    d.answer(100)
    assert [(v.held, v.expires_s) for v in d.views("a")] == [(gpus(m0=4), 200)]


def test_a_tick_that_comes_late_still_renews() -> None:
    d = Driver()
    d.join(0, "a", 4)
    d.group(0, "a", "g", gpus(m0=4))
    d.do(130)
    d.answer(130)
    assert [(v.held, v.final) for v in d.views("a")] == [(gpus(m0=4), False)]


def test_each_lease_has_its_own_grace() -> None:
    """Two leases end 3 s apart: the groups on the second are not taken with the first."""
    d = Driver()
    d.join(0, "a", 2)
    d.group(0, "a", "g1", gpus(m0=2))
    d.do(3, ev.Reported("a", report(4)))
    d.wants["a"] = 4
    d.answer(3)
    d.group(3, "a", "g2", gpus(m0=2))
    d.wants["a"] = 0
    d.do(90, ev.Reported("a", report(0)))
    d.do(93)
    assert sorted(v.expires_s for v in d.views("a")) == [100, 103]
    d.do(100)
    d.do(103)
    d.do(104)
    assert len(d.heard(RemoveGroup)) == 1
    d.do(107)
    assert len(d.heard(RemoveGroup)) == 1


def test_pinned_gpus_are_renewed_without_a_round() -> None:
    d = Driver()
    d.join(0, "a", 4)
    d.group(0, "a", "g1", gpus(m0=2))
    d.group(0, "a", "g2", gpus(m0=2))
    d.do(1, ev.Reported("a", report(4, pinned=gpus(m0=2))))
    d.join(2, "b", 4)
    d.wants["a"] = 0
    d.do(90)
    assert any(c.reason == NotPreemptible(gpus(m0=2)) for c in d.heard(LeasesChanged))
    d.answer(90)
    a = sorted((v.held.size, v.final, v.expires_s) for v in d.views("a"))
    assert a == [(2, False, 200), (2, True, 100)]
    assert d.arbiter.state.apps["b"].pending == gpus(m0=2)


def test_a_policy_that_keeps_renews_what_is_in_use() -> None:
    d = Driver(KeepingFirstCome())
    d.join(0, "a", 4)
    d.group(0, "a", "g1", gpus(m0=3))
    d.join(1, "b", 4)
    d.do(90)
    d.answer(90, a=report(0))
    assert [v for v in d.views("a") if not v.final] == [
        LeaseView("L2", gpus(m0=3), NOTHING, 200, False)
    ]
    assert d.held("b") == gpus(m0=1)  # what was leased and not in use went to the round


def test_a_policy_that_preempts_ends_leases_after_the_notice() -> None:
    d = Driver(PreemptiveFirstCome())
    d.join(0, "a", 4)
    d.group(0, "a", "g1", gpus(m0=4))
    d.wants["a"] = 0
    d.join(30, "b", 4)
    assert [(v.held, v.final, v.expires_s) for v in d.views("a")] == [(gpus(m0=4), True, 40)]
    assert [(v.pending, v.expires_s) for v in d.views("b")] == [(gpus(m0=4), 140)]
    d.do(40)
    d.do(44)
    assert [c.group for c in d.heard(RemoveGroup)] == ["g1"]


def test_a_policy_that_preempts_leaves_pinned_gpus_alone() -> None:
    d = Driver(PreemptiveFirstCome())
    d.join(0, "a", 4)
    d.group(0, "a", "g1", gpus(m0=3))
    d.do(1, ev.Reported("a", report(4, pinned=gpus(m0=3))))
    d.wants["a"] = 0
    d.join(30, "b", 4)
    assert [v.held for v in d.views("a") if not v.final] == [gpus(m0=3)]
    assert d.held("b") == gpus(m0=1)
    for now in (35, 45):
        d.do(now, ev.Reported("b", report(now)))
        d.answer(now)
    # However many rounds are held, the pinned lease does not grow without end.
    assert max(v.expires_s for v in d.views("a")) <= 45 + 10 + 100
