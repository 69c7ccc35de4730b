"""``themis auction``: one partial-allocation auction on a file."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import Field, model_validator

from themis_ray.cli.inputs import Count, Positive, Strict, read_model
from themis_ray.cli.options import FileArgument, JsonOption
from themis_ray.cli.output import number, print_json
from themis_ray.core.auction import AuctionResult, assign_leftovers, run_auction
from themis_ray.core.bids import BidRow, BidTable, check_against_offer
from themis_ray.core.cluster import Allocation, Cluster, Level, Machine
from themis_ray.errors import BidError

if TYPE_CHECKING:
    from rich.console import Console

Gpus = dict[str, Annotated[int, Field(ge=0)]]
LevelName = Literal["slot", "machine", "rack", "cluster"]


class MachineIn(Strict):
    """A machine with free GPUs."""

    id: Annotated[str, Field(min_length=1)]
    gpus: Annotated[int, Field(ge=0)]
    rack: str = "r0"


class BidIn(Strict):
    """r for a bundle: ``gpus`` on named machines, or ``parts`` (and ``pinned``) on any."""

    r: float | None
    gpus: Gpus | None = None
    parts: list[Count] | None = None
    pinned: Gpus | None = None
    level: LevelName = "cluster"

    @model_validator(mode="after")
    def _sound(self) -> BidIn:
        if self.r is not None and not 0 < self.r < math.inf:
            raise ValueError(f"r is {self.r}; use a number above 0, or null for infinite")
        compact = self.parts is not None or self.pinned is not None
        if (self.gpus is not None) == compact:
            raise ValueError(
                'give either "gpus" (named machines) or "parts" (with "pinned" if need be)'
            )
        return self

    @property
    def bundle(self) -> Allocation:
        """The GPUs on named machines."""
        return Allocation(self.gpus or self.pinned or {})

    def row(self, app: str, index: int) -> BidRow:
        """The bid row."""
        r = math.inf if self.r is None else self.r
        parts = tuple(sorted(self.parts or (), reverse=True))
        try:
            return BidRow(r, self.bundle, parts, Level[self.level.upper()])
        except BidError as error:
            raise BidError(f"app {app!r}, bids[{index}]: {error}") from error


class AppIn(Strict):
    """A bidder."""

    id: Annotated[str, Field(min_length=1)]
    bids: list[BidIn]
    weight: Positive = 1.0

    def table(self, machines: Mapping[str, int]) -> BidTable:
        """Its bid table; a bid for nothing gives r with nothing won, infinite when left out."""
        nothing, rows = math.inf, []
        empty = 0
        for index, bid in enumerate(self.bids):
            self._check_machines(index, bid, machines)
            if bid.bundle or bid.parts:
                rows.append(bid.row(self.id, index))
                continue
            empty += 1
            nothing = math.inf if bid.r is None else bid.r
        if empty > 1:
            raise BidError(f"app {self.id!r} gives r for nothing {empty} times; give it once")
        return BidTable(self.id, nothing, tuple(rows))

    def _check_machines(self, index: int, bid: BidIn, machines: Mapping[str, int]) -> None:
        for machine, count in {**(bid.gpus or {}), **(bid.pinned or {})}.items():
            where = f"app {self.id!r}, bids[{index}]"
            if machine not in machines:
                known = ", ".join(sorted(machines)[:8]) or "none"
                raise BidError(
                    f"{where}: there is no machine {machine!r} on offer; the machines are {known}"
                )
            if count > machines[machine]:
                raise BidError(
                    f"{where}: asks for {count} GPUs of {machine!r}, which has "
                    f"{machines[machine]}; ask for no more"
                )


class AuctionIn(Strict):
    """The input of ``themis auction``."""

    machines: list[MachineIn]
    apps: list[AppIn]
    payment: Literal["gpus", "time"] = "time"
    seed: int = 0
    leftover: Literal["random", "placed"] | None = None
    time_budget_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None

    def cluster(self) -> Cluster:
        """The machines."""
        return Cluster(tuple(Machine(m.id, m.gpus, m.rack) for m in self.machines))

    def tables(self, cluster: Cluster) -> list[BidTable]:
        """The bids, checked against the machines."""
        free = {machine.id: machine.gpus for machine in cluster.machines}
        seen: set[str] = set()
        tables = []
        for app in self.apps:
            if app.id in seen:
                raise BidError(f"two apps have the id {app.id!r}; ids must differ")
            seen.add(app.id)
            tables.append(app.table(free))
            check_against_offer(tables[-1], cluster.capacity)
        return tables


def auction(
    file: FileArgument,
    json_: JsonOption = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say who harms whom, and what would have won more.")
    ] = False,
) -> None:
    """Run one partial-allocation auction on a file.

    log_nash_welfare is the sum of w * log(1 / r) over the apps that end with a finite r; gap says
    by which fraction the geometric mean of their 1 / r could at most be greater.
    """
    asked = read_model(file, AuctionIn)
    cluster = asked.cluster()
    tables = asked.tables(cluster)
    start = time.perf_counter()
    result = run_auction(
        cluster.capacity,
        cluster.racks,
        tables,
        payment=asked.payment,
        weights={app.id: app.weight for app in asked.apps},
        seed=asked.seed,
        time_budget_s=asked.time_budget_s,
    )
    seconds = time.perf_counter() - start
    given = _give_leftovers(asked, tables, result)
    document = _document(cluster, result, given, seconds)
    if explain:
        document["explain"] = _explanations(tables, result)
    if json_:
        print_json(document)
    else:
        _print_tables(tables, result, given, document)


def _give_leftovers(
    asked: AuctionIn, tables: list[BidTable], result: AuctionResult
) -> dict[str, Allocation] | None:
    """What is left over, given to bidders up to their largest bid; None when not asked for."""
    if asked.leftover is None:
        return None
    needs, gangs = {}, {}
    for table in tables:
        sizes = [row.size for row in table.rows if math.isfinite(row.r)]
        has = result.allocation[table.app].size
        needs[table.app] = max(0, max(sizes, default=0) - has)
        gangs[table.app] = 1 if has else min(sizes, default=1)
    return assign_leftovers(
        result.leftover,
        needs,
        mode=asked.leftover,
        seed=asked.seed,
        holds=result.allocation,
        min_gain=gangs,
    )


def _document(
    cluster: Cluster,
    result: AuctionResult,
    given: Mapping[str, Allocation] | None,
    seconds: float,
) -> dict[str, Any]:
    left = result.leftover
    for gpus in (given or {}).values():
        left = left - gpus
    document: dict[str, Any] = {
        "proportional_fair": _plain(result.proportional_fair),
        "payment_factor": dict(result.payment_factor),
        "allocation": _plain(result.allocation),
        "lease_fraction": dict(result.lease_fraction),
        "leftover": {machine.id: left.on(machine.id) for machine in cluster.machines},
        "log_nash_welfare": result.log_nash_welfare,
        "gap": result.gap,
        "seconds": seconds,
    }
    if given is not None:
        document["leftover_given"] = _plain(given)
    return document


def _plain(allocations: Mapping[str, Allocation]) -> dict[str, dict[str, int]]:
    return {app: dict(gpus) for app, gpus in allocations.items()}


def _explanations(tables: list[BidTable], result: AuctionResult) -> dict[str, Any]:
    """For each app: what it got and paid, whom it harmed, what it would have needed for more."""
    explained = {}
    for table in tables:
        app, wanted = table.app, result.wanted.get(table.app)
        value = result.values[app]
        more = None
        if wanted is not None:
            more = {
                "bundle": wanted.row.describe(),
                "level": wanted.row.level.name.lower(),
                "r": wanted.row.r,
                # V at which the bundle would have been worth its price.
                "r_needed": wanted.row.r * math.exp(-wanted.short),
            }
        explained[app] = {
            "r_before": table.r_nothing,
            "r_after": 1 / value if value else math.inf,
            "harm": dict(result.harm[app]),
            "payment_slack": result.payment_slack[app],
            "next_better": more,
        }
    return explained


def _print_tables(
    tables: list[BidTable],
    result: AuctionResult,
    given: Mapping[str, Allocation] | None,
    document: Mapping[str, Any],
) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    shown = Table("app", "proportionally fair", "c", "keeps", "lease", "r", title="auction")
    if given is not None:
        shown.add_column("left over")
    for table in tables:
        app = table.app
        value = result.values[app]
        cells = [
            app,
            str(result.proportional_fair[app]),
            number(result.payment_factor[app]),
            str(result.allocation[app]),
            f"{result.lease_fraction[app]:.1%}",
            number(1 / value if value else math.inf),
        ]
        shown.add_row(*cells, *([str(given[app])] if given is not None else []))
    console.print(shown)
    idle = Allocation(document["leftover"])
    console.print(f"left over: {idle} ({idle.size} GPUs)", highlight=False)
    console.print(
        f"log Nash welfare {number(result.log_nash_welfare, 6)}, gap {_gap(result.gap)}, "
        f"{document['seconds']:.3f} s",
        highlight=False,
    )
    if "explain" in document:
        _print_explanations(console, document["explain"])


def _gap(gap: float) -> str:
    if math.isinf(gap):
        return "unknown (more apps might be served)"
    return "0 (proved optimal)" if gap == 0 else f"{gap:.4%}"


def _print_explanations(console: Console, explained: Mapping[str, Any]) -> None:
    for app, facts in explained.items():
        console.print(f"\n{app}: r {number(facts['r_before'])} -> {number(facts['r_after'])}")
        worst = sorted(facts["harm"].items(), key=lambda item: (-item[1], item[0]))
        for other, harm in worst:
            if harm > 0:
                console.print(f"  pays for {other}, whose 1/r is {-math.expm1(-harm):.1%} lower")
            else:
                console.print(f"  {other} fares better with it there, by {math.expm1(-harm):.1%}")
        if not worst:
            console.print("  harms nobody")
        more = facts["next_better"]
        if more is None:
            console.print("  has the best bundle that it bid for")
        else:
            console.print(
                f"  next better: {more['bundle']} (r {number(more['r'])}); "
                f"to win it, r there would have to be about {number(more['r_needed'])}"
            )
