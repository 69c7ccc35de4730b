"""What a move costs: from notice to the next app's first iteration, part by part, live.

Two apps in drivers of their own take turns on one (logical) GPU of a local Ray cluster under a real
arbiter. An app's first start is left out: it restores nothing, and on the warm path its driver's
first worker starts cold. Run it on a machine that does nothing else:

    python tests/benchmarks/lease_switch_bench.py [--quick] [--model resnet50] [--switches 3]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from headlines import headline

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

PARTS = {
    "finish the step": ("notice", "save"),
    "save": ("save", "saved"),
    "stop": ("saved", "stopped"),
    "placement group": ("stopped", "granted"),
    "process start": ("granted", "setup"),
    "import": ("setup", "imported"),
    "build": ("imported", "built"),
    "restore": ("built", "restored"),
    "first step": ("restored", "first_step"),
}
# Of one path; what there is by then is printed.
LIMIT_S = 900.0

Event = dict[str, Any]


def run_apps(folder: Path, warm: bool, options: argparse.Namespace) -> list[Event]:
    """Let two apps take turns until there were enough switches; return the events."""
    import ray

    import themis_ray
    from tests.ray_process import isolated_ray_environment

    folder.mkdir(parents=True)
    os.environ["PYTHONPATH"] = f"{HERE}:{os.environ.get('PYTHONPATH', '')}"
    with isolated_ray_environment() as place:
        ray.init(
            num_cpus=2,
            num_gpus=1,
            include_dashboard=False,
            log_to_driver=False,
            _temp_dir=str(place / "ray"),
        )
        drivers: list[subprocess.Popen[bytes]] = []
        try:
            # The worst-off app alone bids in this preset: the two take turns.
            themis_ray.start(
                policy="themis-paper",
                min_bidders=1,
                lease_s=options.lease_s,
                notice_s=options.lease_s / 5,
                grace_s=60,
            )
            for app in ("a", "b"):
                drivers.append(_start_driver(folder, app, warm, options.model))
            return _await_switches(folder, options.switches)
        finally:
            for driver in drivers:
                driver.kill()
                driver.wait()
            themis_ray.stop()
            ray.shutdown()


def _start_driver(folder: Path, app: str, warm: bool, model: str) -> subprocess.Popen[bytes]:
    import ray

    options = {
        "app": app,
        "folder": str(folder),
        "warm": warm,
        "model": model,
        "address": ray.get_runtime_context().gcs_address,
    }
    script = str(HERE / "lease_switch_trial.py")
    with (folder / f"{app}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-W", "ignore", script, json.dumps(options)],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
        )  # fmt: skip


def _await_switches(folder: Path, wanted: int) -> list[Event]:
    """Watch the events, and add when a trial's process is gone."""
    from lease_switch_trial import note

    gone: set[str] = set()
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        time.sleep(0.02)
        events = _read(folder)
        for event in events:
            life, pid = event["life"], event.get("pid")
            if pid and life not in gone and not Path(f"/proc/{pid}/fd").exists():
                gone.add(life)
                note(str(folder), life, "gone")
        if len(switches_of(events)) >= wanted:
            break
    return _read(folder)


def _read(folder: Path) -> list[Event]:
    file = folder / "events.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return sorted((json.loads(line) for line in lines), key=lambda event: float(event["time"]))


def switches_of(events: list[Event]) -> list[dict[str, float]]:
    """The times of each switch's events: the end of one app's lease, then another's start."""
    lives: dict[str, dict[str, float]] = {}
    apps: dict[str, str] = {}
    for event in events:
        if event["event"] == "setup":
            apps[event["life"]] = event["app"]
        times = lives.setdefault(event["life"], {})
        # The last save is the one that the pause makes, all else happens once.
        if event["event"] in ("save", "saved") or event["event"] not in times:
            times[event["event"]] = event["time"]
    grants = [(e["time"], e["app"]) for e in events if e["event"] == "granted"]
    order = sorted((lives[life]["setup"], life) for life in apps)
    found = []
    for (_, before), (_, after) in itertools.pairwise(order):
        new, old = lives[after], lives[before]
        granted = [t for t, app in grants if app == apps[after] and t <= new["setup"]]
        whole = {"restored", "first_step"} <= new.keys() and {"notice", "gone"} <= old.keys()
        if apps[before] != apps[after] and granted and whole:
            # The scheduler may hear of the notice before the trial does, and the group may be there
            # before the old process is seen to be gone.
            found.append(
                {
                    **new,
                    "notice": min(old["notice"], old["save"]),
                    "save": old["save"],
                    "saved": old["saved"],
                    "stopped": min(old["gone"], granted[-1]),
                    "gone": old["gone"],
                    "granted": granted[-1],
                }
            )
    return found


def parts_of(switch: dict[str, float]) -> dict[str, float]:
    """Seconds of each part, and from notice to the end of the first step."""
    parts = {name: switch[end] - switch[begin] for name, (begin, end) in PARTS.items()}
    after = {"the old process goes, after the grant": switch["gone"] - switch["granted"]}
    return {**parts, "in all": switch["first_step"] - switch["notice"], **after}


def main() -> int:
    """Measure with and without the warm path, and print a table."""
    from tests.ray_process import isolated_ray_environment  # noqa: F401  (fails early)

    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--switches", type=int, default=3)
    parser.add_argument("--lease-s", type=float, default=20.0)
    parser.add_argument("--quick", action="store_true", help="one switch on each path")
    parser.add_argument("--folder", type=Path, help="for logs, events and switches.json")
    options = parser.parse_args()
    if options.quick:
        options.switches = 1
    root = options.folder or Path(tempfile.mkdtemp(prefix="lease-switch-"))
    load = [os.getloadavg()[0]]
    table = {}
    for name, warm in (("cold", False), ("warm", True)):
        switches = switches_of(run_apps(root / name, warm, options))
        load.append(os.getloadavg()[0])
        table[name] = [parts_of(switch) for switch in switches]
        print(f"{name}: {len(switches)} switches", flush=True)
    _print(table, options.model, load)
    (root / "switches.json").write_text(json.dumps(table))
    print(f"each switch: {root / 'switches.json'}")
    return 0 if all(table.values()) else 1


def _print(table: dict[str, list[dict[str, float]]], model: str, load: list[float]) -> None:
    print(
        f"\n{model}, {os.cpu_count()} cores, load average "
        f"{min(load):.1f} to {max(load):.1f}; medians in seconds\n"
    )
    print("| part | cold | warm | the paper |\n|---|---|---|---|")
    paper = {"save": "5-10 (checkpoint)", "process start": "35-50 (container churn)"}
    for part in [*PARTS, "in all", "the old process goes, after the grant"]:
        values = [
            f"{statistics.median(s[part] for s in table[name]):.2f}" if table[name] else "-"
            for name in ("cold", "warm")
        ]
        print(f"| {part} | {values[0]} | {values[1]} | {paper.get(part, '')} |")
    medians = {
        name: statistics.median(switch["in all"] for switch in switches)
        for name, switches in table.items()
        if switches
    }
    for name, seconds in medians.items():
        what = f"from notice to the first step, {name}, {len(table[name])} switches"
        headline(what, f"{seconds:.1f} s")
    if len(medians) == 2:
        headline("cold over warm", f"{medians['cold'] / medians['warm']:.1f} times")


if __name__ == "__main__":
    sys.exit(main())
