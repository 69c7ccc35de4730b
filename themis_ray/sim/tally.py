"""What an app has been given, added up while it is simulated."""

from __future__ import annotations

from dataclasses import dataclass

from themis_ray.sim.jobrun import JobRun


@dataclass(slots=True)
class Tally:
    """Adds up one app's waiting, GPU time and moves.

    Attributes:
        idle_since_s: Since when none of its jobs has had GPUs; out of date while one has.
        placed: How many of its jobs have GPUs now.
        queued_s: Seconds in which none of its jobs had GPUs, up to the last start.
        gpu_s: GPU-seconds that its jobs were given, up to their last parting.
        score_gpu_s: Those GPU-seconds, each divided by S of its placement.
        preemptions: How often a job had to leave its GPUs before its end.
        restarts: How often a job left its GPUs to go on with more.
    """

    idle_since_s: float
    placed: int = 0
    queued_s: float = 0.0
    gpu_s: float = 0.0
    score_gpu_s: float = 0.0
    preemptions: int = 0
    restarts: int = 0

    def started(self, now: float) -> None:
        """A job has got GPUs."""
        if self.placed == 0:
            self.queued_s += now - self.idle_since_s
        self.placed += 1

    def parted(self, job: JobRun, now: float) -> None:
        """A job is off its GPUs, which it still names."""
        gpu_s = job.allocation.size * (now - job.created_s)
        self.gpu_s += gpu_s
        self.score_gpu_s += gpu_s / job.s
        self.placed -= 1
        if self.placed == 0:
            self.idle_since_s = now

    def moved(self, job: JobRun) -> None:
        """A job leaves its GPUs before its end."""
        if job.growing:
            self.restarts += 1
        else:
            self.preemptions += 1
