"""Placement groups, capacity that comes and goes, and restarts."""

from __future__ import annotations

import math

import pytest
from arbiter_driver import Driver, bid, gpus, handed_over, report

from themis_ray.core import events as ev
from themis_ray.core.bids import BidRow, BidTable
from themis_ray.core.cluster import NOTHING, Machine
from themis_ray.core.commands import (
    CreateGroup,
    GroupRefused,
    LeasesChanged,
    RemoveGroup,
    SendOffer,
)
from themis_ray.core.explain import (
    Adopted,
    AppGone,
    CapacityLost,
    GaveBack,
    GroupNotCreated,
    NotHeld,
    Waiting,
)
from themis_ray.core.policies import ThemisPaper
from themis_ray.errors import ProtocolError

# -- groups ---------------------------------------------------------------------------------------


def test_a_group_waits_for_the_apps_own_earlier_group() -> None:
    d = Driver()
    d.join(0, "a", 4)
    d.group(0, "a", "g1", gpus(m0=4))
    d.do(1, ev.GroupReleased("a", "g1"))
    d.do(1, ev.GroupRequested("a", "g2", gpus(m0=4)))
    assert d.said == []
    d.do(2, ev.GroupGone("g1"))
    assert d.said == [CreateGroup("a", "g2", gpus(m0=4))]


def test_a_group_on_what_is_not_held_is_refused() -> None:
    d = Driver()
    d.join(0, "a", 2)
    d.do(1, ev.GroupRequested("a", "g1", gpus(m0=3)))
    refused, leases = d.said
    assert refused == GroupRefused("a", "g1", NotHeld(gpus(m0=3), gpus(m0=2)))
    # The AGENT takes its leases to be others than they are: it is told.
    assert isinstance(leases, LeasesChanged)
    assert [lease.held for lease in leases.leases] == [gpus(m0=2)]
    with pytest.raises(ProtocolError, match="asks for no GPU"):
        d.do(1, ev.GroupRequested("a", "g2", NOTHING))


def test_a_group_that_fails_is_told_and_its_gpus_stay_leased() -> None:
    d = Driver()
    d.join(0, "a", 2)
    d.do(1, ev.GroupRequested("a", "g1", gpus(m0=2)))
    d.do(2, ev.GroupFailed("g1", "no CPU"))
    assert d.heard(GroupRefused) == [GroupRefused("a", "g1", GroupNotCreated("no CPU"))]
    assert d.held("a") == gpus(m0=2)
    d.group(3, "a", "g1", gpus(m0=2))


def test_gpus_given_back_go_to_a_round_at_once() -> None:
    d = Driver()
    d.join(0, "a", 4)
    d.join(1, "b", 2)
    d.wants["a"] = 2
    d.do(5, ev.Reported("a", report(2)), ev.GpusReturned("a", gpus(m0=2)))
    assert d.arbiter.reason("a") == GaveBack(gpus(m0=2))
    d.answer(5)
    assert (d.held("a"), d.held("b")) == (gpus(m0=2), gpus(m0=2))


def test_gpus_in_use_cannot_be_given_back() -> None:
    d = Driver()
    d.join(0, "a", 4)
    d.group(0, "a", "g1", gpus(m0=3))
    d.do(1, ev.GpusReturned("a", gpus(m0=4)))
    assert d.held("a") == gpus(m0=3)


def test_an_app_that_leaves_gives_its_gpus_up_when_its_groups_are_gone() -> None:
    d = Driver()
    d.join(0, "a", 4)
    d.group(0, "a", "g1", gpus(m0=3))
    d.do(0, ev.GroupRequested("a", "g2", gpus(m0=1)))
    d.join(1, "b", 4)
    d.do(2, ev.AppLeft("a", "its driver is lost"))
    assert {c.group for c in d.heard(RemoveGroup)} == {"g1", "g2"}
    assert d.arbiter.reason("a") == AppGone("its driver is lost")
    assert d.arbiter.state.unclaimed() == NOTHING
    d.do(3, ev.GroupGone("g1"))
    d.answer(3)
    assert d.held("b") == gpus(m0=3)
    d.do(4, ev.GroupGone("g2"))
    d.answer(4)
    assert d.held("b") == gpus(m0=4)
    d.join(5, "a", 1)  # the name is free again
    assert d.arbiter.reason("a") == Waiting(0)


def test_an_app_that_leaves_in_a_round_does_not_hold_it_up() -> None:
    d = Driver(ThemisPaper(min_bidders=2))
    current = d.gather("a", "b")
    d.do(0, ev.Reported("a", report(4), current))
    d.do(1, ev.AppLeft("b"))
    assert [c.app for c in d.heard(SendOffer)] == ["a"]
    d.do(1, ev.BidReceived(current, bid("a", {4: 1.0})))
    assert d.held("a") == gpus(m0=4)


# -- capacity -------------------------------------------------------------------------------------


