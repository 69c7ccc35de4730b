"""The ARBITER as a sans-IO state machine: ``handle(event, now) -> commands``.

It reads no clock and does no I/O. A driver (the Ray actor, or the simulator) feeds it events and
carries out the commands. An event that is not legal raises
:class:`~themis_ray.errors.ProtocolError` or :class:`~themis_ray.errors.BidError` and changes
nothing. The transition tables are :data:`TRANSITIONS` (rounds) and
:data:`themis_ray.core.leases.GROUP_TRANSITIONS` (placement groups).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from themis_ray.core import events as ev
from themis_ray.core import rounds
from themis_ray.core.app import App
from themis_ray.core.asking import begin, send_offers, widen
from themis_ray.core.bids import check_against_offer, within
from themis_ray.core.calm import all_served, due_again, enough, nothing_else, with_renewals
from themis_ray.core.cluster import NOTHING, Cluster
from themis_ray.core.commands import Command, Decided
from themis_ray.core.explain import AppGone, Reason, Waiting
from themis_ray.core.group_events import GROUP_EVENTS, adopt
from themis_ray.core.opening import Occasion, Opening, opening
from themis_ray.core.policies.base import Outcome, Policy, RoundView
from themis_ray.core.recalls import put_up_early, with_reasons
from themis_ray.core.rounds import Phase, Round
from themis_ray.core.settings import ArbiterConfig
from themis_ray.core.state import State
from themis_ray.errors import BidError, DuplicateAppError, ProtocolError


class Arbiter:
    """Shares the GPUs of a cluster among apps, round by round.

    Args:
        policy: Decides who gets what.
        config: Times.
    """

    def __init__(self, policy: Policy, config: ArbiterConfig | None = None) -> None:
        self.policy = policy
        self.config = config or ArbiterConfig()
        self.state = State()
        self.round: Round | None = None
        self.rounds = 0
        # What the policy noted in the last round, for the next.
        self._memory: Mapping[str, Any] = {}
        self._now = -math.inf
        # The round as the policy saw it last; None once anything may have changed since.
        self._seen: RoundView | None = None
        # Since when supply or demand has changed with no round held; None when it has not.
        self._dirty_s: float | None = None
        self._not_before_s = -math.inf
        # Whether somebody has come to want more since the last round.
        self._demand = False
        # Whether the next round asks all apps, since R_C has changed for all of them.
        self._ask_all = False

    def hold_rounds_until(self, time_s: float) -> None:
        """Hold no round before a time; called once, before the first event, after a restart."""
        self._not_before_s = time_s

    # -- the one mutating entry -----------------------------------------------------------

    def handle(self, event: ev.Event, now: float) -> list[Command]:
        """Take in one event.

        Args:
            event: What happened.
            now: When, in seconds on the driver's clock; never less than in an earlier call.

        Returns:
            What is to be done, in order.

        Raises:
            ProtocolError: The event is not legal in this state (nothing was changed).
            BidError: A bid asks for what was not offered (nothing was changed).
        """
        if now < self._now:
            raise ProtocolError(f"time went back from {self._now} to {now}")
        TRANSITIONS[type(event)](self, event, now)
        if now > self._now or not isinstance(event, ev.BidReceived):
            self._seen = None  # bids change nothing else
        self._now = now
        self._advance(now)
        return self.state.flush()

    @property
    def phase(self) -> Phase:
        """Where the arbiter is in a round."""
        return self.round.phase if self.round else Phase.IDLE

    def wakeup_s(self) -> float | None:
        """When the next :class:`~themis_ray.core.events.Tick` is due; None for never."""
        times = [self.state.timers[0][0]] if self.state.timers else []
        if self.round is not None:
            times.append(self.round.deadline_s)
        elif self._dirty_s is not None:
            times.append(max(self._dirty_s + self.config.round_delay_s, self._not_before_s))
        return min(times, default=None)

    # -- events ---------------------------------------------------------------------------

    def _cluster_changed(self, event: ev.ClusterChanged, now: float) -> None:
        self.state.set_cluster(Cluster(event.machines), now)
        self._ask_all = self._ask_all or bool(self.state.apps)
        self._stir(now)

    def _joined(self, event: ev.AppJoined, now: float) -> None:
        if event.app in self.state.apps:
            raise DuplicateAppError(
                f"an app {event.app!r} is already running; give this one another name with "
                "ThemisScheduler(app=...)"
            )
        if not 0 < event.weight < math.inf:
            raise ProtocolError(f"weight {event.weight} of app {event.app!r}; use a number above 0")
        integral = self.state.contention.change(now, +1)
        app = App(event.app, event.weight, now, integral, event.report, Waiting(0))
        app.touched_s = now
        app.groups = {g.id: g for g in self.state.groups.values() if g.app == event.app}
        app.reason = Waiting(self.state.unclaimed().size)
        self.state.enter(app)
        if event.groups:
            adopt(self.state, app, event.groups, now, self.config)
        self._demand = True
        self._stir(now)

    def _left(self, event: ev.AppLeft, now: float) -> None:
        app = self.state.app(event.app)
        reason = AppGone(event.why)
        for lease in list(app.leases.values()):
            lease.pending = NOTHING
            self.state.unhold(lease, lease.held, now)
        for group in list(app.groups.values()):
            self.state.end_group(group, reason)
        self.state.leave(event.app, reason)
        self.state.changed.pop(event.app, None)
        self.state.contention.change(now, -1)
        if self.round is not None:
            self.round.waiting.discard(event.app)
            self.round.bids.pop(event.app, None)
            self.round.answered.discard(event.app)
            for leases in (self.round.leases, self.round.calm):
                for lease_id in [k for k, x in leases.items() if x.app == event.app]:
                    del leases[lease_id]
        self._stir(now)

    def _reported(self, event: ev.Reported, now: float) -> None:
        app = self.state.app(event.app)
        self.state.learn(event.report.measured)
        wanted_before = app.report.wants
        current = self.round
        if (
            current is not None
            and event.round_id is None
            and event.app in current.answered
            and event.app not in current.spared
        ):
            # Unasked, an app tells its r with all that it holds; the round needs the r with what
            # it keeps, which it has answered already.
            app.report = replace(event.report, r=app.report.r)
        else:
            app.report = event.report
        self.state.restless.look_at(app)
        if current is not None and event.round_id == current.id:
            current.answered.add(event.app)
            if current.phase is Phase.REPORTING:
                current.waiting.discard(event.app)
        elif event.round_id is not None or event.report.wants > wanted_before:
            self._demand = self._demand or event.report.wants > wanted_before
            self._stir(now)  # a late answer, or new demand

    def _bid(self, event: ev.BidReceived, now: float) -> None:
        name = event.table.app
        self.state.app(name)
        current = self.round
        if current is None or current.phase is not Phase.BIDDING or current.id != event.round_id:
            raise ProtocolError(
                f"app {name!r} bid in round {event.round_id}, which is over; answer offers sooner"
            )
        if name not in current.asked:
            raise BidError(f"app {name!r} was not made an offer in round {event.round_id}")
        check_against_offer(event.table, current.pool)
        current.bids[name] = event.table
        current.waiting.discard(name)

    def _group_event(self, event: ev.Event, now: float) -> None:
        if GROUP_EVENTS[type(event)](self.state, event, now):
            self._stir(now)

    def _tick(self, event: ev.Tick, now: float) -> None:
        """Nothing but time has changed; :meth:`_advance` does the work."""

    # -- what follows from any event --------------------------------------------------------

    def _stir(self, now: float) -> None:
        """Supply or demand has changed: a round may be worth while."""
        if self._dirty_s is None or self._dirty_s > now:
            self._dirty_s = now

    def _advance(self, now: float) -> None:
        state = self.state
        while True:
            for name, lease_id in state.due(now):
                self._seen = None
                self._time_has_come(name, lease_id, now)
            state.settle(now)
            state.start_waiting()
            if not self._step_round(now) and not state.has_due(now):
                state.drop_stale()
                return

    def _time_has_come(self, name: str, lease_id: str, now: float) -> None:
        app = self.state.apps.get(name)
        if app is None:
            return
        if not lease_id:
            self.state.force(app, now)
            return
        lease = app.leases.get(lease_id)
        if lease is None or lease.expires_s > now:
            return
        # One whose GPUs its last holder has not left by its end is over; no round decides on it.
        if lease.held and not lease.final and now >= self._not_before_s:
            # The round under way, or else the next, decides on it, and ends it if it is lost.
            self.state.at(self.round.deadline_s if self.round else now, name, lease_id)
            return
        self.state.end_lease(lease, now, self.config.grace_s)
        self._stir(now)

    def _step_round(self, now: float) -> bool:
        """Take the round one step on; False when it has to wait."""
        if self.round is None:
            return self._open(now)
        if self.round.waiting and now < self.round.deadline_s:
            return False
        calm, leases = self.round.calm, self.round.leases
        bids_due = self.round.phase is Phase.REPORTING and self.policy.wants_bids
        if bids_due and not (calm and nothing_else(self.state, leases, calm)):
            return self._offer(now)
        self._close(now)
        return True

    def _open(self, now: float) -> bool:
        """Start a round if GPUs can be given out and somebody wants them."""
        state, config = self.state, self.config
        if now < self._not_before_s:
            return False
        soon = rounds.renewable(state, now, config.notice_s)
        settled = self._dirty_s is not None and self._dirty_s + config.round_delay_s <= now
        if not soon and not settled:
            return False
        demand = settled and self._demand
        if settled:
            self._dirty_s, self._demand = None, False
        # Apps that have all of the cluster that they know of may want more of one that has grown.
        news = self._ask_all and bool(state.apps)
        why = Occasion(soon, settled, demand, news, bool(self._memory))
        found = opening(state, self.policy, config, why, now)
        if found is None:
            return False
        self._ask(found, now)
        return True

    def _ask(self, found: Opening, now: float) -> None:
        """Begin a round with the reports of those for whom something is at stake."""
        everybody = self._ask_all or found.may_recall
        self._ask_all = False
        self.rounds += 1
        self._seen = None
        self.round = Round(
            self.rounds,
            Phase.REPORTING,
            found.pool,
            found.leases,
            set(),
            now + self.config.report_timeout_s,
            calm=found.calm or {},
            apart=found.calm is not None and self.policy.spares,
            may_recall=found.may_recall,
        )
        begin(self.state, self.round, now, everybody=everybody)

    def _widen(self, now: float) -> None:
        """GPUs are scarcer than they seemed: put up the leases that were set apart, too."""
        assert self.round is not None
        self.round.deadline_s = now + self.config.report_timeout_s
        self._seen = None
        widen(self.state, self.round, now)

    def _offer(self, now: float) -> bool:
        current, state = self.round, self.state
        assert current is not None
        view = self._view(now)
        if self._scarce(view):
            self._widen(now)
            return True
        self.round = None  # as long as the policy, which may raise, is asked
        if current.may_recall:
            recalls = self.policy.recall(view)
            put_up_early(state, current, recalls, now, self.config)
            if not current.pool:
                return True  # all wait for leases to end
            if recalls:
                self._seen = None
                view = self._view_of(current, now)
        current.pool = view.pool
        current.asked = self.policy.bidders(view) if view.pool else ()
        self.round = current
        current.phase = Phase.BIDDING
        current.waiting = set(current.asked)
        current.deadline_s = now + self.config.bid_timeout_s
        send_offers(state, current, view)
        return True

    def _scarce(self, view: RoundView) -> bool:
        """Whether leases were set apart that the policy has to decide on after all."""
        current = self.round
        assert current is not None
        return (bool(current.calm) or current.apart) and not (
            self.policy.spares and enough(self.state, view, current.calm)
        )

    def _view(self, now: float) -> RoundView:
        assert self.round is not None
        return self._view_of(self.round, now)

    def _view_of(self, current: Round, now: float) -> RoundView:
        if self._seen is None:
            # GPUs that came free in the meantime wait for the next round; those that were lost
            # since are not given out.
            pool = current.pool & rounds.put_up(self.state, current.leases)
            self._seen = rounds.view_of(
                self.state, current.leases, pool, current, now, self.config.lease_s, self._memory
            )
        return self._seen

    def _close(self, now: float) -> None:
        current = self.round
        assert current is not None
        if current.calm and nothing_else(self.state, current.leases, current.calm):
            self.round = None
            self._decided(current, Outcome(), now)
            return
        view = self._view(now)
        if self._scarce(view):
            self._widen(now)
            return
        self.round = None  # first, so that a policy that raises does not hold all others up
        bids = {name: within(table, view.pool) for name, table in current.bids.items()}
        outcome = self.policy.allocate(view, bids)
        if current.calm and not all_served(view, outcome):
            self.round = current
            self._widen(now)
            return
        rounds.check(outcome, view.pool)
        self._memory = outcome.memory
        self._decided(current, outcome, now)
        silent = bool(current.waiting) or not all(a.answered for a in view.apps.values())
        if silent and self._dirty_s is None and rounds.left_idle(outcome, view.pool):
            # GPUs stayed idle and somebody did not answer: ask again a little later.
            self._dirty_s = now + self.config.bid_timeout_s

    def _decided(self, current: Round, outcome: Outcome, now: float) -> None:
        """Carry out what the policy decided on, and renew the leases that were set apart."""
        leases = current.leases
        again = due_again(self.state, self.policy, current.calm, now, self.config.lease_s)
        if again:
            outcome = with_renewals(self.state, outcome, again.values())
            leases = {**leases, **again}
        if current.recalled:
            outcome = with_reasons(outcome, current)
        rounds.apply(
            self.state,
            outcome,
            leases,
            now,
            self.config,
            preempts=self.policy.preempts,
            recalled=current.recalled,
        )
        self.state.commands.append(Decided(current.id, dict(outcome.reasons)))

    # -- reading --------------------------------------------------------------------------

    def reason(self, name: str) -> Reason:
        """Why an app has what it has.

        Raises:
            UnknownAppError: No such app is or was here.
        """
        gone = self.state.departed.get(name)
        return gone if gone is not None else self.state.app(name).reason


# The transition table. In every phase: reports, group events and returns change the books only.
# IDLE      -- GPUs free or leases within notice, and somebody wants them --> REPORTING
# REPORTING -- all reported, or report_timeout_s over --> BIDDING (or decided, without an auction)
# BIDDING   -- all bids in, or bid_timeout_s over --> decided --> IDLE
TRANSITIONS: Mapping[type[Any], Callable[[Arbiter, Any, float], None]] = {
    ev.ClusterChanged: Arbiter._cluster_changed,
    ev.AppJoined: Arbiter._joined,
    ev.AppLeft: Arbiter._left,
    ev.Reported: Arbiter._reported,
    ev.BidReceived: Arbiter._bid,
    **dict.fromkeys(GROUP_EVENTS, Arbiter._group_event),
    ev.Tick: Arbiter._tick,
}
