"""A simulator's trace of what a live cluster was asked to do, and what the cluster did with it.

What is known at the end is taken: the iterations that a job has really run (so early stopping is in
the trace, and every app's tuner is ``single``), its iteration time as last measured, S(G) as the
apps last reckoned, and what a start costs as the placement groups tell (or, where they do not, as
the apps reckoned). Three things a trace cannot say: that an app creates its jobs one by one (they
all arrive with it), that it runs only so many at once, and why a job was stopped (under another
policy, results would have come in another order).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from themis_ray.core.cluster import Cluster, Level, Machine
from themis_ray.core.slowdown import PRIORS
from themis_ray.errors import JournalError
from themis_ray.sim.cluster_file import MoveCost, Profile, SimCluster
from themis_ray.sim.jobs import Trace, TraceApp, TraceJob
from themis_ray.sim.replay_history import History, LiveApp, LiveJob
from themis_ray.sim.settings import Failure
from themis_ray.sim.study import move_cost


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recorded workload, ready to be simulated.

    Attributes:
        trace: The apps; time 0 is when the first one joined.
        cluster: All machines that were ever there.
        failures: When machines were not there.
        apps: The live apps of the trace, by id.
        notes: What was left out or is not known.
    """

    trace: Trace
    cluster: SimCluster
    failures: tuple[Failure, ...]
    apps: Mapping[str, LiveApp]
    notes: tuple[str, ...] = ()


def recorded_workload(history: History, name: str) -> Recorded:
    """The workload and the cluster of a journal.

    Args:
        history: What the journal tells.
        name: The journal's name, for titles and messages.

    Raises:
        JournalError: No app has run a job in it, or there was no GPU.
    """
    machines = _all_machines(history)
    if not any(machine.gpus for machine in machines):
        raise JournalError(f"{name}: no machine with a GPU was ever there; nothing can be replayed")
    models = _Models()
    apps, notes, idle_jobs = {}, [], 0
    for live in history.apps:
        jobs = [_trace_job(live, job, models) for job in live.jobs.values()]
        idle_jobs += jobs.count(None)
        kept = tuple(job for job in jobs if job is not None)
        arrival_s = live.joined_s - history.begin_s
        if kept:
            apps[live.id] = TraceApp(live.id, arrival_s, "single", kept, live.weight)
        else:
            notes.append(f"app {live.id} is left out: none of its jobs has run")
    if not apps:
        raise JournalError(f"{name}: no app has run a job in it; nothing can be replayed")
    if idle_jobs:
        notes.append(f"{idle_jobs} jobs that never ran are left out")
    unfinished = [app.id for app in history.apps if app.left_s is None and app.id in apps]
    if unfinished:
        notes.append(
            f"still running at the end: {', '.join(unfinished)}; their jobs have the iterations "
            "that they were expected to run"
        )
    return Recorded(
        Trace.of(name, apps),
        SimCluster(name, Cluster(machines), models.profiles()),
        _failures(history, machines),
        {app.id: app for app in history.apps if app.id in apps},
        tuple(notes),
    )


def cluster_yaml(sim: SimCluster) -> str:
    """A cluster in the form that :func:`~themis_ray.sim.cluster_file.load_cluster` reads.

    Machines that are alike and next to each other share an entry; their names are not kept.
    """
    entries: list[dict[str, Any]] = []
    for machine in sim.cluster.machines:
        entry = {"gpus": machine.gpus, "slots": machine.slots, "rack": machine.rack}
        if entries and all(entries[-1][key] == value for key, value in entry.items()):
            entries[-1]["count"] += 1
        else:
            entries.append({"count": 1, **entry})
    models: dict[str, dict[str, float]] = {}
    for name, profile in sim.profiles.items():
        models[name] = {level.name.lower(): s for level, s in profile.by_level.items()}
        if profile.move is not None:
            models[name]["checkpoint_s"] = profile.move.checkpoint_s
            models[name]["start_s"] = profile.move.start_s
        if profile.skew is not None:
            models[name]["skew"] = profile.skew
    document = {"name": sim.name, "machines": entries, "models": models}
    return yaml.safe_dump(document, sort_keys=False)


# -- jobs -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Models:
    """What was measured of each model: the newest figures count."""

    slowdown: dict[str, tuple[float, tuple[float, ...]]] = field(default_factory=dict)
    restart: dict[str, tuple[float, float]] = field(default_factory=dict)
    # Seconds in which placement groups made no progress, and how many groups, as they tell.
    dead_s: dict[str, tuple[float, int]] = field(default_factory=dict)
    skew: dict[str, float] = field(default_factory=dict)

    def learn(self, key: str, job: LiveJob) -> None:
        """Take in a job's last report."""
        report = job.last
        if job.told_s >= self.restart.get(key, (-math.inf, 0.0))[0]:
            self.restart[key] = (job.told_s, report.restart_s)
            if len(report.slowdown) == len(Level):
                self.slowdown[key] = (job.told_s, report.slowdown)
            if report.skew is not None:
                self.skew[key] = report.skew

    def profiles(self) -> dict[str, Profile]:
        """Placement profiles by model."""
        return {
            key: Profile(self.levels(key), self.move(key), self.skew.get(key))
            for key in self.restart
        }

    def move(self, key: str) -> MoveCost:
        """What a start costs: as the groups tell, or else as the apps reckoned."""
        dead_s, groups = self.dead_s.get(key, (0.0, 0))
        if groups:
            return MoveCost(0.0, dead_s / groups)
        return move_cost(self.restart[key][1])

    def levels(self, key: str) -> dict[Level, float]:
        """S(G) of a model; the priors when it is not known."""
        if key not in self.slowdown:
            return dict(PRIORS)
        return dict(zip(Level, self.slowdown[key][1], strict=True))


