"""The virtual driver of the arbiter: the same core and the same policies as live, on virtual time.

The live driver feeds :class:`~themis_ray.core.arbiter.Arbiter` from Ray and gRPC; this one feeds
it from a trace. What the arbiter does with an event is decided in the core alone.

Placement groups come and go at once, and apps answer at once; what moving a job costs is charged
to the job (:class:`~themis_ray.sim.cluster_file.MoveCost`). All that happens at one instant is
told to the arbiter before it may hold a round, so simultaneous arrivals meet in one round; and
after a round, the next one is not held at once (live, answers take time, too).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator

from themis_ray.core import events as ev
from themis_ray.core.arbiter import Arbiter
from themis_ray.core.commands import (
    Command,
    CreateGroup,
    Decided,
    GroupRefused,
    LeasesChanged,
    RemoveGroup,
    RequestReport,
    SendOffer,
)
from themis_ray.core.policies import Policy
from themis_ray.errors import InvalidInputError, ThemisError
from themis_ray.sim.app import SimApp
from themis_ray.sim.cluster_file import SimCluster
from themis_ray.sim.engine import Engine
from themis_ray.sim.jobrun import JobRun
from themis_ray.sim.jobs import Trace, TraceApp
from themis_ray.sim.records import AppRecord, RunResult, Stay
from themis_ray.sim.settings import Failure, SimConfig
from themis_ray.sim.watch import Watch

Observer = Callable[[Arbiter], None]


class Simulation:
    """One trace under one policy.

    Args:
        sim: The cluster.
        trace: The workload.
        policy: Decides who gets what.
        config: Assumptions.
        observe: Called with the arbiter after every event, for checks.
        ended: Called with the number of apps that have finished, when one does.

    Raises:
        InvalidInputError: A job needs more GPUs at once than there are.
    """

    def __init__(
        self,
        sim: SimCluster,
        trace: Trace,
        policy: Policy,
        config: SimConfig | None = None,
        observe: Observer | None = None,
        ended: Callable[[int], None] | None = None,
    ) -> None:
        self.sim = sim
        self.cluster = sim.cluster
        self.trace = trace
        self.config = config or SimConfig()
        self.engine = Engine()
        self.arbiter = Arbiter(policy, self.config.arbiter)
        self.slot_gpus = max(machine.gpus_per_slot for machine in sim.cluster.machines)
        self.result = RunResult(policy.name, sim.cluster.gpus)
        self._observe = observe
        self._ended = ended
        self._apps: dict[str, SimApp] = {}
        self._queue: deque[ev.Event] = deque()
        self._arrivals: Iterator[TraceApp] = iter(trace.apps)
        self._down: set[str] = set()
        self._open_s = -math.inf
        self._due_s = -math.inf
        self._watch = Watch(self.config.arbiter)
        _check_fits(sim, trace)
        _check_failures(sim, self.config.failures)

    # -- running --------------------------------------------------------------------------

    def run(self) -> RunResult:
        """Run until every app has finished.

        Raises:
            ThemisError: Apps are left, and nothing more will happen.
        """
        self.send(ev.ClusterChanged(self.cluster.machines))
        self._next_arrival()
        for failure in self.config.failures:
            self.engine.at(failure.time_s, self._fail, failure)
        while len(self.result.apps) < len(self.trace.apps):
            now = self._next_time()
            if now == math.inf:
                raise ThemisError(self._stuck())
            if self._watch.too_long(now):
                self._look_for_work()
            self._step(now)
        self.result.rounds = self.arbiter.rounds
        return self.result

    def _next_time(self) -> float:
        wakeup_s = self.arbiter.wakeup_s()
        tick_s = math.inf if wakeup_s is None else max(self.engine.now, wakeup_s)
        if self._due_s > self.engine.now:
            tick_s = min(tick_s, self._due_s)
        return min(tick_s, self.engine.next_s())

    def _step(self, now: float) -> None:
        """All that happens at one instant; then, at the next instant there is, the round."""
        engine = self.engine
        wakeup_s = self.arbiter.wakeup_s()
        due = (wakeup_s is not None and wakeup_s <= now) or now == self._due_s
        if now != self._open_s:
            self._hold_until(max(math.nextafter(now, math.inf), self._open_s))
            if due:  # a timer of the arbiter: the leases near their end want a round
                self._due_s = self._open_s
        engine.run_due(now)
        if due:
            self.send(ev.Tick())
        self._drain(now)

    def _hold_until(self, time_s: float) -> None:
        self._open_s = time_s
        self.arbiter.hold_rounds_until(time_s)

    def _drain(self, now: float) -> None:
        queue, arbiter, observe = self._queue, self.arbiter, self._observe
        most = self._watch.most_events(len(self._apps))
        while queue:
            event = queue.popleft()
            commands = arbiter.handle(event, now)
            self.result.events += 1
            if self.result.events > most:
                self._look_for_work()
                most = self._watch.most_events(len(self._apps))
            if type(event) is ev.GroupReady:
                self._created(event.group, now)
            for command in commands:
                self._carry_out(command, now)
            if type(event) is ev.GroupGone:
                self._gone(event.group, now)
            if observe is not None:
                observe(arbiter)

    def _carry_out(self, command: Command, now: float) -> None:
        if isinstance(command, Decided):
            self._hold_until(now + self.config.round_gap_s)
            return
        app = self._apps.get(command.app)
        match command:
            case RequestReport():
                if app is not None:
                    self._queue.append(app.report(command, now))
            case SendOffer():
                if app is not None:
                    self._queue.append(app.bid(command, now))
            case LeasesChanged():
                if app is not None:
                    app.leases_changed(command, now)
            case GroupRefused():
                if app is not None:
                    app.refused(command, now)
            case CreateGroup():
                self._queue.append(ev.GroupReady(command.group))
            case RemoveGroup():
                if app is not None:
                    app.group_removed(command.group, now)
                self._queue.append(ev.GroupGone(command.group))

    def _app_of(self, group: str) -> SimApp | None:
        return self._apps.get(group.rpartition("/")[0])

    def _created(self, group: str, now: float) -> None:
        app = self._app_of(group)
        if app is not None:
            app.group_created(group, now)

    def _gone(self, group: str, now: float) -> None:
        app = self._app_of(group)
        if app is not None:
            app.group_gone(group, now)

    # -- what happens in the cluster --------------------------------------------------------

    def _next_arrival(self) -> None:
        spec = next(self._arrivals, None)
        if spec is not None:
            self.engine.at(spec.arrival_s, self._arrive, spec)

    def _arrive(self, spec: TraceApp) -> None:
        now = self.engine.now
        app = SimApp(spec, self, self.cluster.gpus, now)
        if not self._apps:
            self._watch.begins(now)
        self._apps[spec.id] = app
        self.send(app.join(now))
        self._next_arrival()

    def _fail(self, failure: Failure) -> None:
        if failure.up:
            self._down.discard(failure.machine)
        else:
            self._down.add(failure.machine)
        left = tuple(m for m in self.cluster.machines if m.id not in self._down)
        self.send(ev.ClusterChanged(left))

    # -- the apps' side -------------------------------------------------------------------

    def send(self, event: ev.Event) -> None:
        """Tell the arbiter something, once what happens now has been dealt with."""
        self._queue.append(event)

    def used(self, app: SimApp, job: JobRun, now: float) -> None:
        """A job leaves its GPUs."""
        if self.config.record:
            self.result.stays.append(
                Stay(app.id, job.spec.id, job.allocation, job.created_s, now, job.s)
            )

    def finished(self, app: SimApp, now: float) -> None:
        """An app is done."""
        del self._apps[app.id]
        self._watch.ended(app, now)
        given = app.tally
        self.result.apps.append(
            AppRecord(
                id=app.id,
                arrival_s=app.joined_s,
                finish_s=now,
                queued_s=given.queued_s,
                gpu_s=given.gpu_s,
                score_gpu_s=given.score_gpu_s,
                preemptions=given.preemptions,
                restarts=given.restarts,
            )
        )
        if self._ended is not None:
            self._ended(len(self.result.apps))

    # -- deadlocks ------------------------------------------------------------------------

    def _look_for_work(self) -> None:
        """See whether jobs get on, or only change places (or not even that).

        Raises:
            ThemisError: Apps are there, and nothing has been done for long.
        """
        if not self._watch.gets_on(self._apps.values(), self.engine.now, self.result.events):
            raise ThemisError(self._stuck())

    def _stuck(self) -> str:
        names = sorted(self._apps)
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        why = self.arbiter.reason(names[0]) if names else "none is there"
        return (
            f"{self.arbiter.policy.name}: at {self.engine.now:.0f} s no job gets on any more, and "
            f"{len(names)} apps wait ({shown}); {names[0] if names else 'no app'}: {why}"
            f"{self._watch.remark(self._apps.values())}"
        )


def _check_fits(sim: SimCluster, trace: Trace) -> None:
    for app in trace.apps:
        for job in app.jobs:
            if job.min_gpus > sim.cluster.gpus:
                raise InvalidInputError(
                    f"{trace.name}: job {job.id!r} of app {app.id!r} needs {job.min_gpus} GPUs at "
                    f"once, and the cluster {sim.name} has {sim.cluster.gpus}; use a larger "
                    "cluster, or leave the app out"
                )


def _check_failures(sim: SimCluster, failures: tuple[Failure, ...]) -> None:
    for failure in failures:
        if failure.machine not in sim.cluster.by_id:
            raise InvalidInputError(
                f"a failure names the machine {failure.machine!r}; the cluster {sim.name} has "
                f"{', '.join(list(sim.cluster.by_id)[:5])} and so on"
            )
