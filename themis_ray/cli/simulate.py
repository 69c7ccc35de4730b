"""``themis simulate``: what policies would do with a workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from themis_ray.cli.durations import seconds
from themis_ray.cli.options import JsonOption, JudgeOption, one_of
from themis_ray.cli.output import (
    check_file_to_write,
    number,
    print_json,
    print_table,
    write_file,
)
from themis_ray.cli.progress import progress_of
from themis_ray.core.settings import ArbiterConfig, default_grid_s
from themis_ray.errors import InvalidInputError
from themis_ray.sim.cluster_file import MoveCost, SimCluster, load_cluster, with_profiles
from themis_ray.sim.generate import generate, is_spec
from themis_ray.sim.importers import FORMATS
from themis_ray.sim.jobs import Trace
from themis_ray.sim.judges import JUDGES
from themis_ray.sim.settings import SimConfig
from themis_ray.sim.study import (
    Study,
    fairness_knob,
    move_cost,
    policy_names,
    run_all,
    without_move_costs,
)
from themis_ray.sim.traces import load_trace, write_themis_csv

IDEALS = ("auto", "paper", "exclusive")
TRACE_HELP = (
    "A trace file (themis CSV, .csv.gz, Tiresias, Gavel, Philly or PCS), or a generated workload: "
    "w1, w2, tiresias, philly or alike with options, as in w1:seed=1,contention=2 (seed, apps, "
    "contention, load, gpus, gang, network, length, tuner, max_gpus, jobs)."
)


def simulate(
    cluster: Annotated[str, typer.Option(metavar="FILE", help="The simulated cluster, YAML.")],
    trace: Annotated[str, typer.Option(metavar="FILE|NAME", help=TRACE_HELP)],
    policy: Annotated[
        str, typer.Option(metavar="A,B", help="Policies, separated by commas, or all.")
    ] = "themis",
    lease: Annotated[str, typer.Option(help="The length of a lease.")] = "10m",
    fairness_knob_: Annotated[
        float | None,
        typer.Option("--fairness-knob", help="f: the 1-f worst-off apps bid.", show_default=False),
    ] = None,
    payment: Annotated[
        str | None, typer.Option(help="time or gpus; each policy's own if left out.")
    ] = None,
    recall_factor: Annotated[
        float | None,
        typer.Option(help="Recall leases from so many times the holder's r on; inf for never."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seeds all that is random.")] = 0,
    judge: JudgeOption = "fluid",
    ideal: Annotated[
        str, typer.Option(help="The T_id that apps report: paper, exclusive, or auto.")
    ] = "auto",
    restart: Annotated[
        str | None,
        typer.Option(
            help="What moving a job costs, for every model (2/9 of it for the checkpoint). "
            "Default: 45s, or what the cluster file says.",
            show_default=False,
        ),
    ] = None,
    notice: Annotated[str, typer.Option(help="Leases are put up so long before they end.")] = "10s",
    grace: Annotated[str, typer.Option(help="GPUs are taken so long after their lease.")] = "10s",
    lease_grid: Annotated[
        str | None,
        typer.Option(
            help="Leases end together at multiples of this; 0: each by itself. Default: a quarter "
            "of a lease, as live.",
            show_default=False,
        ),
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", help=f"The trace's format: auto, {', '.join(FORMATS)}.")
    ] = "auto",
    throughputs: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Gavel's throughput table, for its traces."),
    ] = None,
    profiles: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="S(G) of models, as themis profile measured it."),
    ] = None,
    save_trace: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the trace as CSV, too.")
    ] = None,
    plot: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write a page with plots, HTML.")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Run a workload on a simulated cluster under one or more policies.

    The same arbiter and the same policies as live, on virtual time. The same inputs and seed give
    the same output.
    """
    names = policy_names(policy)
    study = Study(
        cluster=_cluster(cluster, restart, profiles),
        trace=_trace(trace, format_, throughputs),
        config=_config(
            lease, notice, grace, lease_grid, restart, ideal, seed, record=plot is not None
        ),
        judge=one_of("--judge", judge, JUDGES),
        same_ideal=ideal != "auto",
        options=_policy_options(fairness_knob_, payment, recall_factor, seed),
    )
    if save_trace is not None:
        write_file("--save-trace", save_trace, write_themis_csv(study.trace))
    if plot is not None:
        from themis_ray.reporting.sim_plots import check_plotly

        check_plotly()
        check_file_to_write("--plot", plot)
    _warn_of_slow_checkpoints(study)
    with progress_of(len(study.trace.apps)) as told:
        runs = run_all(study, names, told)
    if plot is not None:
        from themis_ray.reporting.sim_plots import simulation_page

        write_file("--plot", plot, simulation_page(study, runs))
    document = _document(study, runs)
    if json_:
        print_json(document)
    else:
        _print_table(study, document["policies"])


