"""An app on a virtual cluster, and what is to be expected of it."""

from __future__ import annotations

from dataclasses import dataclass

from themis_ray.core.fairness import PhaseWork

# Work smaller than this, in GPU-seconds, is done.
NO_WORK_GPU_S = 1e-6
# No app has a share of fewer GPUs.
LEAST_SHARE = 1e-9


@dataclass(frozen=True, slots=True)
class Life:
    """One app on the virtual cluster.

    Attributes:
        joined_s: When it arrived.
        weight: Its weight.
        phases: All its work, the last word of the app on it.
        done_gpu_s: How much of it has been done there.
        finished_s: When it was done there; None while it is not.
    """

    joined_s: float
    weight: float
    phases: tuple[PhaseWork, ...]
    done_gpu_s: float = 0.0
    finished_s: float | None = None

    @property
    def left(self) -> list[PhaseWork]:
        """What is left of each phase."""
        done = self.done_gpu_s
        if len(self.phases) == 1:  # the usual case
            phase = self.phases[0]
            over = done >= phase.gpu_s - NO_WORK_GPU_S
            return [] if over else [PhaseWork(phase.gpu_s - done, phase.gpus)]
        out = []
        for phase in self.phases:
            if done < phase.gpu_s - NO_WORK_GPU_S:
                out.append(PhaseWork(phase.gpu_s - done, phase.gpus))
            done = max(0.0, done - phase.gpu_s)
        return out


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the clock says of an app, if nobody joins from now on.

    Attributes:
        finish_s: When it is done on the virtual cluster; in the past when it is.
        share: GPUs that it has there on average until then; for one that is done, the GPUs that
            an app of its weight would have now.
    """

    finish_s: float
    share: float
