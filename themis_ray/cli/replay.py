"""``themis replay``: what a live cluster has recorded, checked, or run under other policies."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from themis_ray.cli.durations import seconds
from themis_ray.cli.options import JournalArgument, JsonOption, JudgeOption, one_of
from themis_ray.cli.output import number, print_json, print_table, write_file
from themis_ray.cli.progress import progress_of
from themis_ray.cli.simulate import print_figures
from themis_ray.core.journal import Header, options_of
from themis_ray.core.policies import POLICIES, Policy
from themis_ray.core.settings import ArbiterConfig
from themis_ray.errors import ConfigError, InvalidInputError, JournalError
from themis_ray.live.journal_reader import read_journal
from themis_ray.sim.judges import JUDGES
from themis_ray.sim.replay import Replay
from themis_ray.sim.replay_history import History
from themis_ray.sim.replay_live import live_figures
from themis_ray.sim.replay_trace import Recorded, cluster_yaml, recorded_workload
from themis_ray.sim.settings import SimConfig
from themis_ray.sim.study import Study, move_cost, policy_names, without_move_costs
from themis_ray.sim.traces import write_themis_csv

# What the recorded policy shares with the others; the rest are a policy's own options.
SHARED = ("seed",)
# The simulator's leases need a notice.
LEAST_NOTICE_S = 0.001
MOST_APPS_SHOWN = 40


def replay(
    journal: JournalArgument,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Feed the events to the arbiter again: the decisions must be the same."
        ),
    ] = False,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="A,B", help="Simulate these policies, too, separated by commas; or all."
        ),
    ] = None,
    lease: Annotated[
        str | None, typer.Option(help="Simulate leases of this length; as recorded if left out.")
    ] = None,
    restart: Annotated[
        str | None,
        typer.Option(help="What moving a job costs; as the apps measured it if left out."),
    ] = None,
    judge: JudgeOption = "fluid",
    seed: Annotated[
        int | None, typer.Option(help="Seeds all that is random; as recorded if left out.")
    ] = None,
    to_trace: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.csv",
            help="Write the workload as a trace for themis simulate, and the cluster beside it, as "
            "FILE.yaml.",
        ),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """What a live cluster did, and what it would have done under other policies.

    The apps that joined, with the iterations that their jobs ran, are simulated on the machines
    that were there: under the recorded policy, which shows how far the simulation can be trusted,
    and under those of --policy. What really happened stands beside it.
    """
    if check:
        _check(journal, json_)
        return
    warnings: list[str] = []
    history = History()
    for place, line in read_journal(journal, warnings.append):
        history.take(place, line)
    recorded = recorded_workload(history.finish(), Path(journal).name)
    notes = [*warnings, *recorded.notes]
    if to_trace is not None:
        notes += _write_trace(to_trace, recorded)
        if policy is None:
            _print_written(to_trace, recorded, notes, json_)
            return
    by = one_of("--judge", judge, JUDGES)
    what_if = _what_if(history, recorded, lease, restart, by, seed)
    rows = what_if.run(policy, notes)
    live = live_figures(history, recorded, what_if.study.judge, what_if.study.config.seed)
    if live is None:
        notes.append("no app had finished when the journal ended: there are no live figures")
    if json_:
        print_json(_document(journal, history, what_if, live, rows, notes))
    else:
        _print(history, what_if, live, rows, notes)


# -- check ------------------------------------------------------------------------------------


def _check(journal: str, as_json: bool) -> None:
    """Print whether the decisions are the same.

    Raises:
        typer.Exit: With code 1 if they are not.
        JournalError: There is nothing to check.
    """
    warnings: list[str] = []
    done = Replay()
    for place, line in read_journal(journal, warnings.append):
        done.take(place, line)
    if not done.events and done.skipped:
        raise JournalError(
            f"{journal}: the beginning of every run is gone, so no decision can be checked; keep "
            "more with the option journal_parts"
        )
    for warning in warnings:
        print(f"themis: {warning}", file=sys.stderr)
    if as_json:
        print_json(
            {
                "journal": journal,
                "same": not done.partings,
                "runs": done.runs,
                "events": done.events,
                "skipped": done.skipped,
                "partings": [asdict(parting) for parting in done.partings],
                "warnings": warnings,
            }
        )
    for parting in done.partings:
        print(f"themis: {parting}", file=sys.stderr)
    if done.partings:
        raise typer.Exit(1)
    if not as_json:
        typer.echo(f"the same decisions: {done.events} events in {done.runs} runs of the arbiter")


# -- what if ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _WhatIf:
    """What is simulated."""

    header: Header
    study: Study

    def run(self, policy: str | None, notes: list[str]) -> dict[str, dict[str, Any]]:
        """The figures of the recorded policy and of those asked for, by name."""
        asked = [] if policy is None else policy_names(policy)
        policies: dict[str, Policy] = {}
        try:
            policies[self.header.policy] = self.header.make_policy()
        except ConfigError as error:
            if not asked:
                raise
            notes.append(f"the recorded policy is not simulated: {error}")
        for name in asked:
            policies.setdefault(name, self.study.policy(name))
        with progress_of(len(self.study.trace.apps)) as told:
            return {
                name: self.study.figures(self.study.run_policy(made, told))
                for name, made in policies.items()
            }


def _what_if(
    history: History,
    recorded: Recorded,
    lease: str | None,
    restart: str | None,
    judge: Any,
    seed: int | None,
) -> _WhatIf:
    header = history.headers[-1]
    if seed is not None:
        options = {**header.options, "seed": seed} if "seed" in header.options else header.options
        header = replace(header, options=options)
    known = POLICIES.get(header.policy)
    own = {} if known is None else options_of(known, header.options)
    shared = {name: value for name, value in own.items() if name in SHARED}
    shared["seed"] = seed if seed is not None else shared.get("seed", 0)
    cluster = recorded.cluster
    config = SimConfig(
        arbiter=_arbiter_config(header.config, lease),
        failures=recorded.failures,
        seed=shared["seed"],
    )
    if restart is not None:
        config = replace(config, move=move_cost(seconds(restart, "--restart", or_zero=True)))
        cluster = without_move_costs(cluster)
    return _WhatIf(header, Study(cluster, recorded.trace, config, judge=judge, options=shared))


def _arbiter_config(recorded: ArbiterConfig, lease: str | None) -> ArbiterConfig:
    """The recorded times; the simulator's apps answer at once, so that nothing is waited for.

    With leases of another length, the grid and the shortest lease are the same parts of a lease.
    """
    lease_s = recorded.lease_s if lease is None else seconds(lease, "--lease")
    scale = lease_s / recorded.lease_s
    notice_s = min(recorded.notice_s, recorded.lease_s if lease is None else lease_s / 10)
    return replace(
        recorded,
        lease_s=lease_s,
        notice_s=max(notice_s, LEAST_NOTICE_S),
        min_lease_s=min(recorded.min_lease_s * scale, lease_s),
        lease_grid_s=recorded.lease_grid_s * scale,
        round_delay_s=0.0,
    )


# -- output -----------------------------------------------------------------------------------


def _write_trace(file: str, recorded: Recorded) -> list[str]:
    """Write the trace and the cluster; returns what they cannot hold."""
    path = Path(file)
    if path.suffix == ".yaml":
        raise InvalidInputError(f"--to-trace: {file} is the cluster's name; use a name in .csv")
    write_file("--to-trace", path, write_themis_csv(recorded.trace))
    write_file("--to-trace", path.with_suffix(".yaml"), cluster_yaml(recorded.cluster))
    if recorded.failures:
        return ["machines came and went; the cluster file has all of them, for all the time"]
    return []


def _print_written(file: str, recorded: Recorded, notes: Sequence[str], as_json: bool) -> None:
    cluster = str(Path(file).with_suffix(".yaml"))
    apps, jobs = len(recorded.trace.apps), recorded.trace.jobs
    if as_json:
        document = {"trace": file, "cluster": cluster, "apps": apps, "jobs": jobs, "notes": notes}
        print_json(document)
        return
    typer.echo(f"{apps} apps with {jobs} jobs are in {file}, the cluster is in {cluster}")
    _print_notes(notes)


def _document(
    journal: str,
    history: History,
    what_if: _WhatIf,
    live: Mapping[str, Any] | None,
    rows: Mapping[str, Any],
    notes: Sequence[str],
) -> dict[str, Any]:
    study = what_if.study
    return {
        "journal": journal,
        "runs": len(history.headers),
        "seconds": history.end_s - history.begin_s,
        "gpus": study.cluster.cluster.gpus,
        "jobs": study.trace.jobs,
        "recorded_policy": what_if.header.policy,
        "lease_s": study.config.arbiter.lease_s,
        "seed": study.config.seed,
        "judge": study.judge,
        "live": live,
        "policies": rows,
        "notes": notes,
    }


def _print(
    history: History,
    what_if: _WhatIf,
    live: Mapping[str, Any] | None,
    rows: Mapping[str, Mapping[str, Any]],
    notes: Sequence[str],
) -> None:
    study = what_if.study
    title = (
        f"{len(study.trace.apps)} apps, {study.trace.jobs} jobs of {study.trace.name} on "
        f"{study.cluster.cluster.gpus} GPUs, lease {study.config.arbiter.lease_s:g} s; "
        f"r by the {study.judge} judge"
    )
    recorded = {} if live is None else {f"live: {what_if.header.policy}": live}
    print_figures(title, {**recorded, **rows})
    _print_apps(history, what_if, live, rows)
    _print_notes(notes)


def _print_apps(
    history: History,
    what_if: _WhatIf,
    live: Mapping[str, Any] | None,
    rows: Mapping[str, Mapping[str, Any]],
) -> None:
    """JCT and r of each app, live and simulated."""
    table = {}
    reported = {app.id: app.r for app in history.apps}
    happened = {app["id"]: app for app in (live or {}).get("apps", ())}
    simulated = {name: {a["id"]: a for a in rows[name]["apps"]} for name in rows}
    shown = what_if.study.trace.apps[:MOST_APPS_SHOWN]
    for app in shown:
        was, told = happened.get(app.id), reported[app.id]
        table[app.id] = [
            "not finished" if was is None else _time_and_r(was),
            "" if told is None else f"r {number(told, 2)}",
            *(_time_and_r(simulated[name][app.id]) for name in rows),
        ]
    headings = ["live", "as it reported", *rows]
    print_table("completion time in seconds, and r", headings, table, first="app")
    left = len(what_if.study.trace.apps) - len(shown)
    if left:
        typer.echo(f"and {left} more apps: --json lists them all")


def _time_and_r(app: Mapping[str, Any]) -> str:
    return f"{number(app['jct_s'], 0)}, r {number(app['r'], 2)}"


def _print_notes(notes: Sequence[str]) -> None:
    for note in notes:
        typer.echo(f"note: {note}")