def _cluster(file: str, restart: str | None, profile_file: str | None = None) -> SimCluster:
    sim = load_cluster(file)
    if profile_file is not None:
        sim = with_profiles(sim, profile_file)
    # What is asked for on the command line holds for every model.
    return sim if restart is None else without_move_costs(sim)


def _trace(text: str, format: str, throughputs: str | None) -> Trace:
    if is_spec(text) and not Path(text).exists():
        return generate(text)
    return load_trace(text, format=format, throughputs=throughputs)


def _config(
    lease: str,
    notice: str,
    grace: str,
    lease_grid: str | None,
    restart: str | None,
    ideal: str,
    seed: int,
    *,
    record: bool,
) -> SimConfig:
    lease_s = seconds(lease, "--lease")
    notice_s = min(seconds(notice, "--notice"), lease_s / 10)
    move = MoveCost()
    if restart is not None:
        move = move_cost(seconds(restart, "--restart", or_zero=True))
    return SimConfig(
        arbiter=ArbiterConfig(
            lease_s=lease_s,
            notice_s=notice_s,
            grace_s=seconds(grace, "--grace", or_zero=True),
            min_lease_s=min(60.0, lease_s / 10),
            lease_grid_s=(
                default_grid_s(lease_s)
                if lease_grid is None
                else seconds(lease_grid, "--lease-grid", or_zero=True)
            ),
        ),
        ideal="paper" if one_of("--ideal", ideal, IDEALS) == "paper" else "exclusive",
        move=move,
        seed=seed,
        record=record,
    )


def _policy_options(
    knob: float | None, payment: str | None, recall_factor: float | None, seed: int
) -> dict[str, Any]:
    options: dict[str, Any] = {"seed": seed}
    if knob is not None:
        if not 0 <= knob <= 1:
            raise InvalidInputError(f"--fairness-knob {knob}; use a number from 0 to 1")
        options["fairness_knob"] = fairness_knob(knob)
    if payment is not None:
        options["payment"] = one_of("--payment", payment, ("time", "gpus"))
    if recall_factor is not None:
        if not recall_factor >= 1:
            raise InvalidInputError(
                f"--recall-factor {recall_factor}; use 1 or more, or inf for never"
            )
        options["recall_factor"] = recall_factor
    return options


def _warn_of_slow_checkpoints(study: Study) -> None:
    """Jobs that cannot save in time lose what they did whenever they have to leave."""
    arbiter = study.config.arbiter
    allowed_s = arbiter.notice_s + arbiter.grace_s
    models = {job.model for app in study.trace.apps for job in app.jobs}
    moves = {model: study.cluster.profile(model).move or study.config.move for model in models}
    slow = {model: m.checkpoint_s for model, m in moves.items() if m.checkpoint_s > allowed_s}
    if slow:
        model = max(sorted(slow), key=lambda name: slow[name])
        typer.echo(
            f"themis: a checkpoint of {model} takes {slow[model]:.0f} s, longer than --notice and "
            f"--grace together ({allowed_s:g} s): jobs that have to leave lose their work since "
            "the last one",
            err=True,
        )


def _document(study: Study, runs: Sequence[tuple[Any, Mapping[str, Any]]]) -> dict[str, Any]:
    """What ``--json`` prints."""
    return {
        "cluster": study.cluster.name,
        "gpus": study.cluster.cluster.gpus,
        "trace": study.trace.name,
        "jobs": study.trace.jobs,
        "lease_s": study.config.arbiter.lease_s,
        "seed": study.config.seed,
        "judge": study.judge,
        "policies": {result.policy: dict(figures) for result, figures in runs},
    }


def _print_table(study: Study, policies: Mapping[str, Mapping[str, Any]]) -> None:
    title = (
        f"{len(study.trace.apps)} apps, {study.trace.jobs} jobs of {study.trace.name} on "
        f"{study.cluster.name} ({study.cluster.cluster.gpus} GPUs); r by the {study.judge} judge"
    )
    print_figures(title, policies)


def print_figures(title: str, rows: Mapping[str, Mapping[str, Any]]) -> None:
    """A table of the figures of some runs, by their names."""
    columns = (
        ("max r", "max_r", 2),
        ("p95 r", "p95_r", 2),
        ("median r", "median_r", 2),
        ("r <= 1", "fraction_r_le_1", 2),
        ("Jain", "jain_r", 3),
        ("JCT (s)", "avg_jct_s", 0),
        ("p95 JCT (s)", "p95_jct_s", 0),
        ("queue (s)", "avg_queue_s", 0),
        ("GPU-hours", "gpu_hours", 1),
        ("placement", "mean_placement_score", 3),
        ("moves", "preemptions", 0),
        ("in use", "utilisation", 2),
    )
    texts = {
        name: [number(figures[key], digits) for _, key, digits in columns]
        for name, figures in rows.items()
    }
    print_table(title, [heading for heading, _, _ in columns], texts, first="policy")
