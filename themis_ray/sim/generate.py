"""Seeded workloads with published distributions.

A workload is named with its options, as in ``w1:seed=1,contention=2``:

| name | what |
|---|---|
| ``w1`` | THEMIS' Workload 1: many jobs of 1 or 2 GPUs per app |
| ``w2`` | THEMIS' Workload 2: successive halving, jobs of 1, 2 or 4 GPUs |
| ``tiresias`` | Tiresias' testbed: 480 gangs of 1 to 32 GPUs, 2 minutes to 2 hours |
| ``philly`` | shaped like Microsoft's Philly: mostly one GPU, heavy-tailed |
| ``alike`` | apps that are all the same: one VGG16 job of 8 GPUs each, all there at once |

What the papers do not say is assumed: apps arrive at random (Poisson) at such a rate that their
work is ``load`` times what ``gpus`` GPUs can do, ``contention`` times as fast; jobs of an app have
one model and one demand; their speeds differ by up to a fifth either way.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import TypeVar

from themis_ray.errors import InvalidInputError
from themis_ray.sim import figures
from themis_ray.sim.jobs import TUNERS, Trace, TraceApp, TraceJob, Tuner
from themis_ray.sim.tuners import plan_of

T = TypeVar("T")
ITERATION_S = 1.0
SPEED_SPREAD = 0.2


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a generator.

    Attributes:
        seed: Seeds all that is random.
        apps: How many apps.
        contention: Apps arrive so many times as fast.
        load: Their work over what the cluster can do, at contention 1.
        gpus: The cluster's GPUs, for the load.
        gang: Jobs cannot run on fewer GPUs than they ask for.
        network: Share of the apps whose models mind the network, in place of the published mix;
            negative for the mix.
        length: Jobs are so many times as long.
        tuner: What stops jobs early; empty for the workload's own.
        max_gpus: The largest gang.
        jobs: Apps have so many times as many jobs, at least one.
    """

    seed: int = 0
    apps: int = 10
    contention: float = 1.0
    load: float = 1.0
    gpus: int = 64
    gang: bool = False
    network: float = -1.0
    length: float = 1.0
    tuner: str = ""
    max_gpus: int = 32
    jobs: float = 1.0

    def __post_init__(self) -> None:
        for name in ("apps", "contention", "load", "gpus", "length", "max_gpus", "jobs"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise InvalidInputError(f"{name}={value}; use a number above 0")
        if not self.network <= 1:
            raise InvalidInputError(f"network={self.network}; use a share from 0 to 1")
        if self.tuner and self.tuner not in TUNERS:
            raise InvalidInputError(f"tuner={self.tuner}; use {', '.join(TUNERS)}")


def quantile(points: Sequence[tuple[float, float]], u: float) -> float:
    """The value that a fraction ``u`` lies below; geometric between the points given."""
    for (u0, v0), (u1, v1) in pairwise(points):
        if u <= u1:
            return float(v0 * (v1 / v0) ** ((u - u0) / (u1 - u0)))
    return points[-1][1]


def pick(rng: random.Random, weights: Mapping[T, float]) -> T:
    """One of the keys, with its weight."""
    return rng.choices(list(weights), weights=list(weights.values()))[0]


def workload_1(options: Options) -> Trace:
    """THEMIS' Workload 1: hyper-parameter apps whose jobs all run to their end."""
    return _tuning(
        "w1", options, figures.JOBS_PER_APP_W1, figures.GPUS_PER_JOB_W1, "single", like=False
    )


def workload_2(options: Options) -> Trace:
    """THEMIS' Workload 2: successive halving, as Hyperband's brackets do."""
    return _tuning(
        "w2",
        options,
        figures.JOBS_PER_APP_W2,
        figures.GPUS_PER_JOB_W2,
        "successive_halving",
        like=True,
    )


def _tuning(
    name: str,
    options: Options,
    jobs_per_app: Sequence[int],
    gpus_per_job: Mapping[int, float],
    tuner: Tuner,
    *,
    like: bool,
) -> Trace:
    rng = random.Random(f"{name}/{options.seed}")
    chosen: Tuner = next((known for known in TUNERS if known == options.tuner), tuner)
    apps = []
    for i in range(options.apps):
        model = _model(rng, options)
        gpus = pick(rng, gpus_per_job)
        work_s = _task_s(rng, options)
        jobs = []
        for k in range(max(1, round(rng.choice(jobs_per_app) * options.jobs))):
            speed = rng.uniform(1 - SPEED_SPREAD, 1 + SPEED_SPREAD)
            if not like and k:
                work_s = _task_s(rng, options)
            # Under successive halving all jobs are set to run equally many iterations.
            steps = max(1.0, round(work_s / (ITERATION_S if like else ITERATION_S * speed)))
            low = gpus if options.gang else 1
            jobs.append(TraceJob(f"{k}", model, gpus, steps, ITERATION_S * speed, low))
        one = len(jobs) == 1
        apps.append(TraceApp(f"a{i:03d}", 0.0, "single" if one else chosen, tuple(jobs)))
    return _arriving(_titled(name, options), apps, options, rng)


def _task_s(rng: random.Random, options: Options) -> float:
    return 60 * quantile(figures.TASK_GPU_MINUTES, rng.random()) * options.length


def _model(rng: random.Random, options: Options) -> str:
    if options.network < 0:
        models: tuple[str, ...] = pick(rng, figures.MODEL_MIX)
        return rng.choice(models)
    minds = rng.random() < options.network
    return rng.choice(figures.NETWORK_MODELS if minds else figures.COMPUTE_MODELS)


def _arriving(name: str, apps: Sequence[TraceApp], options: Options, rng: random.Random) -> Trace:
    """Poisson arrivals at the rate that the load asks for; the first app arrives at 0."""
    work = math.fsum(
        steps * app.jobs[i].serial_iter_s
        for app in apps
        for phase in plan_of(app, options.seed)
        for i, steps in phase.runs
    )
    gap_s = work / len(apps) / (options.gpus * options.load * options.contention)
    now, out = 0.0, []
    for app in apps:
        out.append(replace(app, arrival_s=round(now, 3)))
        now += rng.expovariate(1 / gap_s)
    return Trace.of(name, out)


def tiresias_testbed(options: Options) -> Trace:
    """Tiresias' testbed run; ``apps`` and ``load`` have no say, ``contention`` has.

    Lengths are drawn evenly on a logarithmic scale: the paper gives their range.
    """
    rng = random.Random(f"tiresias/{options.seed}")
    sizes = [gpus for gpus, count in figures.TIRESIAS_JOBS for _ in range(count)]
    rng.shuffle(sizes)
    now, apps = 0.0, []
    shortest, longest = figures.TIRESIAS_DURATION_S
    for i, gpus in enumerate(sizes):
        gpus = min(gpus, options.max_gpus)
        duration_s = shortest * (longest / shortest) ** rng.random() * options.length
        steps = max(1.0, float(round(duration_s)))
        job = TraceJob("0", rng.choice(figures.TIRESIAS_MODELS), gpus, steps, float(gpus), gpus)
        apps.append(TraceApp(f"j{i:03d}", round(now, 3), "single", (job,)))
        now += rng.expovariate(options.contention / figures.TIRESIAS_GAP_S)
    return Trace.of(_titled("tiresias", options), apps)


def philly_shaped(options: Options) -> Trace:
    """Gangs with the sizes and lengths of Philly's jobs."""
    rng = random.Random(f"philly/{options.seed}")
    sizes = {g: float(n) for g, n in figures.PHILLY_GPUS.items() if g <= options.max_gpus}
    apps = []
    for i in range(options.apps):
        gpus = pick(rng, sizes)
        duration_s = quantile(figures.PHILLY_DURATION_S, rng.random()) * options.length
        steps = max(1.0, float(round(duration_s)))
        job = TraceJob("0", _model(rng, options), gpus, steps, float(gpus), gpus)
        apps.append(TraceApp(f"j{i:06d}", 0.0, "single", (job,)))
    return _arriving(_titled("philly", options), apps, options, rng)


def alike(options: Options) -> Trace:
    """Equal apps that want the same machine, as in THEMIS' test of lies (section 8.6).

    The median task is as long as in Workload 1; a job uses 8 GPUs at most.
    """
    work_s = 60 * quantile(figures.TASK_GPU_MINUTES, 0.5) * options.length
    gpus = min(8, options.max_gpus)
    job = TraceJob("0", "vgg16", gpus, max(1.0, round(work_s)), ITERATION_S, 1)
    apps = [TraceApp(f"a{i:03d}", 0.0, "single", (job,)) for i in range(options.apps)]
    return Trace.of(_titled("alike", options), apps)


def _titled(name: str, options: Options) -> str:
    return f"{name}:seed={options.seed},apps={options.apps},contention={options.contention:g}"


GENERATORS: Mapping[str, tuple[Callable[[Options], Trace], Options]] = {
    "w1": (workload_1, Options()),
    "w2": (workload_2, Options(apps=31)),
    "tiresias": (tiresias_testbed, Options(apps=480)),
    "philly": (philly_shaped, Options(apps=1000)),
    "alike": (alike, Options(apps=8)),
}


def is_spec(text: str) -> bool:
    """Whether a text names a generator."""
    return text.partition(":")[0] in GENERATORS


def generate(spec: str) -> Trace:
    """The workload of a text such as ``w1:seed=1,contention=2``.

    Raises:
        InvalidInputError: No such workload or option, or a value out of range.
    """
    name, _, given = spec.partition(":")
    if name not in GENERATORS:
        raise InvalidInputError(f"no workload {name!r}; there are: {', '.join(GENERATORS)}")
    make, options = GENERATORS[name]
    known = {field.name: field for field in fields(Options)}
    changes: dict[str, object] = {}
    for item in filter(None, given.split(",")):
        key, eq, value = item.partition("=")
        if key not in known or not eq:
            raise InvalidInputError(
                f"{spec}: {item!r} is no option; write NAME=VALUE with one of {', '.join(known)}"
            )
        changes[key] = _option(spec, key, value, getattr(options, key))
    try:
        return make(replace(options, **changes))  # type: ignore[arg-type]
    except InvalidInputError as error:
        raise InvalidInputError(f"{spec}: {error}") from None


def _option(spec: str, key: str, value: str, default: object) -> object:
    """The value of an option, of the type of its default."""
    if isinstance(default, bool):
        if value not in ("true", "false"):
            raise InvalidInputError(f"{spec}: {key}={value!r} is neither true nor false")
        return value == "true"
    kind = "a whole number" if isinstance(default, int) else "a number"
    try:
        return type(default)(value)  # type: ignore[call-arg]
    except ValueError:
        raise InvalidInputError(f"{spec}: {key}={value!r} is not {kind}") from None
