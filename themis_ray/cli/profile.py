"""``themis profile``: measure how much a model is slowed down by its placement."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from themis_ray.cli.options import AddressOption, JsonOption
from themis_ray.cli.output import number, print_json
from themis_ray.core.slowdown import PRIORS, Signature, skewed_priors
from themis_ray.errors import ConfigError, InvalidInputError, ThemisError

if TYPE_CHECKING:
    from themis_ray.profiling.placements import Placement
    from themis_ray.profiling.profile_file import ModelProfile
    from themis_ray.profiling.profiler import ClusterFound

OnSteps = Callable[["Placement", int], None]


def profile(
    model: Annotated[str, typer.Argument(help="A torchvision classifier, such as vgg16.")],
    gpus: Annotated[
        str, typer.Option(metavar="N,M", help="Numbers of GPUs to measure on.")
    ] = "1,2,4,8",
    iterations: Annotated[
        int, typer.Option(min=1, help="Iterations to measure on each placement.")
    ] = 30,
    warmup: Annotated[int, typer.Option(min=0, help="Iterations before those.")] = 3,
    batch: Annotated[int, typer.Option(min=1, help="The global batch, over all GPUs.")] = 32,
    image_size: Annotated[
        int | None,
        typer.Option(min=1, help="Side of the images; the least that the model can use."),
    ] = None,
    width: Annotated[
        int | None, typer.Option(min=1, help="Hidden width of VGG's or AlexNet's classifier.")
    ] = None,
    amp: Annotated[str | None, typer.Option(help="bf16 or fp16: mixed precision, on GPUs.")] = None,
    output: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The profile file; other models in it are kept."),
    ] = None,
    num_gpus: Annotated[
        int | None,
        typer.Option(min=1, help="With no Ray cluster: start one here with so many logical GPUs."),
    ] = None,
    address: AddressOption = None,
    json_: JsonOption = False,
) -> None:
    """Measure S(G) of a model on the placements that the cluster offers.

    Only GPUs that are free now are used. The file is what `themis simulate --profiles` and
    ThemisScheduler(profiles=...) read.
    """
    from themis_ray.profiling.profile_file import save_profile
    from themis_ray.profiling.profiler import ProfileJob, look_around, profile_model

    counts = _counts(gpus)
    config = _config(model, batch, image_size, width, amp)
    file = Path(output or f"{model}.profile.yaml")
    _check_file(file)
    with _connected(num_gpus, address):
        cluster = look_around()
        if not json_:
            _print_cluster(cluster)
        job = ProfileJob(config, iterations, warmup)
        with _bar(iterations, quiet=json_) as on_steps:
            found = profile_model(job, counts, cluster, on_steps)
    if not found.measured:
        reasons = "".join(f"\n  {line}" for line in found.not_measured)
        raise ThemisError(f"{model}: nothing could be measured, and {file} is as it was:{reasons}")
    save_profile(file, model, found)
    if json_:
        print_json({"model": model, "file": str(file), **found.model_dump(mode="json")})
    else:
        _print(model, file, found)


def _counts(text: str) -> list[int]:
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = [0]
    if min(counts) < 1:
        raise InvalidInputError(f"--gpus {text}: write numbers of GPUs, as in 1,2,4,8")
    # S(G) is relative to one GPU.
    return sorted({1, *counts})


def _config(
    model: str, batch: int, image_size: int | None, width: int | None, amp: str | None
) -> dict[str, Any]:
    """The job's config, checked here: a wrong name should not need a cluster to be found."""
    from themis_ray import workloads

    spec = workloads.ModelSpec(model, image_size=image_size, width=width)
    config = {"model": model, "global_batch": batch, "image_size": spec.side}
    optional = {"width": width, "amp": amp}
    return {**config, **{name: value for name, value in optional.items() if value is not None}}


def _check_file(file: Path) -> None:
    """Find before the measuring that the result could not be kept."""
    from themis_ray.profiling.profile_file import load_profiles

    if file.exists():
        load_profiles(file)
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise ConfigError(f"--output {file}: it cannot be written; name a file in another folder")


@contextmanager
def _connected(num_gpus: int | None, address: str | None) -> Iterator[None]:
    """Be in the Ray cluster; one that was started for this ends with it."""
    import ray

    from themis_ray.live import client

    ours = not ray.is_initialized()
    client.connect_to_ray(num_gpus, address)
    try:
        yield
    finally:
        if ours:
            ray.shutdown()


@contextmanager
def _bar(iterations: int, *, quiet: bool) -> Iterator[OnSteps]:
    """A progress bar on standard error: one line for each placement."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("iterations"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as progress:
        tasks: dict[str, Any] = {}

        def on_steps(placement: Placement, steps: int) -> None:
            name = f"on {placement.signature}"
            if name not in tasks:
                tasks[name] = progress.add_task(f"{name}: starts", total=iterations)
            if steps:
                progress.update(tasks[name], description=name, advance=steps)

        yield on_steps


def _print_cluster(cluster: ClusterFound) -> None:
    """What there is to measure on, on standard error as the bar below it."""
    from rich.console import Console

    machines = sorted(cluster.machines, key=lambda m: (m.rack, m.id))
    parts = [f"{m.gpus} on {m.id} (rack {m.rack})" for m in machines]
    line = f"free {cluster.unit}s: {', '.join(parts) or 'none'}"
    if cluster.unit == "CPU":
        line += "; there is no GPU, so CPUs stand for them"
    Console(stderr=True).print(line, markup=False, highlight=False)


def _print(model: str, file: Path, found: ModelProfile) -> None:
    from rich.console import Console
    from rich.table import Table

    skew = "unknown" if found.skew is None else f"{found.skew:.0%}"
    table = Table(title=f"{model}: the largest tensor has {skew} of the bytes sent")
    table.add_column("GPUs", no_wrap=True)
    for heading in ("iteration (s)", "spread (s)", "S(G)", "prior", "prior by skew"):
        table.add_column(heading, justify="right")
    for entry in found.measured:
        table.add_row(
            entry.placement,
            number(entry.iter_s, 4),
            number(entry.spread_s, 4),
            number(entry.slowdown),
            *priors(entry.signature, found.skew),
        )
    console = Console()
    console.print(table)
    fewest = min(entry.signature.gpus for entry in found.measured)
    if fewest > 1:
        console.print(f"S(G) is relative to {fewest} GPUs: one alone was not measured")
    if found.settings.get("device") == "cpu":
        console.print(
            "trained on CPUs: processes on one machine share its cores, which raises S(G)"
        )
    for line in found.not_measured:
        console.print(f"not measured: {line}", markup=False, highlight=False)
    console.print(f"written to {file}", markup=False, highlight=False)


def priors(signature: Signature, skew: float | None) -> tuple[str, str]:
    """S of a placement by the paper's prior and by the one for its skew, for the table."""
    if signature.gpus <= 1:
        return "1", "1"
    by_skew = skewed_priors(skew)[signature.level] if skew is not None else None
    return number(PRIORS[signature.level]), "" if by_skew is None else number(by_skew)
