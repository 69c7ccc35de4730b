"""What MLflow has of finished apps, as tables: r, each trial's leases, the best trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from themis_ray.reporting.mlflow import require_mlflow, resolve_tracking_uri
from themis_ray.reporting.mlflow_runs import APP_TAG, HISTORY_TAG
from themis_ray.reporting.render import figure

PARENT_TAG = "mlflow.parentRunId"


def app_report(
    tracking_uri: str,
    apps: Sequence[str],
    *,
    metric: str = "loss",
    mode: str = "min",
    experiment_name: str = "themis",
) -> RenderableType:
    """The newest run of each app, and how to open MLflow.

    Args:
        tracking_uri: Where the runs are.
        apps: The apps' names.
        metric: What the trials are compared by.
        mode: ``"min"`` or ``"max"``.
        experiment_name: The MLflow experiment.

    Raises:
        MissingExtraError: MLflow is not installed.
    """
    require_mlflow()
    from mlflow.tracking import MlflowClient

    uri = resolve_tracking_uri(tracking_uri)
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name(experiment_name)
    parts: list[RenderableType] = []
    for app in apps if experiment else ():
        runs = client.search_runs(
            [experiment.experiment_id],
            filter_string=f"tags.`{APP_TAG}` = '{app}'",
            order_by=["attributes.start_time DESC"],
            max_results=1000,
        )
        parents = [run for run in runs if PARENT_TAG not in run.data.tags]
        if parents:
            children = [
                run for run in runs if run.data.tags.get(PARENT_TAG) == parents[0].info.run_id
            ]
            parts.append(_app_table(parents[0], children, metric, mode))
    parts.append(Text(f"Open MLflow with: mlflow ui --backend-store-uri {uri}"))
    return Group(*parts)


def _app_table(parent: Any, children: Sequence[Any], metric: str, mode: str) -> Table:
    r = parent.data.metrics.get("themis/r")
    title = f"{parent.data.tags[APP_TAG]}: r = {figure(r) if r is not None else 'not known'}"
    table = Table(title=title, title_justify="left", title_style="bold")
    for heading in ("trial", "status", "steps", metric, "leases (GPUs by machine, in turn)"):
        table.add_column(heading, overflow="fold")
    scored = [run for run in children if metric in run.data.metrics]
    best = None
    if scored:
        pick = min if mode == "min" else max
        best = pick(scored, key=lambda run: run.data.metrics[metric]).info.run_id
    varied = _varied(children)
    for run in sorted(children, key=lambda run: run.info.run_name):
        data = run.data
        name = ", ".join(f"{k}={data.params[k]}" for k in varied if k in data.params)
        table.add_row(
            (name or run.info.run_name) + (" (best)" if run.info.run_id == best else ""),
            run.info.status,
            f"{data.metrics.get('train_step', data.metrics.get('training_iteration', 0)):.0f}",
            f"{data.metrics[metric]:.4g}" if metric in data.metrics else "",
            data.tags.get(HISTORY_TAG, ""),
        )
    return table


def _varied(runs: Sequence[Any]) -> list[str]:
    """The parameters in which the trials differ."""
    names = sorted({name for run in runs for name in run.data.params})
    return [n for n in names if len({run.data.params.get(n) for run in runs}) > 1]
