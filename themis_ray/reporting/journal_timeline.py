"""Who held which machine's GPUs when: one page, made of a live cluster's journal."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from themis_ray.reporting.sim_plots import check_plotly
from themis_ray.reporting.timeline import by_app, on_grid
from themis_ray.sim.replay_history import History

LANE_PX = 22
MARGIN_PX = 180


@dataclass(frozen=True, slots=True)
class Bar:
    """One GPU of a machine, held by an app for a time; times in seconds since 1970.

    Attributes:
        machine: The machine.
        lane: Which of its GPUs, counted from 0. Ray does not say which one it was: GPUs are
            dealt out in the order of their leases.
        app: The app.
        group: Its placement group.
        begin_s: From when.
        end_s: Until when.
    """

    machine: str
    lane: int
    app: str
    group: str
    begin_s: float
    end_s: float

    @property
    def size(self) -> int:
        """One GPU."""
        return 1


def bars(history: History) -> list[Bar]:
    """The bars of all placement groups, by begin."""
    stays = [(stay.begin_s, app.id, stay) for app in history.apps for stay in app.stays]
    free_s: dict[str, list[float]] = {}  # from when each lane of a machine is free
    out = []
    for begin_s, app, stay in sorted(stays, key=lambda item: item[:2]):
        end_s = begin_s if stay.end_s is None else stay.end_s
        for machine, count in stay.gpus.items():
            lanes = free_s.setdefault(machine, [])
            for lane in _take(lanes, count, begin_s, end_s):
                out.append(Bar(machine, lane, app, stay.group, begin_s, end_s))
    return out


def _take(lanes: list[float], count: int, begin_s: float, end_s: float) -> list[int]:
    """The first lanes that are free at a time, new ones if need be; they are taken until an end."""
    chosen = [i for i, free_s in enumerate(lanes) if free_s <= begin_s][:count]
    while len(chosen) < count:
        chosen.append(len(lanes))
        lanes.append(begin_s)
    for lane in chosen:
        lanes[lane] = end_s
    return chosen


def timeline_page(history: History, title: str) -> str:
    """An HTML page with a bar for each GPU that was held, and GPUs by app over time.

    The page holds all it needs, plotly's script included, and opens without a network.

    Raises:
        MissingExtraError: plotly is not installed.
    """
    check_plotly()
    drawn = bars(history)
    figures = [_machines(history, drawn), _by_app(history, drawn)]
    parts = [
        figure.to_html(
            full_html=False, include_plotlyjs="inline" if i == 0 else False, div_id=f"plot{i}"
        )
        for i, figure in enumerate(figures)
    ]
    policies = ", ".join(dict.fromkeys(header.policy for header in history.headers))
    facts = html.escape(
        f"{len(history.apps)} apps, {history.rounds} rounds of {policies}, "
        f"{_time(history.begin_s):%Y-%m-%d %H:%M} to {_time(history.end_s):%Y-%m-%d %H:%M} UTC"
    )
    head = html.escape(title)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{head}</title>'
        "<style>body{font-family:sans-serif;max-width:80rem;margin:auto}</style></head>\n"
        f"<body><h1>{head}</h1><p>{facts}</p>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _machines(history: History, drawn: list[Bar]) -> Any:
    """A row for each GPU, a bar for each time that an app held it."""
    import plotly.graph_objects as go

    rows = sorted({(bar.machine, bar.lane) for bar in drawn})
    figure = go.Figure()
    for app, held in _of_apps(history, drawn).items():
        figure.add_bar(
            name=app,
            orientation="h",
            y=[_row(bar.machine, bar.lane) for bar in held],
            base=[_time(bar.begin_s) for bar in held],
            x=[1000 * (bar.end_s - bar.begin_s) for bar in held],  # milliseconds on a time axis
            text=[app] * len(held),
            hovertext=[f"{bar.group}, {bar.end_s - bar.begin_s:.0f} s" for bar in held],
        )
    figure.update_layout(
        title="Who held which machine's GPUs",
        barmode="overlay",
        template="plotly_white",
        height=MARGIN_PX + LANE_PX * max(1, len(rows)),
    )
    figure.update_xaxes(type="date")
    order = [_row(machine, lane) for machine, lane in rows]
    figure.update_yaxes(categoryorder="array", categoryarray=order[::-1])
    return figure


def _row(machine: str, lane: int) -> str:
    return f"{machine} #{lane}"


def _of_apps(history: History, drawn: Iterable[Bar]) -> Mapping[str, list[Bar]]:
    held: dict[str, list[Bar]] = {app.id: [] for app in history.apps}
    for bar in drawn:
        held[bar.app].append(bar)
    return {app: some for app, some in held.items() if some}


def _by_app(history: History, drawn: list[Bar]) -> Any:
    """GPUs over time, stacked by app."""
    import plotly.graph_objects as go

    figure = go.Figure()
    figure.update_layout(
        title="GPUs by app", xaxis_title="hours", yaxis_title="GPUs", template="plotly_white"
    )
    shifted = [
        Bar(
            bar.machine,
            bar.lane,
            bar.app,
            bar.group,
            bar.begin_s - history.begin_s,
            bar.end_s - history.begin_s,
        )
        for bar in drawn
    ]
    curves = by_app(shifted)
    times, means = on_grid(curves)
    for curve, mean in zip(curves, means, strict=True):
        figure.add_scatter(
            x=[t / 3600 for t in times], y=mean, name=curve.name, stackgroup="apps", line_width=0
        )
    return figure
