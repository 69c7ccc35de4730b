"""What a journal tells of a live cluster: its apps, their jobs, who had which GPUs, the machines.

All of this comes from the events alone, so it can be read whatever version of the policy wrote it.
Times are seconds since 1970, since an arbiter that was restarted on another node has another clock.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from themis_ray.core import events as ev
from themis_ray.core.cluster import Allocation, Machine
from themis_ray.core.journal import Header, Line


@dataclass(slots=True)
class GroupStay:
    """A placement group in the time in which it existed.

    Attributes:
        group: Its name.
        gpus: Its GPUs.
        begin_s: When it was ready.
        end_s: When its workers were gone; None while they are not.
    """

    group: str
    gpus: Allocation
    begin_s: float
    end_s: float | None = None

    def overlap_s(self, begin_s: float, end_s: float) -> float:
        """For how long it existed within some span of time."""
        end = math.inf if self.end_s is None else self.end_s
        return max(0.0, min(end, end_s) - max(self.begin_s, begin_s))


@dataclass(slots=True)
class LiveJob:
    """A job (trial) as its app told of it.

    Attributes:
        last: The last report of it.
        told_s: When that was.
        gone_s: When the app first did not tell of it any more: it had ended since ``told_s``.
    """

    last: ev.JobReport
    told_s: float
    gone_s: float | None = None


@dataclass(slots=True)
class LiveApp:
    """An app, from its joining to its leaving.

    Attributes:
        id: Its name; a later app of the same name has ``#2`` and so on after it.
        name: Its name.
        weight: Its share relative to the others.
        joined_s: When it joined.
        seen_s: When it was last heard of.
        left_s: When it left; None when it was still there at the end.
        why: Why it left.
        r: The last finite r that it reported, by its own T_id; None when it never did.
        jobs: Its jobs, by id.
        stays: Its placement groups, in the order in which they were ready.
    """

    id: str
    name: str
    weight: float
    joined_s: float
    seen_s: float
    left_s: float | None = None
    why: str = ""
    r: float | None = None
    jobs: dict[str, LiveJob] = field(default_factory=dict)
    stays: list[GroupStay] = field(default_factory=list)

    def stays_of(self, job: str) -> list[GroupStay]:
        """A job's placement groups: those named ``app/job/...``, as ThemisScheduler's are."""
        return [stay for stay in self.stays if stay.group.startswith(f"{self.name}/{job}/")]

    @property
    def end_s(self) -> float:
        """When it left, or was last heard of."""
        return self.seen_s if self.left_s is None else self.left_s


@dataclass(slots=True)
class History:
    """Built from a journal, line by line; see :meth:`take`.

    Attributes:
        apps: All apps that joined, in that order.
        machines: The machines from each time on.
        headers: One for each run of the arbiter.
        rounds: Rounds that were decided.
        end_s: The time of the last event.
    """

    apps: list[LiveApp] = field(default_factory=list)
    machines: list[tuple[float, tuple[Machine, ...]]] = field(default_factory=list)
    headers: list[Header] = field(default_factory=list)
    rounds: int = 0
    end_s: float = 0.0
    _present: dict[str, LiveApp] = field(default_factory=dict)
    _names: Counter[str] = field(default_factory=Counter)
    # Groups asked for, and those that exist, by name.
    _asked: dict[str, tuple[LiveApp, Allocation]] = field(default_factory=dict)
    _stays: dict[str, GroupStay] = field(default_factory=dict)
    # What an arbiter that is gone knew, until the next one has heard of it.
    _unclaimed: dict[str, GroupStay] = field(default_factory=dict)

    @property
    def begin_s(self) -> float:
        """When the first app joined."""
        return min((app.joined_s for app in self.apps), default=self.end_s)

    def take(self, place: str, line: Line) -> None:
        """Take in the next line of a journal."""
        if isinstance(line, Header):
            self._begin(line)
            return
        if not self.headers or line.error:
            return
        now = line.now_s + self.headers[-1].offset_s
        self.end_s = max(self.end_s, now)
        self.rounds += sum(document["kind"] == "Decided" for document in line.said)
        self._event(line.event, now)

    def finish(self) -> History:
        """No line follows: what is still open lasts until it was last heard of."""
        self._drop_unclaimed()
        for app in self._present.values():
            if app.left_s is None:
                app.seen_s = max(app.seen_s, self.end_s)
        for stay in self._stays.values():
            stay.end_s = self.end_s
        self._stays.clear()
        return self

    def _begin(self, header: Header) -> None:
        self.headers.append(header)
        if header.machines:
            self.machines.append((header.wall_s, header.machines))
        self._drop_unclaimed()
        self._unclaimed, self._stays = self._stays, {}
        self._asked.clear()

    def _drop_unclaimed(self) -> None:
        for app in self.apps:
            for stay in app.stays:
                if stay.group in self._unclaimed and stay.end_s is None:
                    stay.end_s = max(app.seen_s, stay.begin_s)
        self._unclaimed = {}

    def _event(self, event: ev.Event, now: float) -> None:
        match event:
            case ev.ClusterChanged(machines=machines):
                self.machines.append((now, machines))
            case ev.AppJoined():
                self._joined(event, now)
            case ev.Reported(app=name, report=report):
                self._reported(name, report, now)
            case ev.AppLeft(app=name, why=why):
                self._left(name, why, now)
            case ev.GroupRequested(app=name, group=group, allocation=gpus):
                if name in self._present:
                    self._asked[group] = (self._present[name], gpus)
            case ev.GroupReady(group=group):
                if group in self._asked:
                    self._exists(*self._asked.pop(group), group, now)
            case ev.GroupGone(group=group) | ev.GroupFailed(group=group):
                self._asked.pop(group, None)
                stay = self._stays.pop(group, None)
                if stay is not None:
                    stay.end_s = now

    def _joined(self, event: ev.AppJoined, now: float) -> None:
        app = self._present.get(event.app)
        if app is None:
            app = self._new_app(event.app, now)
        app.weight = event.weight
        for held in event.groups:
            claimed = self._unclaimed.pop(held.id, None)
            if claimed is not None:
                self._stays[held.id] = claimed
            elif held.id not in self._stays:
                self._exists(app, held.allocation, held.id, now)
        self._take_report(app, event.report, now)

    def _new_app(self, name: str, now: float) -> LiveApp:
        self._names[name] += 1
        count = self._names[name]
        app = LiveApp(name if count == 1 else f"{name}#{count}", name, 1.0, now, now)
        self.apps.append(app)
        self._present[name] = app
        return app

    def _reported(self, name: str, report: ev.AppReport, now: float) -> None:
        app = self._present.get(name)
        if app is None:  # the beginning of the journal is gone
            app = self._new_app(name, now)
            app.joined_s = now - (report.elapsed_s or 0.0)
        self._take_report(app, report, now)

    def _take_report(self, app: LiveApp, report: ev.AppReport, now: float) -> None:
        app.seen_s = now
        if math.isfinite(report.r):
            app.r = report.r
        told = {job.id for job in report.jobs}
        for job_id, job in app.jobs.items():
            if job_id not in told and job.gone_s is None:
                job.gone_s = now
        for job_report in report.jobs:
            app.jobs[job_report.id] = LiveJob(job_report, now)

    def _left(self, name: str, why: str, now: float) -> None:
        app = self._present.pop(name, None)
        if app is None:
            return
        app.left_s, app.why = now, why
        for job in app.jobs.values():
            if job.gone_s is None:
                job.gone_s = now

    def _exists(self, app: LiveApp, gpus: Allocation, group: str, now: float) -> None:
        stay = GroupStay(group, gpus, now)
        self._stays[group] = stay
        app.stays.append(stay)


def spans(stays: list[GroupStay]) -> Iterator[tuple[float, float]]:
    """The times in which there was at least one of some groups, without overlaps."""
    closed = sorted((s.begin_s, s.begin_s if s.end_s is None else s.end_s) for s in stays)
    open_span: tuple[float, float] | None = None
    for begin, end in closed:
        if open_span is not None and begin <= open_span[1]:
            open_span = (open_span[0], max(open_span[1], end))
        else:
            if open_span is not None:
                yield open_span
            open_span = (begin, end)
    if open_span is not None:
        yield open_span
