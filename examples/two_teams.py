"""Two teams share one small cluster: what ``make demo`` runs. No GPU is needed.

Three Ray nodes with four logical GPUs in all; two drivers, each in its own process, each with a
plain ``tune.run``; leases of a few seconds, so that trials really are paused, moved and resumed.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ray
from ray.cluster_utils import Cluster
from rich.console import Console
from rich.live import Live

import themis_ray
from themis_ray.reporting.mlflow_report import app_report
from themis_ray.reporting.render import status_table
from themis_ray.reporting.view import status_view

HERE = Path(__file__).resolve().parent
OUTPUT = Path("demo-output").resolve()
LEASE_S = 20.0


def start_cluster() -> Cluster:
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 2, "num_gpus": 2, "include_dashboard": False},
    )
    cluster.add_node(num_cpus=1, num_gpus=1)
    cluster.add_node(num_cpus=1, num_gpus=1)
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False)
    return cluster


def start_team(script: str, address: str) -> subprocess.Popen[bytes]:
    log = (OUTPUT / script).with_suffix(".log").open("wb")
    env = {**os.environ, "RAY_ADDRESS": address, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, str(HERE / script)], cwd=OUTPUT, env=env, stdout=log, stderr=log
    )


def watch(teams: list[subprocess.Popen[bytes]], console: Console) -> None:
    with Live(console=console, refresh_per_second=2) as live:
        while any(team.poll() is None for team in teams):
            live.update(status_table(status_view(themis_ray.status())))
            time.sleep(1)


def main() -> int:
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # one machine, one user
    os.environ["RAY_TMPDIR"] = tempfile.mkdtemp(prefix="themis")  # leave another Ray alone
    OUTPUT.mkdir(exist_ok=True)
    console = Console()
    console.print(f"Starting three Ray nodes with four logical GPUs; output goes to {OUTPUT}")
    cluster = start_cluster()
    themis_ray.start(lease_s=LEASE_S, notice_s=3, grace_s=15)
    teams = [start_team("team_vgg.py", cluster.address)]
    time.sleep(15)  # the second team comes later, to a cluster that is in use
    teams.append(start_team("team_residual.py", cluster.address))
    watch(teams, console)
    themis_ray.stop()
    ray.shutdown()
    cluster.shutdown()
    console.print()
    console.print(app_report(f"sqlite:///{OUTPUT / 'mlflow.db'}", ["team-vgg", "team-residual"]))
    return max(team.returncode for team in teams)


if __name__ == "__main__":
    sys.exit(main())
