"""The default policy in rounds during which things change."""

from __future__ import annotations

import pytest
from arbiter_driver import M0, Driver, bid, report

from themis_ray.core import events as ev
from themis_ray.core.cluster import NOTHING
from themis_ray.core.policies import Themis
from themis_ray.core.rounds import Phase


@pytest.mark.parametrize("shrinks", [False, True])
def test_in_a_cluster_without_a_gpu_there_is_nothing_to_recall(shrinks: bool) -> None:
    d = Driver(Themis(), machines=M0 if shrinks else ())
    d.do(0, ev.ClusterChanged(()))
    d.join(1, "a", 2)
    d.join(2, "b", 2)
    assert d.held("a") == d.held("b") == NOTHING
    assert d.arbiter.phase is Phase.IDLE


def test_all_machines_may_go_while_a_round_asks() -> None:
    d = Driver(Themis())
    d.join(0, "a", 2, answer=False)
    assert d.arbiter.phase is Phase.REPORTING
    d.do(1, ev.ClusterChanged(()))
    d.answer(1)
    assert d.arbiter.phase is Phase.IDLE


def test_an_app_may_come_to_want_nothing_before_its_bid_comes() -> None:
    """Its last trial has ended meanwhile."""
    d = Driver(Themis())
    d.join(0, "a", 2)
    current = d.arbiter.round
    assert current is not None
    assert d.arbiter.phase is Phase.BIDDING
    d.do(0, ev.Reported("a", report(0)))
    d.do(0, ev.BidReceived(current.id, bid("a", {1: 2.0, 2: 1.0})))
    assert d.arbiter.phase is Phase.IDLE
