"""The plots beside the page: one self-contained HTML file, drawn with plotly."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from themis_ray.reporting.sim_plots import check_plotly, new_figure, page_of
from themis_ray.reproduce.evaluate import Result


def plots_page(results: Sequence[Result], facts: str) -> str:
    """An HTML page with a plot for each figure that has one.

    Raises:
        MissingExtraError: plotly is not installed.
    """
    check_plotly()
    drawn = [_draw(result) for result in results if result.figure.chart != "none" and result.cells]
    return page_of("The papers' evaluations, simulated anew", html.escape(facts), drawn)


def _draw(result: Result) -> Any:
    import plotly.colors
    import plotly.graph_objects as go

    figure = new_figure(result.figure.title, "", result.figure.unit)
    colours = plotly.colors.qualitative.Plotly
    for i, (row, cells) in enumerate(result.cells.items()):
        columns = list(cells)
        means = [cells[column].mean for column in columns]
        spread = [cells[column].deviation or 0.0 for column in columns]
        published = [cells[column].published for column in columns]
        style: dict[str, Any] = {
            "x": columns,
            "y": means,
            "name": row,
            "legendgroup": row,
            "error_y": {"type": "data", "array": spread, "visible": any(spread)},
        }
        colour = colours[i % len(colours)]
        if result.figure.chart == "lines":
            figure.add_trace(go.Scatter(mode="lines+markers", line_color=colour, **style))
        else:
            figure.add_trace(go.Bar(marker_color=colour, offsetgroup=row, **style))
        if any(value is not None for value in published):
            figure.add_trace(_published(row, columns, published, colour, result.figure.chart))
    return figure


def _published(
    row: str, columns: list[str], published: list[float | None], colour: str, chart: str
) -> Any:
    """The paper's values: a dotted line, or outlined bars beside ours."""
    import plotly.graph_objects as go

    name = f"{row}, published"
    if chart == "lines":
        return go.Scatter(
            x=columns,
            y=published,
            name=name,
            legendgroup=row,
            mode="lines+markers",
            line={"dash": "dot", "color": colour},
            marker_symbol="circle-open",
        )
    return go.Bar(
        x=columns,
        y=published,
        name=name,
        legendgroup=row,
        offsetgroup=name,
        marker={"color": "rgba(0,0,0,0)", "line": {"color": colour, "width": 2}},
    )
