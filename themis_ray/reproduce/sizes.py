"""How large the workloads are: what a study costs is decided here, and printed with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the workloads, and how finely is swept.

    Attributes:
        name: The size's name.
        w1_apps: Apps of THEMIS' Workload 1; the paper's plots have 10.
        w2_apps: Apps of THEMIS' Workload 2; the paper's plots have 31.
        sweep_apps: Apps of the workloads of the sweeps on the simulator's cluster.
        philly_apps: Jobs of the large workload of Tiresias' Table 5.
        length: Jobs are so many times as long as published.
        w1_jobs: Apps of Workload 1 have so many times as many jobs as published.
        w2_jobs: Those of Workload 2.
        tiresias_jobs: The first so many jobs of Tiresias' testbed workload.
        tiresias_length: They are so many times as long as published.
        trace_apps: So many apps of each trace file for each seed.
        knobs: Values of f in the sweep.
        leases_min: Leases in the sweep, minutes.
        shares: Shares of network-intensive apps, percent.
        lies: Lies, percent.
        contentions: Contentions.
    """

    name: str
    w1_apps: int
    w2_apps: int
    sweep_apps: int
    philly_apps: int
    length: float
    w1_jobs: float
    w2_jobs: float
    tiresias_jobs: int
    tiresias_length: float
    trace_apps: int
    knobs: tuple[float, ...]
    leases_min: tuple[int, ...]
    shares: tuple[int, ...]
    lies: tuple[int, ...]
    contentions: tuple[int, ...] = (1, 2, 4)

    def w1(self, contention: float = 1) -> str:
        """Workload 1."""
        scale = f"length={self.length:g},jobs={self.w1_jobs:g}"
        return f"w1:apps={self.w1_apps},{scale},contention={contention:g}"

    def w2(self, contention: float = 1) -> str:
        """Workload 2."""
        return f"w2:apps={self.w2_apps},{self.w2_scale},contention={contention:g}"

    @property
    def philly(self) -> str:
        """The large workload of Tiresias' Table 5; at a load of one hardly a job waits."""
        return f"philly:apps={self.philly_apps},gpus=60,contention=4"

    @property
    def w2_scale(self) -> str:
        """Options by which Workload 2 is smaller than published."""
        return f"length={self.length:g},jobs={self.w2_jobs:g}"

    @property
    def said(self) -> str:
        """For the page."""
        return (
            f"Workload 1 has {self.w1_apps} apps (the paper's 10), Workload 2 {self.w2_apps} (the "
            f"paper's 31), the sweeps {self.sweep_apps}, the Philly-shaped workload "
            f"{self.philly_apps} jobs, each trace file {self.trace_apps} apps a seed. Tasks are "
            f"{self.length:g} times as long as published, and apps have {self.w1_jobs:g} "
            f"(Workload 1) and {self.w2_jobs:g} (Workload 2) times as many jobs. Tiresias' "
            f"{self.tiresias_jobs} jobs are {self.tiresias_length:g} times as "
            "long."
        )


SIZES: Mapping[str, Sizes] = {
    size.name: size
    for size in (
        Sizes(
            name="quick",
            w1_apps=3,
            w2_apps=5,
            sweep_apps=4,
            philly_apps=60,
            length=0.1,
            w1_jobs=0.06,
            w2_jobs=0.12,
            tiresias_jobs=60,
            tiresias_length=0.05,
            trace_apps=12,
            knobs=(0.0, 0.8, 1.0),
            leases_min=(10,),
            shares=(0, 60, 100),
            lies=(0, 20, 100),
            contentions=(1, 4),
        ),
        Sizes(
            name="default",
            w1_apps=8,
            w2_apps=12,
            sweep_apps=10,
            philly_apps=500,
            length=1.0,
            w1_jobs=0.3,
            w2_jobs=1.0,
            tiresias_jobs=480,
            tiresias_length=1.0,
            trace_apps=60,
            knobs=(0.0, 0.4, 0.8, 0.9, 1.0),
            leases_min=(5, 10, 20, 40),
            shares=(0, 20, 40, 60, 80, 100),
            lies=(0, 7, 13, 20, 27, 34, 40, 100),
        ),
        Sizes(
            name="full",
            w1_apps=10,
            w2_apps=31,
            sweep_apps=31,
            philly_apps=5000,
            length=1.0,
            w1_jobs=1.0,
            w2_jobs=1.0,
            tiresias_jobs=480,
            tiresias_length=1.0,
            trace_apps=500,
            knobs=(0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
            leases_min=(5, 10, 20, 40),
            shares=(0, 20, 40, 60, 80, 100),
            lies=(0, 7, 13, 20, 27, 34, 40, 100),
        ),
    )
}
