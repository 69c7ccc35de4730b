"""What must be true of an arbiter between any two events."""

from __future__ import annotations

from collections.abc import Iterable

from themis_ray.core.arbiter import Arbiter
from themis_ray.core.cluster import NOTHING, Allocation
from themis_ray.core.explain import Reason
from themis_ray.core.leases import GROUP_TRANSITIONS, GroupState
from themis_ray.core.restless import is_calm
from themis_ray.core.state import App, State

LIVING = frozenset(state for state, _ in GROUP_TRANSITIONS)


def check_arbiter(arbiter: Arbiter) -> None:
    """Check an arbiter's books against one another and against what they mean.

    Call it after every event. It recomputes all sums from the leases and groups themselves, so it
    is slow, and finds a wrong sum at the event that made it wrong.

    Raises:
        AssertionError: An invariant does not hold; the message says which.
    """
    state = arbiter.state
    _check_index(state)
    _check_sums(state)
    _check_capacity(state)
    _check_pending(state)
    for app in state.apps.values():
        _check_groups_of(state, app)
        assert isinstance(app.reason, Reason), f"app {app.id} has no reason"
        assert str(app.reason), f"the reason of app {app.id} says nothing"
    _check_round(arbiter)
    _check_wakeup(arbiter)
    assert not state.commands, f"commands were not handed out: {state.commands}"
    assert not state.changed, f"apps were not told of changes: {state.changed}"


def snapshot(arbiter: Arbiter) -> str:
    """All that an arbiter remembers, as text: equal before and after what changes nothing."""
    own = {name: value for name, value in vars(arbiter).items() if name != "policy"}
    return repr(sorted(own.items()))


def sum_up(allocations: Iterable[Allocation]) -> Allocation:
    """All GPUs of some allocations together."""
    total = NOTHING
    for allocation in allocations:
        total = total + allocation
    return total


def _check_index(state: State) -> None:
    """The same things are found by every way that leads to them."""
    assert state.contention.apps == len(state.apps)
    assert not state.apps.keys() & state.departed.keys(), "an app is both here and gone"
    seen: set[str] = set()
    for name, app in state.apps.items():
        assert name == app.id
        for key, lease in app.leases.items():
            assert (key, name) == (lease.id, lease.app)
            assert key not in seen, f"lease {key} is listed twice"
            seen.add(key)
            assert lease.held or lease.pending, f"lease {key} is empty"
        for key, group in app.groups.items():
            assert state.groups.get(key) is group, f"group {key} is known to its app only"
            assert group.app == name
    for key, group in state.groups.items():
        assert key == group.id
        assert group.allocation, f"group {key} has no GPU"
        assert group.state in LIVING, f"group {key} is {group.state.value}, yet in the books"
        owner = state.apps.get(group.app)
        if owner is None:
            assert group.state is GroupState.ENDING, f"group {key} has outlived its app"
        else:
            assert owner.groups.get(key) is group, f"the app of group {key} does not know it"
    restless = {name for name, app in state.apps.items() if not is_calm(app)}
    assert set(state.restless.apps) == restless, f"restless are {restless}"
    calm = {key for app in state.apps.values() if is_calm(app) for key in app.leases}
    assert set(state.restless.calm) == calm, f"calm are {calm}"
    waiting = {k for k, g in state.groups.items() if g.state is GroupState.WAITING}
    assert set(state.waiting) == waiting


def _check_sums(state: State) -> None:
    """The ledger is what leases and groups add up to."""
    ledger = state.ledger
    assert ledger.capacity == {m.id: m.gpus for m in state.cluster.machines}
    names = set(state.apps) | {g.app for g in state.groups.values()}
    used = NOTHING
    for name in names:
        app = state.apps.get(name)
        entitled = sum_up(lease.held for lease in app.leases.values()) if app else NOTHING
        physical = sum_up(
            g.allocation for g in state.groups.values() if g.app == name and g.occupies
        )
        assert ledger.entitled(name) == entitled, f"{name} may use {entitled}"
        assert ledger.physical(name) == physical, f"groups of {name} occupy {physical}"
        used = used + entitled + physical.minus(entitled)
    for machine in {*ledger.capacity, *used}:
        free = ledger.capacity.get(machine, 0) - used.on(machine)
        assert ledger.free_on(machine) == free, f"{free} GPUs are free on {machine}"


def _check_capacity(state: State) -> None:
    """No GPU is in two leases, nor promised twice."""
    leases = [lease for app in state.apps.values() for lease in app.leases.values()]
    held = sum_up(lease.held for lease in leases)
    assert held <= state.cluster.capacity, f"{held} are leased of {state.cluster.capacity}"
    promised = sum_up(
        lease.pending if lease.final else lease.held + lease.pending for lease in leases
    )
    assert promised <= state.cluster.capacity, f"{promised} are promised to stay or to come"


def _check_pending(state: State) -> None:
    """Whoever waits for GPUs waits only for such as are not free."""
    waiting = {
        lease.id: lease
        for app in state.apps.values()
        for lease in app.leases.values()
        if lease.pending
    }
    assert state.pending == waiting
    for lease in waiting.values():
        for machine in lease.pending:
            assert state.ledger.free_on(machine) <= 0, f"{lease.id} waits for free GPUs"


def _check_groups_of(state: State, app: App) -> None:
    """An app's groups lie within its leases, or are on their way out."""
    entitled = state.ledger.entitled(app.id)
    for group in app.groups.values():
        if group.state is GroupState.WAITING:
            assert group.allocation <= entitled, f"group {group.id} waits for what is not leased"
            assert not group.allocation <= state.ledger.idle(app.id), f"{group.id} waits needlessly"
    ending = sum_up(g.allocation for g in app.groups.values() if g.state is GroupState.ENDING)
    if state.ledger.excess(app.id).minus(ending):
        assert app.force_s is not None, f"{app.id} is on more than its leases, for ever"


def _check_round(arbiter: Arbiter) -> None:
    current, state = arbiter.round, arbiter.state
    if current is None:
        return
    assert current.waiting <= set(state.apps), "a round waits for an app that has left"
    assert set(current.bids) <= set(state.apps) & set(current.asked)
    assert current.answered <= set(state.apps)
    for lease in current.leases.values():
        assert lease.app in state.apps, f"lease {lease.id} of a round has no holder"


def _check_wakeup(arbiter: Arbiter) -> None:
    """Nothing comes due with nobody to notice."""
    state, wakeup_s = arbiter.state, arbiter.wakeup_s()
    due: dict[str, float] = {}
    for app in state.apps.values():
        if app.force_s is not None:
            due[f"overdue groups of {app.id}"] = app.force_s
        for lease in app.leases.values():
            in_round = arbiter.round is not None and not lease.final
            due[lease.id] = lease.expires_s
            if in_round and arbiter.round is not None:
                due[lease.id] = max(lease.expires_s, arbiter.round.deadline_s)
    if arbiter.round is not None:
        due["the round"] = arbiter.round.deadline_s
    for what, time_s in due.items():
        assert wakeup_s is not None, f"{what} comes due at {time_s}, and nobody wakes up"
        assert wakeup_s <= time_s, f"{what} comes due at {time_s}, but the next look is {wakeup_s}"
