"""An app that takes GPUs from others and does nothing with them, to have leases end in tests."""

from __future__ import annotations

import math
import random
import threading
from typing import Any

from ray import tune

from themis_ray.core import events as ev
from themis_ray.core.bids import BidRow, BidTable
from themis_ray.core.cluster import Allocation
from themis_ray.core.commands import LeasesChanged, RequestReport, SendOffer
from themis_ray.live import client as live
from themis_ray.rpc.client import AgentClient
from themis_ray.rpc.messages import RegisterRequest

# An app whose lease is put up has r = infinity like the rival, and then the one further behind its
# fair share, as a multiple of its T_id, comes first. With these that is the rival whenever it has
# not had what it wants all the time, however quick it and the others have been so far.
SURE_WEIGHT, SURE_T_IDEAL_S = 1e9, 1e-3


class Rival:
    """Bids for ``wants`` GPUs as if it were worst off; gives all back when ``wants`` is 0.

    With ``min_bidders=1`` it is the only bidder, so it gets what it wants of what is put up.

    Args:
        name: Its app name.
        wants: GPUs that it wants; settable at any time.
        machine: The only machine whose GPUs it wants; any when empty.
        weight: Its weight.
        t_ideal_s: Its time alone, in seconds.
    """

    def __init__(
        self,
        name: str = "rival",
        wants: int = 0,
        machine: str = "",
        weight: float = SURE_WEIGHT,
        t_ideal_s: float = SURE_T_IDEAL_S,
    ) -> None:
        self.name = name
        self.machine = machine
        self.wants = wants
        self.weight = weight
        self.t_ideal_s = t_ideal_s
        self.held = 0
        self.changed = threading.Condition()
        self.client = AgentClient(live.endpoint, self._register, self._on_command, lambda *_: None)
        self.client.connect()

    def want(self, gpus: int) -> None:
        """Want so many GPUs from now on; gives back what is too much."""
        self.wants = gpus
        self.client.send(ev.Reported(self.name, self._report()))
        if gpus == 0 and self._leases:
            for lease in self._leases:
                if lease.held:
                    self.client.send(ev.GpusReturned(self.name, lease.held))

    def wait_held(self, gpus: int, timeout_s: float = 30.0) -> None:
        """Wait until it holds so many GPUs."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.held == gpus, timeout_s), self.held

    def close(self) -> None:
        """Leave."""
        self.client.close()

    _leases: tuple[Any, ...] = ()

    def _report(self) -> ev.AppReport:
        return ev.AppReport(math.inf, math.inf, self.t_ideal_s, self.wants)

    def _register(self) -> RegisterRequest:
        return RegisterRequest(self.name, self._report(), self.weight)

    def _row(self, gpus: int) -> BidRow:
        """Ten times better off with each GPU: the auction gives it what it wants."""
        r = 100.0 / 10.0**gpus
        if self.machine:
            return BidRow(r, pinned=Allocation({self.machine: gpus}))
        return BidRow(r, parts=(1,) * gpus)

    def _on_command(self, command: object) -> None:
        match command:
            case RequestReport():
                self.client.send(ev.Reported(self.name, self._report(), command.round_id))
            case SendOffer():
                there = command.offer.on(self.machine) if self.machine else command.offer.size
                sizes = range(1, min(self.wants - command.kept.size, there) + 1)
                rows = tuple(self._row(n) for n in sizes)
                table = BidTable(self.name, 100.0, rows)
                self.client.send(ev.BidReceived(command.round_id, table))
            case LeasesChanged():
                with self.changed:
                    self._leases = command.leases
                    self.held = sum(lease.held.size for lease in command.leases)
                    self.changed.notify_all()


class Disturbance(tune.Callback):  # type: ignore[misc]  # ray is untyped
    """Has a rival take GPUs again and again, driven by the trials' progress and not by time.

    After some reports it wants a random number of GPUs, and gives them back as soon as it has
    them, so that leases end at random moments and the search always gets on.

    Args:
        seed: Decides when and how many.
        every: The least and the most reports between two times.
    """

    def __init__(self, seed: int, every: tuple[int, int] = (6, 16)) -> None:
        self._rng = random.Random(seed)
        self._every = every
        self._left = self._rng.randint(*every)
        self._rival: Rival | None = None
        self.taken = 0

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: Any,
                        **info: Any) -> None:  # fmt: skip
        if self._rival is None:
            self._rival = Rival()
        self._left -= 1
        if self._left == 0:
            self._rival.want(self._rng.randint(1, 4))

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        rival = self._rival
        if rival is not None and rival.wants and rival.held >= rival.wants:
            self.taken += 1
            rival.want(0)
            self._left = self._rng.randint(*self._every)

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        if self._rival is not None:
            self._rival.close()
            self._rival = None
