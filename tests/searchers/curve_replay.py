"""Recorded learning curves, and what the stopping rule would have made of them."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from themis_ray.searchers.curves import CurveFit, fit_curve, forecast
from themis_ray.searchers.curves.rule import RuleOptions, StoppingRule

DATA = Path(__file__).resolve().parent / "data" / "curves.json"
METRICS = {"loss": "min", "accuracy": "max"}
LIMITS = {"loss": (0.0, None), "accuracy": (0.0, 1.0)}


@dataclass(frozen=True)
class Recorded:
    """One recorded search, by one of its metrics.

    Attributes:
        name: The search and the metric.
        metric: ``loss`` or ``accuracy``, on held-out images.
        curves: Each trial's metric at iterations 1, 2, ...; NaN where it was not finite.
    """

    name: str
    metric: str
    curves: list[list[float]]

    @property
    def mode(self) -> str:
        return METRICS[self.metric]

    @property
    def length(self) -> int:
        return len(self.curves[0])

    def best_of(self, curve: Sequence[float]) -> float:
        finite = [v for v in curve if math.isfinite(v)]
        worst = math.inf if self.mode == "min" else -math.inf
        return (min if self.mode == "min" else max)(finite, default=worst)

    def winners(self) -> set[int]:
        """The trials that reach the best metric of the search."""
        bests = [self.best_of(curve) for curve in self.curves]
        top = self.best_of(bests)
        return {i for i, best in enumerate(bests) if best == top}


def recorded() -> list[Recorded]:
    """All searches, each by both metrics."""
    out = []
    for search in json.loads(DATA.read_text()):
        for metric in METRICS:
            curves = [
                [math.nan if v is None else float(v) for v in run[metric]] for run in search["runs"]
            ]
            out.append(Recorded(f"{search['name']}/{metric}", metric, curves))
    return out


@dataclass
class Replay:
    """What came of a search under the rule.

    Attributes:
        stopped: Iteration at which each stopped trial was stopped.
        iterations: Iterations run, and those of an undisturbed search.
        found: The best metric found, and the undisturbed search's.
    """

    stopped: dict[int, int] = field(default_factory=dict)
    iterations: tuple[int, int] = (0, 0)
    found: tuple[float, float] = (0.0, 0.0)


def replay(search: Recorded, at_once: int | None = None, **options: Any) -> Replay:
    """Run the rule over a recorded search, ``at_once`` trials side by side (all when None)."""
    n = search.length
    given = {
        "mode": search.mode,
        "max_t": n,
        "grace_period": max(4, math.ceil(n / 10)),
        "check_interval": max(1, n // 20),
        "limits": LIMITS[search.metric],
        **options,
    }
    rule = StoppingRule(RuleOptions(**given))
    out, done = Replay(), 0
    seen: list[float] = []
    waiting, running = list(range(len(search.curves))), {}
    while waiting or running:
        while waiting and len(running) < (at_once or len(search.curves)):
            running[waiting.pop(0)] = 0
        for i in list(running):
            running[i] += 1
            value = search.curves[i][running[i] - 1]
            verdict = rule.report(str(i), running[i], value)
            done += 1
            seen.append(value)
            if verdict.stop:
                out.stopped[i] = running[i]
            if verdict.stop or running[i] == n:
                rule.end(str(i))
                del running[i]
    out.iterations = (done, n * len(search.curves))
    out.found = (search.best_of(seen), search.best_of([search.best_of(c) for c in search.curves]))
    return out


@dataclass(frozen=True)
class Judged:
    """One forecast beside what came of it.

    Attributes:
        search: Which search.
        chance: The forecast probability that the trial reaches the target by its end.
        came: Whether it did.
        spread: Where in the forecast's distribution the last report fell, 0 to 1.
        share: How far the trial was, as a share of its length.
    """

    search: str
    chance: float
    came: bool
    spread: float
    share: float


def judge(searches: Sequence[Recorded], shares: Sequence[float] = (0.1, 0.2, 0.35, 0.5, 0.7)
          ) -> Iterator[Judged]:  # fmt: skip
    """Forecasts of every recorded curve, made when shares of it are known.

    The targets are the quartiles and the ninth decile of what the search's trials reach.
    """
    for search in searches:
        reached = [search.best_of(c) for c in search.curves]
        finite = [r for r in reached if math.isfinite(r)]
        q = (0.9, 0.75, 0.5, 0.25) if search.mode == "max" else (0.1, 0.25, 0.5, 0.75)
        targets = [float(t) for t in np.quantile(finite, q)]
        gains = [abs(c[0] - r) for c, r in zip(search.curves, reached, strict=True)]
        for i, curve in enumerate(search.curves):
            others = float(np.nanmedian([g for j, g in enumerate(gains) if j != i]))
            for share in shares:
                now = max(4, round(share * search.length))
                fit = fit_curve(enumerate(curve[:now], 1), search.mode, peer_gain=others, seed=i)
                if fit.known:
                    yield from _judge(search, curve, now, fit, targets, share)


def _judge(search: Recorded, curve: Sequence[float], now: int, fit: CurveFit,
           targets: Sequence[float], share: float) -> Iterator[Judged]:  # fmt: skip
    ahead = forecast(fit, search.length, limits=LIMITS[search.metric])
    ends = ahead.reports[:, -1]
    last = fit.signed(curve[-1])
    spread = float((ends < last).mean() + 0.5 * (ends == last).mean())
    so_far, final = search.best_of(curve[:now]), search.best_of(curve)
    for target in targets:
        # What has been reached already is no forecast.
        if fit.signed(so_far) > fit.signed(target):
            came = fit.signed(final) <= fit.signed(target)
            yield Judged(search.name, ahead.chance_of(target), came, spread, share)


def brier(judged: Sequence[Judged]) -> tuple[float, float]:
    """Brier's score of the forecasts, and of always forecasting the base rate."""
    came = np.array([j.came for j in judged], dtype=float)
    chance = np.array([j.chance for j in judged])
    return float(((chance - came) ** 2).mean()), float(((came.mean() - came) ** 2).mean())


def reliability(judged: Sequence[Judged]) -> list[tuple[float, float, float, float, int]]:
    """``(from, to, mean chance, how often it came, count)`` of each bin that has forecasts."""
    edges = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
    out = []
    for low, high in itertools.pairwise(edges):
        mine = [j for j in judged if low <= j.chance < high or (high == 1.0 and j.chance == 1.0)]
        if mine:
            chance = float(np.mean([j.chance for j in mine]))
            out.append((low, high, chance, float(np.mean([j.came for j in mine])), len(mine)))
    return out
