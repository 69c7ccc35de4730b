"""What really happened in a recorded cluster, in the figures of a simulation."""

from __future__ import annotations

import math
from typing import Any

from themis_ray.sim.judges import JUDGES, Judge, ideal_times_s
from themis_ray.sim.metrics import figures_of
from themis_ray.sim.records import AppRecord, RunResult, Stay
from themis_ray.sim.replay_history import GroupStay, History, LiveApp, spans
from themis_ray.sim.replay_trace import Recorded, model_key


def live_result(history: History, recorded: Recorded) -> RunResult:
    """The live run, as a simulation leaves it behind; apps that did not finish are cut off.

    GPU time is that of placement groups, from when they were ready until their workers were gone.
    """
    policies = list(dict.fromkeys(header.policy for header in history.headers))
    result = RunResult("/".join(policies), recorded.cluster.cluster.gpus, rounds=history.rounds)
    for app in recorded.apps.values():
        stays = [_stay(history, recorded, app, stay) for stay in app.stays]
        result.stays.extend(stays)
        result.apps.append(_record(history, app, stays))
    return result


def _record(history: History, app: LiveApp, stays: list[Stay]) -> AppRecord:
    held_s = math.fsum(max(0.0, min(end, app.end_s) - begin) for begin, end in spans(app.stays))
    gpu_s = [stay.size * (stay.end_s - stay.begin_s) for stay in stays]
    jobs = {stay.job for stay in stays}
    return AppRecord(
        id=app.id,
        arrival_s=app.joined_s - history.begin_s,
        finish_s=app.end_s - history.begin_s,
        queued_s=max(0.0, app.end_s - app.joined_s - held_s),
        gpu_s=math.fsum(gpu_s),
        score_gpu_s=math.fsum(t / stay.s for t, stay in zip(gpu_s, stays, strict=True)),
        preemptions=len(stays) - len(jobs),
        restarts=0,
    )


def _stay(history: History, recorded: Recorded, app: LiveApp, group: GroupStay) -> Stay:
    job = next((j for j in app.jobs if group.group.startswith(f"{app.name}/{j}/")), group.group)
    model = model_key(app, app.jobs[job]) if job in app.jobs else app.id.lower()
    begin_s, end_s = group.begin_s, group.begin_s if group.end_s is None else group.end_s
    s = recorded.cluster.profile(model).s(
        group.gpus.size, recorded.cluster.cluster.level(group.gpus)
    )
    return Stay(app.id, job, group.gpus, begin_s - history.begin_s, end_s - history.begin_s, s)


def live_figures(
    history: History, recorded: Recorded, judge: Judge, seed: int
) -> dict[str, Any] | None:
    """The figures of the live run, by the same judges as those of a simulation of its trace.

    Returns:
        The figures of the apps that finished, or None when none did. Each of ``apps`` has, besides,
        ``reported_r``: the last r that the app itself reported, None when it was never finite.
    """
    result = live_result(history, recorded)
    by_judge = {}
    for name in JUDGES:
        ideals = ideal_times_s(name, recorded.trace, result.apps, result.gpus, seed)
        by_judge[name] = {record.id: record.jct_s / ideals[record.id] for record in result.apps}
    done = [record for record in result.apps if recorded.apps[record.id].left_s is not None]
    if not done:
        return None
    figures = figures_of(done, by_judge, judge, gpus=result.gpus, rounds=result.rounds)
    for app in figures["apps"]:
        app["reported_r"] = recorded.apps[app["id"]].r
    return figures