def model_key(app: LiveApp, job: LiveJob) -> str:
    """The model's name, or, where none was given, the app's: its trials are much alike."""
    return (job.last.model or app.id).lower()


def _trace_job(app: LiveApp, job: LiveJob, models: _Models) -> TraceJob | None:
    """A job of the trace; None when it has not run."""
    report = job.last
    iterations = iterations_run(app, job)
    if not (0 < iterations < math.inf and 0 < report.serial_iter_s < math.inf):
        return None
    key = model_key(app, job)
    models.learn(key, job)
    if job.gone_s is not None and report.max_gpus == 1:
        before_s, groups = models.dead_s.get(key, (0.0, 0))
        own = len(app.stays_of(report.id))
        models.dead_s[key] = (before_s + dead_time_s(app, job, iterations), groups + own)
    return TraceJob(
        id=report.id,
        model=key,
        max_gpus=report.max_gpus,
        iterations=iterations,
        serial_iter_s=report.serial_iter_s,
        min_gpus=report.min_gpus,
    )


def iterations_run(app: LiveApp, job: LiveJob) -> float:
    """Iterations that a job has run in all; those it was expected to run, if it still runs.

    Its last report may be from before its end: since then it has run no more iterations than it
    had left, and no more than there was time for.
    """
    report = job.last
    left = report.iterations_left
    if job.gone_s is None:
        return report.iterations_done + (left if math.isfinite(left) else 0.0)
    if not report.serial_iter_s > 0:
        return report.iterations_done
    own = app.stays_of(report.id)
    if own:
        gpu_s = math.fsum(stay.gpus.size * stay.overlap_s(job.told_s, job.gone_s) for stay in own)
    elif any(app.stays_of(other) for other in app.jobs):
        gpu_s = 0.0  # groups bear their jobs' names, and none bears this one's
    else:
        gpus = report.held.size or (report.min_gpus if app.stays else 0)
        gpu_s = gpus * (job.gone_s - job.told_s)
    return report.iterations_done + min(left, gpu_s / report.serial_iter_s)


def dead_time_s(app: LiveApp, job: LiveJob, iterations: float) -> float:
    """How long a job's groups made no progress: process starts, restoring, saving, leaving.

    Args:
        app: The app.
        job: A job that runs on one GPU, and has ended.
        iterations: What it has run in all.

    Returns:
        Seconds, of all its groups together; 0 when they are not known by the job's name.
    """
    own = app.stays_of(job.last.id)
    held_s = math.fsum(stay.overlap_s(-math.inf, math.inf) for stay in own if stay.end_s)
    return max(0.0, held_s - iterations * job.last.serial_iter_s)


# -- machines -------------------------------------------------------------------------------


def _all_machines(history: History) -> tuple[Machine, ...]:
    """Every machine that was ever there, at its largest."""
    largest: dict[str, Machine] = {}
    for _, machines in history.machines:
        for machine in machines:
            known = largest.get(machine.id)
            if machine.gpus and (known is None or machine.gpus >= known.gpus):
                largest[machine.id] = machine
    return tuple(largest.values())


def _failures(history: History, machines: tuple[Machine, ...]) -> tuple[Failure, ...]:
    """When machines were not there.

    After the last app has left all are there: under another policy, jobs may run longer than
    anybody was watching.
    """
    end_s = max((app.end_s for app in history.apps), default=history.end_s)
    up = {machine.id: False for machine in machines}
    states: list[tuple[float, dict[str, bool]]] = [(0.0, dict(up))]
    for time_s, present in history.machines:
        if time_s >= end_s:
            break
        there = {machine.id for machine in present if machine.gpus}
        at_s = max(0.0, time_s - history.begin_s)
        state = {machine: machine in there for machine in up}
        if at_s == 0.0:
            states = [(0.0, state)]
        else:
            states.append((at_s, state))
    states.append((end_s - history.begin_s, dict.fromkeys(up, True)))
    return tuple(_changes(dict.fromkeys(up, True), states))


def _changes(before: dict[str, bool], states: list[tuple[float, dict[str, bool]]]) -> list[Failure]:
    out = []
    for time_s, state in states:
        for machine, is_up in state.items():
            if is_up != before[machine]:
                out.append(Failure(time_s, machine, up=is_up))
        before = state
    return out
