"""What can happen to the arbiter: the inputs of :meth:`themis_ray.core.arbiter.Arbiter.handle`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from themis_ray.core.bids import BidTable
from themis_ray.core.cluster import NOTHING, Allocation, Machine
from themis_ray.core.fairness import PhaseWork
from themis_ray.core.slowdown import MeasuredSlowdown
from themis_ray.errors import BidError


@dataclass(frozen=True, slots=True)
class JobReport:
    """One job (trial) of an app, as its AGENT sees it.

    Attributes:
        id: The job's name within its app.
        iterations_left: Training iterations still to do (an estimate).
        serial_iter_s: Seconds of one iteration on one GPU.
        min_gpus: The fewest GPUs it can run on (a rigid gang has ``min_gpus == max_gpus``).
        max_gpus: The most GPUs it can use, d in Equation 1.
        iterations_done: Iterations done so far.
        attained_gpu_s: GPU-seconds it has been given so far.
        model: The key of its placement profile.
        loss_decrease: Expected decrease of the loss over the next iteration; 0 when unknown.
        held: GPUs that it runs on now; nothing when it does not run, or when that is not told.
        started_ago_s: Seconds since it last started; None when it never ran.
        waited_s: Seconds since it last ran (since it was submitted, when it never ran); 0 while
            it runs.
        skew: Its largest tensor's share of the model's bytes, once it has been profiled.
        slowdown: S at each placement level, best level first; empty when unknown.
        restart_s: What the app's bids charge for moving the whole job, seconds; 0 when they
            charge nothing.
        spans: Though rigid, it can run on several machines; a rigid gang is otherwise one
            process on one machine. Elastic jobs always can.
    """

    id: str
    iterations_left: float
    serial_iter_s: float
    min_gpus: int = 1
    max_gpus: int = 1
    iterations_done: float = 0.0
    attained_gpu_s: float = 0.0
    model: str = ""
    loss_decrease: float = 0.0
    held: Allocation = NOTHING
    started_ago_s: float | None = None
    waited_s: float = 0.0
    skew: float | None = None
    slowdown: tuple[float, ...] = ()
    restart_s: float = 0.0
    spans: bool = False

    @property
    def work_left_gpu_s(self) -> float:
        """GPU-seconds left, without any slowdown."""
        return self.iterations_left * self.serial_iter_s

    @property
    def soonest_s(self) -> float:
        """Seconds that the rest takes on as many GPUs as it can use; 0 when it has no known end."""
        work = self.work_left_gpu_s
        return work / self.max_gpus if math.isfinite(work) else 0.0


@dataclass(frozen=True, slots=True)
class AppReport:
    """How an app stands, as its AGENT reports it.

    Attributes:
        r: Finish-time fairness with the GPUs that it would keep if this round gave it nothing;
            ``inf`` when those are none.
        t_shared_s: Its finish time in the shared cluster, seconds from its start; may be ``inf``.
        t_ideal_s: Its finish time alone on a 1/N share, seconds from its start.
        wants: GPUs in total, those held included, that it can use now.
        gang: The smallest number of GPUs that is of any use to one more of its jobs.
        jobs: Its live jobs.
        pinned: GPUs that it holds for trials that cannot be preempted, since they save no
            checkpoint: their leases are renewed without a round.
        elapsed_s: The app's age by its own count, as its r has it; None when that is the time
            since it joined.
        measured: S(G) as its jobs have measured it, of models that other apps may have too.
        notes: Remarks for people: how its jobs share its GPUs and why, how its estimates fare.
        phases: All its work, done and left, phase by phase as far as is known; empty when that
            is not told.
        steady: It has one gang left, wants all of its GPUs or none, and says by itself when that
            changes: as long as there are GPUs for everybody, it need not be asked before its
            leases are renewed. A live AGENT does not say so: it is asked, so that an app whose
            driver hangs loses its GPUs.
    """

    r: float
    t_shared_s: float
    t_ideal_s: float
    wants: int
    gang: int = 1
    jobs: tuple[JobReport, ...] = ()
    pinned: Allocation = NOTHING
    elapsed_s: float | None = None
    measured: tuple[MeasuredSlowdown, ...] = ()
    notes: tuple[str, ...] = ()
    phases: tuple[PhaseWork, ...] = ()
    steady: bool = False

    def __post_init__(self) -> None:
        if math.isnan(self.r) or self.r < 0:
            raise BidError(f"r = {self.r} in a report; r must be 0 or more, or infinite")
        if math.isnan(self.t_shared_s) or math.isnan(self.t_ideal_s):
            raise BidError("a finish time in a report is not a number; send seconds")
        if self.wants < 0 or self.gang < 1:
            raise BidError(
                f"a report wants {self.wants} GPUs in gangs of {self.gang}; "
                "use 0 or more GPUs and gangs of 1 or more"
            )


@dataclass(frozen=True, slots=True)
class ClusterChanged:
    """The machines that can be leased are now these (GPUs of other Ray jobs not counted)."""

    machines: tuple[Machine, ...]


@dataclass(frozen=True, slots=True)
class HeldGroup:
    """A placement group that an app already has when it joins."""

    id: str
    allocation: Allocation


@dataclass(frozen=True, slots=True)
class AppJoined:
    """An app registers; ``weight`` scales its share.

    ``groups`` are placement groups that it had from an arbiter which has been restarted since:
    they are adopted, with a full lease, as far as their GPUs are free.
    """

    app: str
    report: AppReport
    weight: float = 1.0
    groups: tuple[HeldGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class AppLeft:
    """An app is done, or its AGENT is lost."""

    app: str
    why: str = "finished"


@dataclass(frozen=True, slots=True)
class Reported:
    """A report; ``round_id`` is None when the AGENT sends it unasked."""

    app: str
    report: AppReport
    round_id: int | None = None


@dataclass(frozen=True, slots=True)
class BidReceived:
    """An answer to an offer."""

    round_id: int
    table: BidTable


@dataclass(frozen=True, slots=True)
class GroupRequested:
    """An AGENT wants a placement group for one of its trials on GPUs that it holds."""

    app: str
    group: str
    allocation: Allocation


@dataclass(frozen=True, slots=True)
class GroupReleased:
    """An AGENT gives one of its placement groups back."""

    app: str
    group: str


@dataclass(frozen=True, slots=True)
class GpusReturned:
    """An AGENT gives back GPUs that it holds and cannot use."""

    app: str
    allocation: Allocation


@dataclass(frozen=True, slots=True)
class GroupReady:
    """The driver has created a placement group."""

    group: str


@dataclass(frozen=True, slots=True)
class GroupFailed:
    """The driver could not create a placement group."""

    group: str
    why: str


@dataclass(frozen=True, slots=True)
class GroupGone:
    """A placement group no longer exists and its workers are dead."""

    group: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; sent no later than :meth:`~themis_ray.core.arbiter.Arbiter.wakeup_s`."""


Event = (
    ClusterChanged
    | AppJoined
    | AppLeft
    | Reported
    | BidReceived
    | GroupRequested
    | GroupReleased
    | GpusReturned
    | GroupReady
    | GroupFailed
    | GroupGone
    | Tick
)
