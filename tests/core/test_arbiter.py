"""Rounds: who is asked, who answers in time, who gets what."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from arbiter_driver import CONFIG, M0, Driver, bid, gpus, report

from themis_ray.core import events as ev
from themis_ray.core.bids import BidRow, BidTable
from themis_ray.core.cluster import NOTHING, Machine
from themis_ray.core.commands import (
    Decided,
    LeasesChanged,
    LeaseView,
    RequestReport,
    SendOffer,
)
from themis_ray.core.explain import (
    AppGone,
    NoAnswer,
    NotOffered,
    Won,
)
from themis_ray.core.policies import ThemisPaper
from themis_ray.core.rounds import Phase
from themis_ray.core.settings import ArbiterConfig
from themis_ray.core.state import DEPARTED
from themis_ray.errors import BidError, DuplicateAppError, ProtocolError, UnknownAppError
from themis_ray.testing.invariants import snapshot
from themis_ray.testing.policies import FirstCome, PreemptiveFirstCome


def test_a_round_asks_then_offers_then_decides() -> None:
    d = Driver(ThemisPaper(min_bidders=2))
    d.do(1, ev.AppJoined("a", report(4)))
    assert d.said == [RequestReport("a", 1, NOTHING, 1.0, 4)]
    d.do(1, ev.Reported("a", report(4), 1))
    offer = SendOffer("a", 1, gpus(m0=4), NOTHING, NOTHING, {"m0": "r0"}, 1.0, 4, 100)
    assert d.said == [offer]
    d.do(2, ev.BidReceived(1, bid("a", {4: 0.5})))
    won = Won(gpus(m0=4), math.inf, 0.5, 1.0, 100.0)
    assert d.heard(Decided) == [Decided(1, {"a": won})]
    view = LeaseView("L1", gpus(m0=4), NOTHING, 102, False)
    assert d.heard(LeasesChanged) == [LeasesChanged("a", (view,), won)]
    assert d.arbiter.phase is Phase.IDLE
    assert d.arbiter.wakeup_s() == 92  # its notice


def test_a_policy_without_auction_is_not_sent_offers() -> None:
    d = Driver()
    d.join(1, "a", 3)
    assert not d.heard(SendOffer)
    assert d.held("a") == gpus(m0=3)


@pytest.mark.parametrize(
    ("knob", "apps", "bidders"),
    [
        (Fraction(7, 10), 10, 3),
        (0.7, 10, 3),  # as floats, ceil((1 - 0.7) * 10) is 4
        (Fraction(4, 5), 10, 2),
        (Fraction(4, 5), 11, 3),
        (Fraction(1), 10, 1),  # the floor of one bidder
        (Fraction(0), 10, 10),
    ],
)
def test_the_filter_counts_exactly(knob: Any, apps: int, bidders: int) -> None:
    d = Driver(ThemisPaper(fairness_knob=knob))
    current = d.gather(*(f"a{i}" for i in range(apps)))
    for i in range(apps):
        d.do(0, ev.Reported(f"a{i}", report(1, r=1.0 + i), current))
    asked = [c.app for c in d.heard(SendOffer)]
    assert asked == [f"a{i}" for i in range(apps - 1, apps - 1 - bidders, -1)]


def test_apps_that_are_not_worst_off_are_told_so() -> None:
    d = Driver(ThemisPaper())
    current = d.gather(*(f"a{i}" for i in range(5)))
    for i in range(5):
        d.do(0, ev.Reported(f"a{i}", report(4, r=1.0 + i), current))
    d.do(0, ev.BidReceived(current, bid("a4", {4: 1.0})))
    assert isinstance(d.arbiter.reason("a4"), Won)
    assert d.arbiter.reason("a0") == NotOffered(1.0, 5.0, 1, 5)


def test_who_does_not_report_loses_the_round_not_the_cluster() -> None:
    d = Driver()
    d.gather("a", "b", wants=2)
    d.answer(1, "a")
    assert d.arbiter.phase is Phase.REPORTING
    assert d.arbiter.wakeup_s() == 3
    d.do(3)
    assert (d.held("a"), d.held("b")) == (NOTHING, gpus(m0=2))
    assert d.arbiter.reason("a") == NoAnswer("report", 0.0)


def test_a_late_report_calls_for_a_new_round() -> None:
    d = Driver()
    d.do(0, ev.AppJoined("a", report(2)))
    d.do(3)
    assert d.arbiter.phase is Phase.IDLE
    d.do(4, ev.Reported("a", report(2), 1))
    assert d.heard(RequestReport) == [RequestReport("a", 2, NOTHING, 1.0, 4)]


def test_idle_gpus_are_offered_again_to_an_app_that_was_silent() -> None:
    d = Driver()
    d.do(0, ev.AppJoined("a", report(2)))
    d.do(3)
    assert d.arbiter.wakeup_s() == 3 + CONFIG.bid_timeout_s
    d.do(5)
    assert d.heard(RequestReport) == [RequestReport("a", 2, NOTHING, 1.0, 4)]


def test_a_newcomer_does_not_wait_for_the_silent() -> None:
    d = Driver()
    d.do(0, ev.AppJoined("a", report(2)))
    d.do(3)
    d.do(4, ev.AppJoined("b", report(2)))
    assert {c.app for c in d.heard(RequestReport)} == {"a", "b"}


def test_who_does_not_bid_loses_the_round() -> None:
    d = Driver(ThemisPaper(min_bidders=2))
    current = d.gather("a", "b")
    d.answer(1)
    assert {c.app for c in d.heard(SendOffer)} == {"a", "b"}
    d.do(1, ev.BidReceived(current, bid("b", {4: 1.0})))
    assert d.arbiter.wakeup_s() == 3
    d.do(3)
    assert d.arbiter.reason("a") == NoAnswer("bid", 5.0)
    assert d.held("b") == gpus(m0=4)
    with pytest.raises(ProtocolError, match="is over"):
        d.do(3, ev.BidReceived(current, bid("a", {4: 1.0})))


def test_bad_bids_are_refused_and_the_bidder_may_mend_them() -> None:
    d = Driver(ThemisPaper(min_bidders=2))
    d.do(0, ev.AppJoined("a", report(4)))
    d.do(0, ev.Reported("a", report(4), 1))
    before = snapshot(d.arbiter)
    for rows in (
        (BidRow(1.0, gpus(m0=5)),),
        (BidRow(1.0, gpus(m1=1)),),
        (BidRow(1.0, parts=(5,)),),
        (BidRow(1.0, parts=(3, 2)),),
        (BidRow(1.0, gpus(m0=4), (1,)),),
    ):
        with pytest.raises(BidError, match="offer"):
            d.do(0, ev.BidReceived(1, BidTable("a", math.inf, rows)))
    assert snapshot(d.arbiter) == before
    d.do(1, ev.BidReceived(1, bid("a", {4: 1.0})))
    assert d.held("a") == gpus(m0=4)


@pytest.mark.parametrize("r", [math.nan, -1.0, 0.0])
def test_an_r_that_is_no_r_cannot_be_bid(r: float) -> None:
    with pytest.raises(BidError, match="must be positive"):
        BidRow(r, parts=(1,))
    with pytest.raises(BidError, match="must be positive"):
        BidTable("a", r)


@pytest.mark.parametrize("r", [math.nan, -1.0])
def test_an_r_that_is_no_r_cannot_be_reported(r: float) -> None:
    with pytest.raises(BidError, match="0 or more, or infinite"):
        ev.AppReport(r, 1.0, 1.0, 1)


def test_an_app_that_was_not_asked_cannot_bid() -> None:
    d = Driver(ThemisPaper())
    d.do(0, ev.AppJoined("a", report(4)))
    d.do(0, ev.AppJoined("b", report(4)))
    d.do(0, ev.Reported("a", report(4), 1))
    with pytest.raises(BidError, match="was not made an offer"):
        d.do(0, ev.BidReceived(1, bid("b", {1: 1.0})))


def test_two_apps_of_one_name_and_apps_unknown() -> None:
    d = Driver()
    d.join(0, "a", 1)
    with pytest.raises(DuplicateAppError, match="another name"):
        d.do(0, ev.AppJoined("a", report(1)))
    with pytest.raises(UnknownAppError, match="registered are: a"):
        d.do(0, ev.Reported("b", report(1)))
    with pytest.raises(UnknownAppError):
        d.arbiter.reason("b")
    assert d.held("a") == gpus(m0=1)


def test_changes_that_come_together_share_a_round() -> None:
    config = ArbiterConfig(lease_s=100, round_delay_s=0.5)
    d = Driver(config=config)
    d.do(1)
    d.do(10, ev.AppJoined("a", report(1)))
    d.do(10.3, ev.AppJoined("b", report(1)))
    assert not d.heard(RequestReport)
    assert d.arbiter.wakeup_s() == 10.5
    d.do(10.5)
    assert {c.app for c in d.heard(RequestReport)} == {"a", "b"}


def test_nobody_is_asked_when_nobody_wants_more() -> None:
    d = Driver()
    d.join(0, "a", 0)
    assert d.arbiter.rounds == 0
    d.do(5, ev.Reported("a", report(2)))
    assert d.arbiter.rounds == 1


def test_an_unasked_report_in_a_round_changes_demand_but_not_the_answered_r() -> None:
    d = Driver(ThemisPaper(min_bidders=2))
    current = d.gather("a", "b")
    d.do(1, ev.Reported("a", report(4, r=7.0), current))
    d.do(1, ev.Reported("a", report(3, r=2.0)))
    assert d.arbiter.state.apps["a"].report.r == 7.0
    assert d.arbiter.state.apps["a"].report.wants == 3


class _Faulty(FirstCome):
    name = "faulty"
    broken = True

    def allocate(self, view: Any, bids: Any) -> Any:
        if self.broken:
            raise RuntimeError("a bug in the policy")
        return super().allocate(view, bids)


def test_a_policy_that_raises_does_not_jam_the_arbiter() -> None:
    policy = _Faulty()
    d = Driver(policy)
    d.do(0, ev.AppJoined("a", report(2)))
    with pytest.raises(RuntimeError, match="a bug in the policy"):
        d.do(0, ev.Reported("a", report(2), 1))
    object.__setattr__(policy, "broken", False)
    d.wants["a"] = 2
    d.do(1, ev.AppJoined("b", report(2)))
    d.wants["b"] = 2
    d.answer(1)
    assert d.held("a") == d.held("b") == gpus(m0=2)


def test_apps_with_nothing_at_stake_are_not_asked() -> None:
    d = Driver()
    d.gather("a", "b", wants=2)
    d.answer(0)
    d.join(10, "c", 2, answer=False)
    assert d.arbiter.phase is Phase.IDLE  # all is leased
    d.wants["a"] = 0
    d.do(20, ev.AppLeft("a"))
    assert {c.app for c in d.heard(RequestReport)} == {"c"}
    d.do(20, ev.Reported("b", report(3)))  # demand that comes up meanwhile takes part
    d.answer(20)
    assert (d.held("b"), d.held("c")) == (gpus(m0=3), gpus(m0=1))


def test_after_a_change_of_the_cluster_all_are_asked() -> None:
    d = Driver()
    d.join(0, "a", 2)
    d.join(1, "b", 2)
    d.do(2, ev.ClusterChanged((Machine("m0", 4), Machine("m1", 4))))
    assert {c.app for c in d.heard(RequestReport)} == {"a", "b"}


def test_a_preempting_policy_holds_no_round_while_all_have_what_they_want() -> None:
    d = Driver(PreemptiveFirstCome())
    d.join(0, "a", 2)
    d.join(1, "b", 2)
    held = d.arbiter.rounds
    d.do(5, ev.AppLeft("b"))
    assert (d.arbiter.rounds, d.arbiter.phase) == (held, Phase.IDLE)
    d.do(90)  # the lease is near its end
    assert d.arbiter.phase is Phase.REPORTING


def test_of_apps_that_left_long_ago_nothing_is_remembered() -> None:
    d = Driver()
    for i in range(DEPARTED + 2):
        d.do(i, ev.AppJoined(f"a{i}", report(0)))
        d.do(i, ev.AppLeft(f"a{i}"))
    assert len(d.arbiter.state.departed) == DEPARTED
    with pytest.raises(UnknownAppError):
        d.arbiter.reason("a1")
    assert d.arbiter.reason("a2") == AppGone("finished")


@pytest.mark.parametrize("policy", [FirstCome(), PreemptiveFirstCome()])
def test_apps_that_have_all_they_know_of_are_asked_again_when_the_cluster_grows(
    policy: FirstCome,
) -> None:
    d = Driver(policy)
    d.join(0, "a", 4)  # as many as there are: its trials could use more
    assert d.held("a") == gpus(m0=4)
    d.do(5, ev.ClusterChanged((*M0, Machine("m1", 2))))
    assert [(c.app, c.cluster_gpus) for c in d.heard(RequestReport)] == [("a", 6)]
    d.wants["a"] = 6
    d.answer(5)
    assert d.held("a") == gpus(m0=4, m1=2)


def test_nobody_is_asked_when_the_cluster_grows_and_nobody_is_there() -> None:
    d = Driver()
    d.do(5, ev.ClusterChanged((*M0, Machine("m1", 2))))
    assert d.arbiter.round is None
