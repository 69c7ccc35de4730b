"""Prints how the stopping rule does on the recorded curves: the tables of docs/curve_stopping.md.

::

    python tests/searchers/curve_report.py
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from curve_replay import Judged, brier, judge, recorded, reliability, replay

# The constants of the model error were chosen by these, and looked at on the others.
CHOSEN_BY = ("mlp/", "cnn/")


def table(name: str, judged: list[Judged]) -> None:
    score, base = brier(judged)
    inside = sum(0.05 <= j.spread <= 0.95 for j in judged) / len(judged)
    print(f"\n{name}: {len(judged)} forecasts; Brier score {score:.3f}, base rate {base:.3f}; "
          f"{inside:.0%} of last reports within the 90% interval\n")  # fmt: skip
    print("| chance | mean forecast | came true | forecasts |\n|---|---|---|---|")
    for low, high, chance, came, count in reliability(judged):
        print(f"| {low:.0%} to {high:.0%} | {chance:.1%} | {came:.1%} | {count} |")


def main() -> None:
    searches = recorded()
    print("| search | stopped | iterations saved | winner | best found | best there was |")
    print("|---|---|---|---|---|---|")
    for search in searches:
        out = replay(search)
        run, whole = out.iterations
        lost = search.winners() & set(out.stopped)
        fate = "kept" if not lost else f"stopped at {min(out.stopped[i] for i in lost)}"
        cells = [search.name, f"{len(out.stopped)} of {len(search.curves)}",
                 f"{1 - run / whole:.0%}", fate, *(f"{x:.4g}" for x in out.found)]  # fmt: skip
        print(f"| {' | '.join(cells)} |")
    started = time.process_time()
    by_search = {search.name: list(judge([search])) for search in searches}
    count = sum(len(j) for j in by_search.values())
    chosen = [j for n, js in by_search.items() if n.startswith(CHOSEN_BY) for j in js]
    rest = [
        j for n, js in by_search.items() if not n.startswith((*CHOSEN_BY, "shuffle")) for j in js
    ]
    plateau = [j for n, js in by_search.items() if n.startswith("shuffle") for j in js]
    table("Searches that the constants were chosen by", chosen)
    table("Searches that they were not chosen by", rest)
    table("The search with the plateau", plateau)
    print(f"\n{count} forecasts in {time.process_time() - started:.1f} s of CPU time")


if __name__ == "__main__":
    main()
