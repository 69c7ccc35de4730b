"""Random histories of an arbiter, with its books checked after every event."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from recalling_world import Halving

from themis_ray.core import events as ev
from themis_ray.core.arbiter import Arbiter
from themis_ray.core.bids import BidRow, BidTable
from themis_ray.core.cluster import NOTHING, Allocation, Machine
from themis_ray.core.commands import (
    Command,
    CreateGroup,
    LeasesChanged,
    RemoveGroup,
    RequestReport,
    SendOffer,
)
from themis_ray.core.leases import GroupState
from themis_ray.core.policies import Themis, ThemisPaper
from themis_ray.core.settings import ArbiterConfig
from themis_ray.errors import ThemisError
from themis_ray.testing.invariants import check_arbiter, snapshot, sum_up
from themis_ray.testing.policies import FirstCome, KeepingFirstCome, PreemptiveFirstCome
from themis_ray.testing.strategies import bid_tables, machines, reports, within

APPS = ["a", "b", "c", "d"]
REPORT = ev.AppReport(1.0, 1.0, 1.0, 1)

policies = st.sampled_from(
    [
        Themis(),
        Themis(recall_factor=1.0, restart_s=0.0),
        Halving(),
        Halving(last_first=False),
        ThemisPaper(min_bidders=2),
        ThemisPaper(min_bidders=3, payment="time", leftover="placed"),
        FirstCome(),
        PreemptiveFirstCome(),
        KeepingFirstCome(),
    ]
)
configs = st.builds(
    ArbiterConfig,
    lease_s=st.sampled_from([20.0, 60.0]),
    notice_s=st.sampled_from([0.0, 1.0, 10.0]),
    grace_s=st.sampled_from([0.0, 5.0]),
    round_delay_s=st.sampled_from([0.0, 0.5]),
    min_lease_s=st.sampled_from([0.0, 5.0]),
)


class ArbiterMachine(RuleBasedStateMachine):
    """Plays the driver and all AGENTs; ``physical`` is what a real cluster would have."""

    @initialize(policy=policies, config=configs, machines=machines(3, 4), hold=st.booleans())
    def start(
        self, policy: Any, config: ArbiterConfig, machines: tuple[Machine, ...], hold: bool
    ) -> None:
        self.now = 0.0
        self.names = 0
        self.physical: dict[str, Allocation] = {}
        self.offers: dict[str, SendOffer] = {}
        self.asked: dict[str, RequestReport] = {}
        self.told: dict[str, LeasesChanged] = {}
        self.arbiter = Arbiter(policy, config)
        if hold:
            self.arbiter.hold_rounds_until(15.0)
        self.do(ev.ClusterChanged(machines))

    # -- what both sides know -----------------------------------------------------------------

    def do(self, event: ev.Event) -> None:
        for command in self.arbiter.handle(event, self.now):
            self.obey(command)
        check_arbiter(self.arbiter)
        wakeup_s = self.arbiter.wakeup_s()
        assert wakeup_s is None or wakeup_s > self.now, "what was due was left undone"

    def obey(self, command: Command) -> None:
        match command:
            case CreateGroup():
                assert command.group not in self.physical
                self.physical[command.group] = command.allocation
                capacity = self.arbiter.state.cluster.capacity
                for machine in command.allocation:
                    used = sum(a.on(machine) for a in self.physical.values())
                    assert used <= capacity.on(machine), "a group on GPUs that are not free"
            case RemoveGroup():
                assert command.group in self.physical
                assert self.arbiter.state.groups[command.group].state is GroupState.ENDING
            case SendOffer():
                self.offers[command.app] = command
                assert command.expiring <= command.offer
            case RequestReport():
                self.asked[command.app] = command
            case LeasesChanged():
                self.told[command.app] = command

    @property
    def apps(self) -> list[str]:
        return sorted(self.arbiter.state.apps)

    def groups(self, *states: GroupState) -> list[str]:
        return sorted(g.id for g in self.arbiter.state.groups.values() if g.state in states)

    @invariant()
    def agents_know_their_leases(self) -> None:
        if not hasattr(self, "arbiter"):
            return
        for name, app in self.arbiter.state.apps.items():
            known = {view.id: view for view in self.told[name].leases} if name in self.told else {}
            assert known == {lease.id: lease.view() for lease in app.leases.values()}

    # -- events -------------------------------------------------------------------------------

    @rule(machines=machines(3, 4))
    def cluster_changes(self, machines: tuple[Machine, ...]) -> None:
        self.do(ev.ClusterChanged(machines))

    @rule(app=st.sampled_from(APPS), data=st.data(), adopted=st.lists(st.booleans(), max_size=2))
    def join(self, app: str, data: st.DataObject, adopted: list[bool]) -> None:
        if app in self.arbiter.state.apps:
            self.refuse(ev.AppJoined(app, REPORT))
            return
        groups = []
        for _ in adopted:
            self.names += 1
            part = data.draw(within(self.arbiter.state.unclaimed()))
            if part:
                groups.append(ev.HeldGroup(f"old{self.names}", part))
        self.told.pop(app, None)
        weight = data.draw(st.sampled_from([0.5, 1.0, 3.0]))
        self.do(ev.AppJoined(app, data.draw(reports()), weight, tuple(groups)))
        for group in groups:
            if group.id in self.arbiter.state.groups:
                self.physical[group.id] = group.allocation

    @precondition(lambda self: self.apps)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.do(ev.AppLeft(data.draw(st.sampled_from(self.apps))))

    @precondition(lambda self: self.apps)
    @rule(data=st.data(), pins=st.booleans())
    def report_unasked(self, data: st.DataObject, pins: bool) -> None:
        app = data.draw(st.sampled_from(self.apps))
        pinned = self.arbiter.state.ledger.physical(app) if pins else NOTHING
        self.do(ev.Reported(app, data.draw(reports(pinned=pinned))))

    @precondition(lambda self: set(self.asked) & set(self.apps))
    @rule(data=st.data())
    def answer_request(self, data: st.DataObject) -> None:
        app = data.draw(st.sampled_from(sorted(set(self.asked) & set(self.apps))))
        self.do(ev.Reported(app, data.draw(reports()), self.asked.pop(app).round_id))

    @precondition(lambda self: self.arbiter.round and self.arbiter.round.waiting)
    @rule(data=st.data())
    def all_answer(self, data: st.DataObject) -> None:
        current = self.arbiter.round
        for app in sorted(current.waiting):
            if self.arbiter.round is not current:
                return
            if app in current.asked:
                offer = self.offers[app].offer
                self.do(ev.BidReceived(current.id, data.draw(bid_tables(app, offer))))
            else:
                self.do(ev.Reported(app, data.draw(reports()), current.id))

    @precondition(lambda self: self.apps)
    @rule(data=st.data())
    def request_group(self, data: st.DataObject) -> None:
        app = data.draw(st.sampled_from(self.apps))
        part = data.draw(within(self.arbiter.state.ledger.entitled(app)))
        self.names += 1
        event = ev.GroupRequested(app, f"g{self.names}", part)
        if part:
            self.do(event)
        else:
            self.refuse(event)

    @precondition(lambda self: self.apps)
    @rule(data=st.data())
    def request_what_is_not_held(self, data: st.DataObject) -> None:
        app = data.draw(st.sampled_from(self.apps))
        self.names += 1
        before = len(self.arbiter.state.groups)
        beyond = self.arbiter.state.ledger.entitled(app) + Allocation({"m0": 1})
        self.do(ev.GroupRequested(app, f"g{self.names}", beyond))
        assert len(self.arbiter.state.groups) == before

    @precondition(lambda self: self.groups(*GroupState))
    @rule(data=st.data())
    def release_group(self, data: st.DataObject) -> None:
        group = self.arbiter.state.groups[data.draw(st.sampled_from(self.groups(*GroupState)))]
        event = ev.GroupReleased(group.app, group.id)
        if group.app in self.apps:
            self.do(event)
        else:
            self.refuse(event)

    @precondition(lambda self: self.apps)
    @rule(data=st.data())
    def return_gpus(self, data: st.DataObject) -> None:
        app = data.draw(st.sampled_from(self.apps))
        self.do(ev.GpusReturned(app, data.draw(within(self.arbiter.state.cluster.capacity))))

    @precondition(lambda self: self.groups(GroupState.CREATING))
    @rule(data=st.data(), works=st.booleans())
    def group_created(self, data: st.DataObject, works: bool) -> None:
        group = data.draw(st.sampled_from(self.groups(GroupState.CREATING)))
        if not works:
            del self.physical[group]
        self.do(ev.GroupReady(group) if works else ev.GroupFailed(group, "no room"))

    @precondition(lambda self: self.physical)
    @rule(data=st.data())
    def group_goes(self, data: st.DataObject) -> None:
        group = data.draw(st.sampled_from(sorted(self.physical)))
        del self.physical[group]
        self.do(ev.GroupGone(group))

    @rule(by_s=st.sampled_from([0.1, 1.0, 5.0, 12.0, 70.0]))
    def time_passes(self, by_s: float) -> None:
        self.now += by_s
        self.do(ev.Tick())

    @precondition(lambda self: self.arbiter.wakeup_s() is not None)
    @rule()
    def timer_fires(self) -> None:
        self.now = self.arbiter.wakeup_s() or self.now
        self.do(ev.Tick())

    # -- what is not legal changes nothing ------------------------------------------------------

    def refuse(self, event: ev.Event) -> None:
        before = snapshot(self.arbiter)
        with pytest.raises(ThemisError):
            self.arbiter.handle(event, self.now)
        assert snapshot(self.arbiter) == before

    @rule()
    def strangers_are_refused(self) -> None:
        for event in (
            ev.AppLeft("stranger"),
            ev.Reported("stranger", REPORT),
            ev.BidReceived(1, BidTable("stranger", 1.0)),
            ev.GroupRequested("stranger", "g", Allocation({"m0": 1})),
            ev.GroupReleased("stranger", "g"),
            ev.GpusReturned("stranger", Allocation({"m0": 1})),
            ev.GroupReady("nobody's"),
            ev.GroupFailed("nobody's", "why"),
            ev.GroupGone("nobody's"),
            ev.AppJoined("heavy", REPORT, float("inf")),
            ev.AppJoined("light", REPORT, 0.0),
        ):
            self.refuse(event)

    @rule()
    def groups_are_not_created_twice(self) -> None:
        for group in self.groups(GroupState.LIVE, GroupState.WAITING):
            self.refuse(ev.GroupReady(group))
            self.refuse(ev.GroupFailed(group, "why"))
        for group in self.groups(GroupState.WAITING):
            self.refuse(ev.GroupGone(group))
        for group in self.arbiter.state.groups.values():
            if group.app in self.apps:
                self.refuse(ev.GroupRequested(group.app, group.id, Allocation({"elsewhere": 1})))

    @precondition(lambda self: self.apps)
    @rule(data=st.data(), round_off=st.sampled_from([-1, 1]))
    def bids_out_of_turn_are_refused(self, data: st.DataObject, round_off: int) -> None:
        app = data.draw(st.sampled_from(self.apps))
        current = self.arbiter.round
        round_id = self.arbiter.rounds + round_off
        self.refuse(ev.BidReceived(round_id, BidTable(app, 1.0)))
        if current is not None and app in current.asked:
            beyond = current.pool + Allocation({"m0": 1})
            self.refuse(ev.BidReceived(current.id, BidTable(app, 1.0, (BidRow(1.0, beyond),))))
        else:
            self.refuse(ev.BidReceived(self.arbiter.rounds, BidTable(app, 1.0)))

    @precondition(lambda self: self.now > 0)
    @rule()
    def time_does_not_go_back(self) -> None:
        self.now, now = self.now - 1e-3, self.now
        if self.arbiter._now > self.now:
            self.refuse(ev.Tick())
        self.now = now

    def teardown(self) -> None:
        """Once everybody has left and every group is gone, the whole cluster is free."""
        if not hasattr(self, "arbiter"):
            return
        for app in self.apps:
            self.do(ev.AppLeft(app))
        for group in list(self.physical):
            del self.physical[group]
            self.do(ev.GroupGone(group))
        for _ in range(1000):
            if self.arbiter.wakeup_s() is None:
                break
            self.timer_fires()
        assert self.arbiter.wakeup_s() is None
        assert not self.arbiter.state.groups
        assert self.arbiter.state.ledger.free() == self.arbiter.state.cluster.capacity
        assert sum_up(self.physical.values()) == NOTHING


TestArbiterMachine = ArbiterMachine.TestCase
TestArbiterMachine.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
