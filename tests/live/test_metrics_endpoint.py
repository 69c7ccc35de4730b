"""What a Prometheus server reads of an arbiter at its node's endpoint."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

from tests.ray_process import Driver, eventually
from tests.rival import Rival
from themis_ray.reporting.metrics import COUNTERS, GAUGES, HISTOGRAMS

# What Ray's agent on each node needs to answer; without them it does not open the port.
PACKAGES = ("opencensus", "prometheus_client", "opentelemetry.exporter.prometheus", "aiohttp_cors")

Labels = frozenset[tuple[str, str]]


def missing() -> list[str]:
    """The packages that are not installed."""

    def there(package: str) -> bool:
        try:
            return find_spec(package) is not None
        except ModuleNotFoundError:  # of a package's parent
            return False

    return [package for package in PACKAGES if not there(package)]


pytestmark = pytest.mark.skipif(
    bool(missing()), reason=f"pip install 'ray[default]': no {', '.join(missing())}"
)


def scrape() -> dict[tuple[str, Labels], float]:
    """Our series at all endpoints of the cluster, by name and our own labels."""
    import ray
    from prometheus_client.parser import text_string_to_metric_families

    found = {}
    for node in ray.nodes():
        where = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
        with urllib.request.urlopen(where, timeout=30) as answer:
            text = answer.read().decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name.startswith("ray_themis_"):
                    ours = {k: v for k, v in sample.labels.items() if k in ("app", "state", "le")}
                    found[sample.name, frozenset(ours.items())] = sample.value
    return found


def test_an_apps_life_at_the_endpoint(
    arbiter: Callable[..., dict[str, Any]], drive: Callable[..., Driver]
) -> None:
    arbiter(min_bidders=1)
    driver = drive(app="measured", trials=2, steps=100_000)
    app, everyone = frozenset({("app", "measured")}), frozenset[tuple[str, str]]()

    def gpus(state: str) -> tuple[str, Labels]:
        return "ray_themis_gpus", frozenset({("state", state)})

    def told(wanted: dict[tuple[str, Labels], float]) -> dict[tuple[str, Labels], float]:
        """All series, once these have the values that are waited for."""
        now = scrape()
        return now if wanted.items() <= now.items() else {}

    two = {
        ("ray_themis_apps", everyone): 1.0,
        ("ray_themis_app_gpus", app): 2.0,
        ("ray_themis_app_wants", app): 2.0,
        ("ray_themis_hidden_payment", app): 0.0,  # alone it does nobody any harm
        gpus("leased"): 2.0,
        gpus("free"): 2.0,
        gpus("foreign"): 0.0,
        gpus("waiting"): 0.0,
    }
    seen = eventually("two GPUs are used", lambda: told(two), 120)
    assert seen["ray_themis_rounds_total", everyone] >= 1
    assert seen["ray_themis_round_seconds_count", everyone] >= 1
    assert seen["ray_themis_round_seconds_sum", everyone] > 0

    rival = Rival(wants=4)
    none = {("ray_themis_app_gpus", app): 0.0}
    seen = eventually("both GPUs are taken away", lambda: told(none), 120)
    assert seen["ray_themis_leases_ended_total", app] >= 1
    rival.close()

    driver.stop()
    gone = {("ray_themis_apps", everyone): 0.0, ("ray_themis_app_wants", app): 0.0, **none}
    seen = eventually("the app has left", lambda: told(gone))
    names = {name.removeprefix("ray_") for name, _ in seen}
    assert {*GAUGES, *COUNTERS, *(f"{name}_bucket" for name in HISTOGRAMS)} <= names
