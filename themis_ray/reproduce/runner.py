"""Does the runs that figures ask for, each one once."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed

from themis_ray.reproduce.cache import Cache
from themis_ray.reproduce.outcome import Outcome
from themis_ray.reproduce.runs import Run, execute

# Auctions and linear programs take longest; begun first, they do not keep one process busy alone
# at the end.
SLOW_POLICIES = ("themis", "themis-paper", "max-min-r")

Done = Callable[[Run, Outcome, bool], None]


def do_runs(
    runs: Iterable[Run],
    *,
    jobs: int,
    cache: Cache,
    done: Done = lambda run, outcome, cached: None,
) -> dict[Run, Outcome]:
    """The outcome of each of the runs.

    Args:
        runs: May name a run several times.
        jobs: How many processes; 1 for none besides this one.
        cache: Finished runs.
        done: Called after each run, with whether it was in the cache.
    """
    outcomes: dict[Run, Outcome] = {}
    left = []
    for run in dict.fromkeys(runs):
        known = cache.get(run)
        if known is None:
            left.append(run)
        else:
            outcomes[run] = known
            done(run, known, True)
    left.sort(key=lambda run: run.policy not in SLOW_POLICIES)
    for run, outcome in _fresh(left, jobs):
        cache.put(run, outcome)
        outcomes[run] = outcome
        done(run, outcome, False)
    return outcomes


def _fresh(runs: list[Run], jobs: int) -> Iterator[tuple[Run, Outcome]]:
    if jobs == 1 or len(runs) < 2:
        for run in runs:
            yield run, execute(run)
        return
    # Forked processes would inherit the locks of the progress bar's thread.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(jobs, len(runs)), mp_context=context)
    try:
        futures = {pool.submit(execute, run): run for run in runs}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
