"""One self-contained page with the plots of a simulation."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from themis_ray.errors import MissingExtraError
from themis_ray.reporting.timeline import by_app, in_use, on_grid
from themis_ray.sim.records import RunResult
from themis_ray.sim.study import Study

Runs = Sequence[tuple[RunResult, Mapping[str, Any]]]
HEIGHT_PX = 420


def check_plotly() -> None:
    """Find out before a long run.

    Raises:
        MissingExtraError: plotly is not installed.
    """
    try:
        import plotly.graph_objects  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("plotly", "plot") from error


def simulation_page(study: Study, runs: Runs) -> str:
    """An HTML page: CDFs of r and of completion times, GPUs over time, placement.

    The page holds all it needs, plotly's script included, and opens without a network.

    Raises:
        MissingExtraError: plotly is not installed.
    """
    check_plotly()
    figures = [
        _cdf(runs, "r", f"Finish-time fairness, r ({study.judge} judge)", line_at=1.0),
        _cdf(runs, "jct_s", "Completion time (s)", logarithmic=True),
        _placement(runs),
        _in_use(study, runs),
        *(_apps(study, result) for result, _ in runs),
    ]
    facts = html.escape(
        f"{len(study.trace.apps)} apps, {study.trace.jobs} jobs, "
        f"{study.cluster.cluster.gpus} GPUs, lease {study.config.arbiter.lease_s:g} s, "
        f"seed {study.config.seed}"
    )
    return page_of(f"{study.trace.name} on {study.cluster.name}", facts, figures)


def page_of(title: str, facts: str, figures: Sequence[Any]) -> str:
    """An HTML page of plotly figures.

    Args:
        title: Its title.
        facts: A line of HTML below it.
        figures: The figures; the page holds plotly's script once.
    """
    parts = [
        figure.to_html(
            full_html=False, include_plotlyjs="inline" if i == 0 else False, div_id=f"plot{i}"
        )
        for i, figure in enumerate(figures)
    ]
    title = html.escape(title)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        "<style>body{font-family:sans-serif;max-width:72rem;margin:auto}</style></head>\n"
        f"<body><h1>{title}</h1><p>{facts}</p>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def new_figure(title: str, x: str, y: str) -> Any:
    """An empty plotly figure in this package's style."""
    import plotly.graph_objects as go

    figure = go.Figure()
    figure.update_layout(
        title=title, xaxis_title=x, yaxis_title=y, height=HEIGHT_PX, template="plotly_white"
    )
    return figure


def _cdf(
    runs: Runs, key: str, title: str, *, logarithmic: bool = False, line_at: float | None = None
) -> Any:
    """The fraction of the apps at or below each value, for each policy."""
    figure = new_figure(f"{title}: fraction of apps at or below", title, "fraction of apps")
    for result, figures in runs:
        values = sorted(app[key] for app in figures["apps"])
        share = [(i + 1) / len(values) for i in range(len(values))]
        figure.add_scatter(x=values, y=share, name=result.policy, mode="lines", line_shape="hv")
    if logarithmic:
        figure.update_xaxes(type="log")
    if line_at is not None:
        figure.add_vline(x=line_at, line_dash="dot")
    return figure


def _placement(runs: Runs) -> Any:
    """The share of GPU time at or below each placement score."""
    title = "Placement score, 1 / S(G)"
    figure = new_figure(f"{title}: share of GPU time at or below", title, "share of GPU time")
    for result, _ in runs:
        time_at: dict[float, float] = {}
        for stay in result.stays:
            score = round(1 / stay.s, 6)
            time_at[score] = time_at.get(score, 0.0) + stay.size * (stay.end_s - stay.begin_s)
        total, below, share = sum(time_at.values()) or 1.0, 0.0, []
        for score in sorted(time_at):
            below += time_at[score]
            share.append(below / total)
        scores = sorted(time_at)
        figure.add_scatter(
            x=scores, y=share, name=result.policy, mode="lines+markers", line_shape="hv"
        )
    return figure


def _in_use(study: Study, runs: Runs) -> Any:
    figure = new_figure("GPUs in use", "time (h)", "GPUs")
    curves = [in_use(result.stays, result.policy) for result, _ in runs]
    times, means = on_grid(curves)
    for curve, mean in zip(curves, means, strict=True):
        figure.add_scatter(x=[t / 3600 for t in times], y=mean, name=curve.name, mode="lines")
    figure.add_hline(y=study.cluster.cluster.gpus, line_dash="dot")
    return figure


def _apps(study: Study, result: RunResult) -> Any:
    """GPUs over time, stacked by app."""
    figure = new_figure(f"GPUs by app, {result.policy}", "time (h)", "GPUs")
    curves = by_app(result.stays)
    times, means = on_grid(curves)
    for curve, mean in zip(curves, means, strict=True):
        figure.add_scatter(
            x=[t / 3600 for t in times],
            y=mean,
            name=curve.name,
            mode="lines",
            stackgroup="apps",
            line_width=0,
        )
    return figure