def test_a_lost_node_ends_its_leases_at_once() -> None:
    d = Driver(machines=(Machine("m0", 2), Machine("m1", 2)))
    d.join(0, "a", 4)
    d.group(0, "a", "g0", gpus(m0=2))
    d.group(0, "a", "g1", gpus(m1=2))
    d.do(5, ev.ClusterChanged((Machine("m1", 2),)))
    assert [c.group for c in d.heard(RemoveGroup)] == ["g0"]
    assert d.arbiter.reason("a") == CapacityLost(gpus(m0=2))
    assert d.held("a") == gpus(m1=2)
    d.do(6, ev.GroupGone("g0"))
    d.do(7, ev.ClusterChanged((Machine("m0", 2), Machine("m1", 2))))
    d.answer(7)
    assert d.held("a") == gpus(m0=2, m1=2)


def test_one_gpu_taken_by_another_job_costs_one_lease_one_gpu() -> None:
    d = Driver()
    d.join(0, "a", 2)
    d.join(1, "b", 2)
    d.group(2, "a", "ga", gpus(m0=2))
    d.group(2, "b", "gb", gpus(m0=2))
    d.do(5, ev.ClusterChanged((Machine("m0", 3),)))
    assert sorted([d.held("a").size, d.held("b").size]) == [1, 2]
    assert len(d.heard(RemoveGroup)) == 1


def test_another_job_takes_idle_gpus_before_used_ones() -> None:
    d = Driver()
    d.join(0, "a", 2)
    d.join(1, "b", 2)
    d.group(2, "b", "gb", gpus(m0=2))  # the newer lease is in use, the older idle
    d.do(5, ev.ClusterChanged((Machine("m0", 2),)))
    assert (d.held("a"), d.held("b")) == (NOTHING, gpus(m0=2))
    assert not d.heard(RemoveGroup)


def test_gpus_that_can_no_longer_come_are_not_awaited() -> None:
    d = handed_over()
    d.do(95, ev.ClusterChanged((Machine("m0", 3),)))
    assert d.arbiter.state.apps["b"].pending == gpus(m0=3)
    d.do(96, ev.ClusterChanged(()))
    assert d.arbiter.state.apps["b"].leases == {}
    assert d.arbiter.reason("b") == CapacityLost(gpus(m0=3))


def test_a_node_that_is_lost_in_a_round_spoils_neither_the_round_nor_the_bids() -> None:
    d = Driver(ThemisPaper(min_bidders=2))
    current = d.gather("a", "b", machines=(Machine("m0", 2), Machine("m1", 2)))
    d.answer(0)
    on_m0 = BidTable("a", math.inf, (BidRow(1.0, gpus(m0=2)), BidRow(2.0, gpus(m1=1))))
    d.do(0, ev.BidReceived(current, on_m0))
    d.do(1, ev.ClusterChanged((Machine("m1", 2),)))
    d.do(1, ev.BidReceived(current, bid("b", {1: 1.0, 4: 0.1})))
    assert d.held("a") + d.held("b") == gpus(m1=2)
    assert d.held("a")
    assert d.held("b")


def test_gpus_that_drain_in_a_round_are_not_given_out() -> None:
    d = Driver(ThemisPaper(min_bidders=2))
    d.join(0, "a", 4)
    d.do(0, ev.BidReceived(1, bid("a", {4: 1.0})))
    d.group(0, "a", "g", gpus(m0=3))
    d.join(1, "b", 4, answer=False)
    d.do(90)
    d.answer(90)
    d.do(90, ev.BidReceived(2, bid("b", {4: 1.0})))
    d.do(91, ev.AppLeft("a"))
    assert d.held("b") == gpus(m0=1)


# -- after a restart ------------------------------------------------------------------------------


def test_groups_of_an_earlier_arbiter_are_adopted_if_their_gpus_are_free() -> None:
    d = Driver()
    d.arbiter.hold_rounds_until(20)
    held = (ev.HeldGroup("g1", gpus(m0=3)), ev.HeldGroup("g2", gpus(m0=2)))
    d.do(1, ev.AppJoined("a", report(4), 1.0, held))
    assert d.arbiter.reason("a") == Adopted(gpus(m0=3))
    assert set(d.arbiter.state.groups) == {"g1"}
    assert [(v.held, v.expires_s) for v in d.views("a")] == [(gpus(m0=3), 101)]
    assert d.arbiter.wakeup_s() == 20  # until then others may come back for what they have
    d.do(19.9)
    assert d.arbiter.rounds == 0
    d.do(20)
    assert d.arbiter.rounds == 1
    d.do(21, ev.GroupReleased("a", "g1"))
    assert [c.group for c in d.heard(RemoveGroup)] == ["g1"]


def test_nothing_is_adopted_of_what_is_not_free() -> None:
    d = Driver()
    d.join(0, "b", 4)
    d.do(1, ev.AppJoined("a", report(4), 1.0, (ev.HeldGroup("g1", gpus(m0=3)),)))
    assert d.arbiter.reason("a") == Waiting(0)
    assert d.arbiter.state.apps["a"].leases == {}
