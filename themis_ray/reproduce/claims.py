"""Claims that many figures make, and how they are judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from themis_ray.reproduce.figure import Values, Verdict

Check = Callable[[Values], Verdict]


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


# Values nearer than this, as a fraction, are level.
LEVEL = 0.001


def least(row: str, column: str, others: Sequence[str] | None = None, slack: float = 0.0) -> Check:
    """A row has the least value of a column; with ``slack``, is at most that fraction above it.

    Without slack, a value that is level with the best other decides nothing.
    """

    def check(values: Values) -> Verdict:
        ours = values[row][column]
        rivals = {
            name: cells[column]
            for name, cells in values.items()
            if name != row and (others is None or name in others)
        }
        best = min(rivals, key=lambda name: rivals[name])
        said = f"{row} {_figure(ours)}, the best other is {best} {_figure(rivals[best])}"
        if not slack and abs(ours - rivals[best]) <= LEVEL * abs(rivals[best]):
            return Verdict(None, f"level: {said}")
        return Verdict(ours <= rivals[best] * (1 + slack), said)

    return check


def greatest(row: str, column: str, others: Sequence[str] | None = None) -> Check:
    """A row has the greatest value of a column."""

    def check(values: Values) -> Verdict:
        rivals = [n for n in values if n != row and (others is None or n in others)]
        best = max(rivals, key=lambda name: values[name][column])
        ours, other = values[row][column], values[best][column]
        said = f"{row} {_figure(ours)}, the best other is {best} {_figure(other)}"
        if abs(ours - other) <= LEVEL * abs(other):
            return Verdict(None, f"level: {said}")
        return Verdict(ours > other, said)

    return check


def below(low: tuple[str, str], high: tuple[str, str], factor: float = 1.0) -> Check:
    """The value at (row, column) ``low`` times ``factor`` is below that at ``high``."""

    def check(values: Values) -> Verdict:
        a, b = values[low[0]][low[1]], values[high[0]][high[1]]
        said = f"{low[0]} ({low[1]}) {_figure(a)}, {high[0]} ({high[1]}) {_figure(b)}"
        if factor == 1 and abs(a - b) <= LEVEL * abs(b):
            return Verdict(None, f"level: {said}")
        return Verdict(a * factor < b, said)

    return check


def alike(column: str, rows: Sequence[str], within: float) -> Check:
    """All rows have about the same value in a column: the greatest over the least."""

    def check(values: Values) -> Verdict:
        found = [values[row][column] for row in rows]
        low, high = min(found), max(found)
        return Verdict(high <= low * (1 + within), f"from {_figure(low)} to {_figure(high)}")

    return check


def at_most(row: str, column: str, limit: float) -> Check:
    """A value is not above a limit."""

    def check(values: Values) -> Verdict:
        value = values[row][column]
        return Verdict(value <= limit, f"{row} ({column}) {_figure(value)}")

    return check


def changes_by(row: str, first: str, last: str, most: float) -> Check:
    """From one column to another a row's value changes by a fraction of at most ``most``."""

    def check(values: Values) -> Verdict:
        a, b = values[row][first], values[row][last]
        return Verdict(
            abs(b / a - 1) <= most,
            f"{_figure(a)} becomes {_figure(b)} ({100 * (b / a - 1):+.1f} %)",
        )

    return check


def peaks_inside(row: str) -> Check:
    """A row's greatest value is at neither end."""

    def check(values: Values) -> Verdict:
        columns = list(values[row])
        top = max(columns, key=lambda column: values[row][column])
        return Verdict(
            top not in (columns[0], columns[-1]),
            f"the greatest, {_figure(values[row][top])}, is at {top}",
        )

    return check


def bottom_at(row: str, columns: Sequence[str]) -> Check:
    """A row's least value is at one of some columns."""

    def check(values: Values) -> Verdict:
        low = min(values[row], key=lambda column: values[row][column])
        return Verdict(low in columns, f"the least, {_figure(values[row][low])}, is at {low}")

    return check
