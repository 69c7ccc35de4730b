"""``themis bids``: what an app would bid for each number of GPUs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from themis_ray.cli.inputs import Count, Positive, Strict, read_model
from themis_ray.cli.options import FileArgument, JsonOption
from themis_ray.cli.output import number, print_json
from themis_ray.core import valuation
from themis_ray.core.cluster import Cluster, Level, Machine
from themis_ray.core.fairness import Phase, finish_time_fairness, ideal_time_s
from themis_ray.core.slowdown import PRIORS

NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Slowdown = Annotated[float, Field(ge=1, allow_inf_nan=False)]


class MachineIn(Strict):
    """A machine whose GPUs are on offer."""

    id: str
    gpus: Annotated[int, Field(ge=0)]
    rack: str = "r0"
    slots: Count = 1

    @model_validator(mode="after")
    def _slots_divide(self) -> MachineIn:
        if self.gpus % self.slots:
            raise ValueError(
                f"{self.gpus} GPUs cannot be divided into {self.slots} slots; "
                "use a number of slots that divides the GPUs"
            )
        return self


class PhaseIn(Strict):
    """A phase: ``jobs`` jobs that each have ``iterations`` to do."""

    jobs: Count
    iterations: Positive


class SlowdownIn(Strict):
    """S(G) by placement level; what is left out keeps its prior."""

    slot: Slowdown = PRIORS[Level.SLOT]
    machine: Slowdown = PRIORS[Level.MACHINE]
    rack: Slowdown = PRIORS[Level.RACK]
    cluster: Slowdown = PRIORS[Level.CLUSTER]

    def by_level(self) -> Mapping[Level, float]:
        """S keyed by level."""
        return {level: getattr(self, level.name.lower()) for level in Level}


class BidsIn(Strict):
    """The input of ``themis bids``."""

    tuner: Literal["single", "successive_halving"]
    cluster_gpus: Count
    n_avg: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0
    elapsed_s: NotNegative = 0.0
    job_demand_max: Count
    serial_iter_s: Annotated[list[Positive], Field(min_length=1)]
    phases: Annotated[list[PhaseIn], Field(min_length=1)]
    ideal: Literal["paper", "exclusive"] = "paper"
    slowdown: SlowdownIn = SlowdownIn()
    machines: Annotated[list[MachineIn], Field(min_length=1)] | None = None
    gpus: list[Annotated[int, Field(ge=0)]] | None = None
    budget_gpu_s: Positive | None = None
    split: Literal["even", "makespan"] = "even"

    @model_validator(mode="after")
    def _fits(self) -> BidsIn:
        jobs = len(self.serial_iter_s)
        if self.phases[0].jobs != jobs:
            raise ValueError(
                f"phases[0].jobs is {self.phases[0].jobs}, but serial_iter_s lists {jobs} jobs; "
                "list one time for each job of the first phase, which is the current one"
            )
        if self.tuner == "single" and (jobs > 1 or len(self.phases) > 1):
            raise ValueError(
                'tuner "single" is one job in one phase; list one serial_iter_s and one phase, '
                'or use "successive_halving"'
            )
        ids = [machine.id for machine in self.machines or ()]
        if len(set(ids)) < len(ids):
            raise ValueError("machines: two have the same id; ids must differ")
        offered = self.offered
        if offered > self.cluster_gpus:
            raise ValueError(
                f"machines have {offered} GPUs, more than the {self.cluster_gpus} of "
                "cluster_gpus; raise cluster_gpus or offer less"
            )
        for i, gpus in enumerate(self.gpus or ()):
            if gpus > offered:
                raise ValueError(
                    f"gpus[{i}] is {gpus}, but only {offered} are on offer; "
                    "lower it or add machines"
                )
        return self

    @property
    def offered(self) -> int:
        """GPUs on offer."""
        if self.machines is None:
            return self.cluster_gpus
        return sum(machine.gpus for machine in self.machines)

    def cluster(self) -> Cluster:
        """The machines on offer; one machine with all GPUs when none are listed."""
        if self.machines is None:
            return Cluster((Machine("m0", self.cluster_gpus),))
        return Cluster(tuple(Machine(m.id, m.gpus, m.rack, m.slots) for m in self.machines))

    def counts(self) -> list[int]:
        """The GPU counts to bid for; the powers of two when none are listed."""
        if self.gpus is not None:
            return self.gpus
        return [1 << i for i in range(self.offered.bit_length()) if 1 << i <= self.offered]


def bid_document(asked: BidsIn) -> dict[str, object]:
    """What the command prints with ``--json``."""
    current = [
        valuation.JobWork(asked.phases[0].iterations, serial) for serial in asked.serial_iter_s
    ]
    future = [Phase(phase.jobs, phase.iterations) for phase in asked.phases[1:]]
    t_ideal_s = _t_ideal_s(asked, current, future)
    cluster = asked.cluster()
    rows: list[dict[str, object]] = []
    for gpus in asked.counts():
        bundle = valuation.place_best_first(gpus, cluster.machines)
        slowdown = valuation.placed_slowdown(bundle, cluster, asked.slowdown.by_level())
        t_shared_s = valuation.successive_halving_t_shared_s(
            current,
            future,
            gpus=gpus,
            demand_max=asked.job_demand_max,
            elapsed_s=asked.elapsed_s,
            slowdown=slowdown,
            split=asked.split,
        )
        r = finish_time_fairness(t_shared_s, t_ideal_s)
        rows.append({"gpus": gpus, "r": r, "t_shared_s": t_shared_s})
    return {"t_ideal_s": t_ideal_s, "bids": rows}


def _t_ideal_s(asked: BidsIn, current: list[valuation.JobWork], future: list[Phase]) -> float:
    phases = [current, *valuation.future_phases_work(asked.serial_iter_s, future)]
    work = [math.fsum(job.gpu_s for job in jobs) for jobs in phases]
    if asked.budget_gpu_s is not None:
        # The budget also has the work already done: it takes the proportions of what is left.
        total = math.fsum(work)
        work = [part * asked.budget_gpu_s / total for part in work]
    return ideal_time_s(
        work,
        [len(jobs) * asked.job_demand_max for jobs in phases],
        cluster_gpus=asked.cluster_gpus,
        n_avg=asked.n_avg,
        ideal=asked.ideal,
    )


def bids(
    file: FileArgument,
    json_: JsonOption = False,
) -> None:
    """Print r and the finish time of an app for each number of GPUs."""
    document = bid_document(read_model(file, BidsIn))
    if json_:
        print_json(document)
    else:
        _print_table(document)


def _print_table(document: Mapping[str, object]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("GPUs", "r", "finish (s)", title=f"ideal finish {document['t_ideal_s']:,.0f} s")
    for column in table.columns:
        column.justify = "right"
    rows = document["bids"]
    assert isinstance(rows, list)
    for row in rows:
        table.add_row(str(row["gpus"]), number(row["r"]), number(row["t_shared_s"], 1))
    Console().print(table)
