"""A job while it is simulated: its GPUs, its progress, and what it has been given."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from themis_ray.core.cluster import NOTHING, Allocation, Level
from themis_ray.sim.cluster_file import MoveCost, Profile
from themis_ray.sim.jobs import TraceJob
from themis_ray.sim.tuners import Curve


class JobState(Enum):
    """Where a job stands."""

    HELD = "held"  # not in this phase, or done with it
    WAITING = "waiting"
    PLACED = "placed"  # its group has been asked for
    RUNNING = "running"  # started: first the start-up, then progress
    SAVING = "saving"  # it writes a checkpoint, to leave
    DONE = "done"


@dataclass(slots=True)
class JobRun:
    """One job.

    Attributes:
        index: Its place in the app.
        spec: What the trace says of it.
        profile: How it slows down when its GPUs are apart.
        move: What moving it costs.
        state: Where it stands.
        left: Iterations left in its phase, as of its last checkpoint.
        beyond: Iterations that its app believes to come besides, and that will not be run.
        done: Iterations done and saved.
        group: Its placement group, from when it is asked for.
        allocation: Its GPUs, likewise.
        s: S of those GPUs.
        created_s: When its group was created.
        from_s: When it makes progress from, in its present group.
        rate: Iterations a second on its present GPUs.
        leave_s: It has to have left by then; None when it may stay.
        pending: Iterations done since the last checkpoint, while it saves them.
        growing: It leaves its GPUs to go on with more of them.
        version: Counts its changes; what was planned for an earlier version is void.
        attained_gpu_s: GPU-seconds given to it in groups that it has left.
        started_s: When it last started; None when it never did.
        stopped_s: When it last lost its GPUs; its submission when it never had any.
        curve: Its learning curve, once somebody has asked.
        slowdowns: S at each placement level, best level first.
    """

    index: int
    spec: TraceJob
    profile: Profile
    move: MoveCost
    state: JobState = JobState.HELD
    left: float = 0.0
    beyond: float = 0.0
    done: float = 0.0
    group: str = ""
    allocation: Allocation = NOTHING
    s: float = 1.0
    created_s: float = 0.0
    from_s: float = 0.0
    rate: float = 0.0
    leave_s: float | None = None
    pending: float = 0.0
    growing: bool = False
    version: int = 0
    attained_gpu_s: float = 0.0
    started_s: float | None = None
    stopped_s: float = 0.0
    curve: Curve | None = None
    slowdowns: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        self.slowdowns = tuple(self.profile.by_level[level] for level in Level)

    @property
    def active(self) -> bool:
        """Whether it has work to do in this phase."""
        return self.state not in (JobState.HELD, JobState.DONE)

    @property
    def holds(self) -> bool:
        """Whether it has, or has asked for, GPUs."""
        return self.state in (JobState.PLACED, JobState.RUNNING, JobState.SAVING)

    @property
    def leaves(self) -> bool:
        """Whether it waits for GPUs, or soon will."""
        return self.state in (JobState.WAITING, JobState.SAVING) or self.leave_s is not None

    def worth_growing(self, now: float) -> bool:
        """Whether moving to as many GPUs as it can use would bring its end nearer."""
        size = self.allocation.size
        if self.state is not JobState.RUNNING or size >= self.spec.max_gpus:
            return False
        left_s = self.left_at(now) / self.rate
        return (left_s - self.move.whole_s) * self.spec.max_gpus * self.s > left_s * size

    def rate_on(self, gpus: int, level: Level) -> float:
        """Iterations a second on some GPUs."""
        usable = min(gpus, self.spec.max_gpus)
        return usable / (self.spec.serial_iter_s * self.profile.s(gpus, level))

    def progress(self, now: float) -> float:
        """Iterations done in its present group, up to ``now``."""
        if self.state is not JobState.RUNNING or now <= self.from_s:
            return 0.0
        return min(self.left, (now - self.from_s) * self.rate)

    def left_at(self, now: float) -> float:
        """Iterations left in its phase."""
        return self.left - self.pending - self.progress(now)

    def believed_left(self, now: float) -> float:
        """Iterations that its app thinks are left."""
        return self.left - self.pending - self.progress(now) + self.beyond

    def finish_s(self) -> float:
        """When it will have done its phase, if it stays where it is."""
        return self.from_s + self.left / self.rate

    def keep(self, iterations: float) -> None:
        """So much of what it did since its last checkpoint is saved."""
        self.left = max(0.0, self.left - iterations)
        self.done += iterations

    def attained(self, now: float) -> float:
        """GPU-seconds given to it so far."""
        if self.state in (JobState.RUNNING, JobState.SAVING):
            return self.attained_gpu_s + self.allocation.size * (now - self.created_s)
        return self.attained_gpu_s

    def part(self, now: float) -> None:
        """It has no GPUs any more."""
        self.attained_gpu_s = self.attained(now)
        self.pending, self.growing = 0.0, False
        self.stopped_s = now
        self.group, self.allocation, self.leave_s = "", NOTHING, None
        self.version += 1
