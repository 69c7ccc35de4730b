"""What a run leaves: a JSON document with all that any figure asks for."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from themis_ray.sim.jobs import Trace
from themis_ray.sim.judges import JUDGES, Judge
from themis_ray.sim.metrics import fairness, percentile, summary
from themis_ray.sim.records import RunResult


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished run.

    Attributes:
        document: ``figures`` as ``themis simulate`` prints them, ``r`` of each app by judge,
            ``apps`` and ``placement``; or ``error``. ``seconds`` of CPU time it took.
    """

    document: dict[str, Any]

    @property
    def error(self) -> str | None:
        """Why there is none, when the simulation got stuck."""
        error: str | None = self.document.get("error")
        return error

    @property
    def seconds(self) -> float:
        """CPU seconds of the run."""
        return float(self.document["seconds"])

    def figure(self, name: str) -> float:
        """One of the figures of ``themis simulate``."""
        return float(self.document["figures"][name])

    def r(self, judge: Judge) -> list[float]:
        """r of each app, in the order of arrival."""
        values: list[float] = self.document["r"][judge]
        return values

    def max_r(self, judge: Judge) -> float:
        """The greatest r."""
        return max(self.r(judge))

    def r_at(self, judge: Judge, percent: float) -> float:
        """A percentile of r."""
        return percentile(self.r(judge), percent)

    @property
    def apps(self) -> list[dict[str, Any]]:
        """Each app: id, gpus (of its largest job), jobs, work_gpu_s, jct_s, queued_s, gpu_s."""
        apps: list[dict[str, Any]] = self.document["apps"]
        return apps

    @property
    def placement(self) -> list[tuple[float, float]]:
        """(score 1 / S(G), GPU-seconds spent at that score), of jobs on two GPUs or more."""
        return [(score, time) for score, time in self.document["placement"]]

    def share_well_placed(self) -> float:
        """The share of those GPU-seconds with score 1."""
        total = math.fsum(time for _, time in self.placement)
        best = math.fsum(time for score, time in self.placement if score >= 1)
        return best / total if total else 1.0


def outcome_of(result: RunResult, trace: Trace, seed: int) -> dict[str, Any]:
    """The document of a run."""
    figures = summary(result, trace, "fluid", seed)
    del figures["apps"]
    records = {record.id: record for record in result.apps}
    return {
        "figures": figures,
        "r": {judge: _rounded(fairness(result, trace, judge, seed).values()) for judge in JUDGES},
        "apps": [
            {
                "id": app.id,
                "gpus": max(job.max_gpus for job in app.jobs),
                "jobs": len(app.jobs),
                "work_gpu_s": round(app.work_gpu_s, 6),
                "jct_s": round(records[app.id].jct_s, 6),
                "queued_s": round(records[app.id].queued_s, 6),
                "gpu_s": round(records[app.id].gpu_s, 6),
            }
            for app in trace.apps
        ],
        "placement": _placement(result),
    }


def _placement(result: RunResult) -> list[list[float]]:
    time_at: dict[float, float] = {}
    for stay in result.stays:
        if stay.size > 1:
            score = round(1 / stay.s, 6)
            time_at[score] = time_at.get(score, 0.0) + stay.size * (stay.end_s - stay.begin_s)
    return [[score, round(time_at[score], 3)] for score in sorted(time_at)]


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(value, 6) for value in values]
