"""Prometheus metrics of the live arbiter, through Ray's own exporter.

Ray publishes them on each node's metrics port, beside its own (its names get ``ray_`` in front), so
nothing else has to be scraped. Levels are taken from the status document every few seconds, events
are counted from the commands that the core gives.

Ray's agent opens the port only where ``ray[default]`` is installed (it needs opencensus,
prometheus_client and opentelemetry-exporter-prometheus, which ``ray[tune]`` lacks); without it the
metrics go nowhere, and nothing else is amiss. ``ray start --metrics-export-port`` sets the port, and
``ray.nodes()[i]["MetricsExportPort"]`` tells it: ``curl http://NODE:PORT/metrics | grep themis``.
Values come there with a delay of some ten seconds.

| metric | kind | what |
|---|---|---|
| ``themis_max_r`` | gauge | the greatest finite r of all apps; 0 when there is none |
| ``themis_app_r{app}`` | gauge | r of an app; 0 while it is infinite, and once the app has left |
| ``themis_app_gpus{app}`` | gauge | GPUs that an app holds |
| ``themis_app_wants{app}`` | gauge | GPUs that an app can use |
| ``themis_gpus{state}`` | gauge | GPUs ``leased``, ``free``, ``foreign``, and ``waiting``: won, and not yet left by their last holder |
| ``themis_apps`` | gauge | apps that are registered |
| ``themis_rounds_total`` | counter | rounds decided |
| ``themis_round_seconds`` | histogram | from asking for reports to the decision |
| ``themis_leases_ended_total{app}`` | counter | leases not renewed: preemptions; not there before the first |
| ``themis_hidden_payment{app}`` | gauge | 1 - c of an app's last win |
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from themis_ray.core.commands import Command, Decided, LeasesChanged, RequestReport
from themis_ray.core.explain import Won

ROUND_SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


class Instruments(Protocol):
    """Where figures go; :class:`RayInstruments` is the one for live use."""

    def level(self, name: str, value: float, tags: Mapping[str, str]) -> None:
        """A gauge has a value now."""

    def count(self, name: str, by: float, tags: Mapping[str, str]) -> None:
        """A counter goes up."""

    def spread(self, name: str, value: float) -> None:
        """A histogram has one more value."""


# What Ray is told of each metric: its description and its tags.
GAUGES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "themis_max_r": ("Greatest finite r of all apps", ()),
    "themis_app_r": ("Finish-time fairness of an app", ("app",)),
    "themis_app_gpus": ("GPUs that an app holds", ("app",)),
    "themis_app_wants": ("GPUs that an app can use", ("app",)),
    "themis_gpus": ("GPUs by state", ("state",)),
    "themis_apps": ("Apps that are registered", ()),
    "themis_hidden_payment": ("1 - c of an app's last win", ("app",)),
}
COUNTERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "themis_rounds_total": ("Rounds decided", ()),
    "themis_leases_ended_total": ("Leases not renewed", ("app",)),
}
HISTOGRAMS: Mapping[str, str] = {
    "themis_round_seconds": "Seconds from asking for reports to the decision",
}


class RayInstruments:
    """Metrics of this Ray worker; Ray must run."""

    def __init__(self) -> None:
        from ray.util import metrics

        self._gauges = {n: metrics.Gauge(n, text, tags) for n, (text, tags) in GAUGES.items()}
        self._counters = {n: metrics.Counter(n, text, tags) for n, (text, tags) in COUNTERS.items()}
        self._histograms = {
            n: metrics.Histogram(n, text, list(ROUND_SECONDS)) for n, text in HISTOGRAMS.items()
        }

    def level(self, name: str, value: float, tags: Mapping[str, str]) -> None:
        """A gauge has a value now."""
        self._gauges[name].set(value, dict(tags))

    def count(self, name: str, by: float, tags: Mapping[str, str]) -> None:
        """A counter goes up."""
        self._counters[name].inc(by, dict(tags))

    def spread(self, name: str, value: float) -> None:
        """A histogram has one more value."""
        self._histograms[name].observe(value)


class ArbiterMetrics:
    """Turns what an arbiter does into metrics.

    Args:
        instruments: Where they go.
    """

    def __init__(self, instruments: Instruments) -> None:
        self._to = instruments
        self._shown: set[str] = set()
        self._ended: set[str] = set()
        self._round: tuple[int, float] | None = None

    def decided(self, commands: Sequence[Command], now: float) -> None:
        """The core has said something.

        Args:
            commands: What it wants done.
            now: The time, on the arbiter's clock.
        """
        for command in commands:
            match command:
                case RequestReport(round_id=number):
                    if self._round is None or self._round[0] != number:
                        self._round = (number, now)
                case LeasesChanged():
                    self._count_ended(command)
                case Decided():
                    self._count_round(command, now)

    def _count_ended(self, command: LeasesChanged) -> None:
        for lease in command.leases:
            if lease.final and lease.id not in self._ended:
                self._ended.add(lease.id)
                self._to.count("themis_leases_ended_total", 1, {"app": command.app})

    def _count_round(self, command: Decided, now: float) -> None:
        self._to.count("themis_rounds_total", 1, {})
        if self._round is not None and self._round[0] == command.round_id:
            self._to.spread("themis_round_seconds", now - self._round[1])
        for app, reason in command.reasons.items():
            if isinstance(reason, Won):
                self._to.level("themis_hidden_payment", 1 - reason.payment_factor, {"app": app})

    def levels(self, status: Mapping[str, Any]) -> None:
        """Take the levels off a status document (:func:`themis_ray.live.snapshot.snapshot`)."""
        apps, nodes = status["apps"], status["nodes"]
        self._to.level("themis_max_r", status["max_r"] or 0.0, {})
        self._to.level("themis_apps", len(apps), {})
        for app in apps:
            tags = {"app": app["id"]}
            self._to.level("themis_app_r", app["r"] or 0.0, tags)
            self._to.level("themis_app_gpus", app["held"], tags)
            self._to.level("themis_app_wants", app["wants"], tags)
        self._forget({app["id"] for app in apps})
        leases = [lease for app in apps for lease in app["leases"]]
        self._ended &= {lease["id"] for lease in leases}
        states = {
            "leased": sum(app["held"] for app in apps),
            "free": sum(node["free"] for node in nodes),
            "foreign": sum(node["foreign"] for node in nodes),
            "waiting": sum(sum(lease["pending"].values()) for lease in leases),
        }
        for state, gpus in states.items():
            self._to.level("themis_gpus", gpus, {"state": state})

    def _forget(self, present: set[str]) -> None:
        """Gauges keep their last value: those of apps that have left go to 0."""
        for app in self._shown - present:
            for name in ("themis_app_r", "themis_app_gpus", "themis_app_wants"):
                self._to.level(name, 0.0, {"app": app})
            self._to.level("themis_hidden_payment", 0.0, {"app": app})
        self._shown = present
