"""An app's runs in MLflow: one parent for the app, one child for each trial.

Runs are found again by their tags, so that a trial that is paused and resumed, or an experiment
whose driver is restarted, goes on in the runs it had. Only ``MlflowClient`` is used: it has no
active run that other code of the process could share by accident. Every method talks to the store
and may raise what MLflow raises; :mod:`themis_ray.reporting.mlflow` repeats what failed.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PARENT = ""
APP_TAG = "themis.app"
RUN_TAG = "themis.run"
TRIAL_TAG = "themis.trial_id"
POLICY_TAG = "themis.policy"
LEASE_TAG = "themis.lease"
# All leases that a trial has had, as in "vm-1a2b3c4d:1 > vm-5e6f7a8b:2".
HISTORY_TAG = "themis.history"
LOST_TAG = "themis.lost_points"
_PARENT_TAG = "mlflow.parentRunId"
_USER_TAG = "mlflow.user"

# MLflow's limits for one batch, and for a parameter's value.
_METRICS_PER_BATCH = 1000
_PARAMS_PER_BATCH = 100
_PARAM_VALUE_CHARACTERS = 6000
_KEY_CHARACTERS = 250


@dataclass(frozen=True, slots=True)
class RunSpec:
    """A run to be found or made.

    Attributes:
        key: :data:`PARENT`, or the trial's id.
        name: Its name in the user interface.
        tags: Tags that are set each time it is opened; for the parent they must have
            :data:`APP_TAG` and :data:`RUN_TAG`, by which it is found again.
        params: Parameters, logged once in the run's life: MLflow forbids to change them.
    """

    key: str
    name: str
    tags: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Points:
    """Metric values of one report, and the tags that it changes.

    Attributes:
        key: The run's key.
        metrics: Values by name.
        step: The training step.
        timestamp_ms: When, in milliseconds since the epoch.
        tags: Tags to set.
    """

    key: str
    metrics: Mapping[str, float]
    step: int
    timestamp_ms: int
    tags: Mapping[str, str] = field(default_factory=dict)


class RunStore:
    """The runs of one app in one MLflow experiment.

    Args:
        uri: A resolved tracking URI.
        experiment: The MLflow experiment's name; it is made when it does not exist.
    """

    def __init__(self, uri: str, experiment: str) -> None:
        self._uri = uri
        self._experiment = experiment
        self._connected: tuple[Any, str] | None = None
        self._run_ids: dict[str, str] = {}

    def open(self, spec: RunSpec) -> None:
        """Find or make a run; the parent's must be opened before the others."""
        client, experiment_id = self._connect()
        found = self._find(spec)
        if found is None:
            tags = dict(spec.tags) | self._identity(spec)
            run = client.create_run(experiment_id, tags=tags, run_name=spec.name)
            run_id, has_params = run.info.run_id, False
        else:
            run_id, has_params = found.info.run_id, bool(found.data.params)
            self._set_tags(run_id, spec.tags)
            if found.info.status != "RUNNING":
                client.update_run(run_id, status="RUNNING")
        if not has_params:
            self._log_params(run_id, spec.params)
        self._run_ids[spec.key] = run_id

    def log(self, key: str, points: Sequence[Points]) -> None:
        """Add metric values and tags to an open run."""
        from mlflow.entities import Metric

        client, _ = self._connect()
        run_id = self._run_ids[key]
        metrics = [
            Metric(metric_key(name), value, report.timestamp_ms, report.step)
            for report in points
            for name, value in report.metrics.items()
        ]
        for start in range(0, len(metrics), _METRICS_PER_BATCH):
            client.log_batch(run_id, metrics=metrics[start : start + _METRICS_PER_BATCH])
        tags: dict[str, str] = {}
        for report in points:
            tags |= report.tags
        self._set_tags(run_id, tags)

    def close(self, key: str, status: str) -> None:
        """End a run as ``FINISHED``, ``FAILED`` or ``KILLED``."""
        client, _ = self._connect()
        client.set_terminated(self._run_ids[key], status)

    def settle(self, verdict: Callable[[str], str], lost_points: int) -> None:
        """Close every run of the app that is still open, those of earlier drivers included.

        Args:
            verdict: The status for a key.
            lost_points: Metric values that could not be written.
        """
        parent = self._run_ids.get(PARENT)
        if parent is None:
            return
        client, _ = self._connect()
        open_children = f"tags.`{_PARENT_TAG}` = '{parent}' and attributes.status = 'RUNNING'"
        for run in list(self._search(open_children)):
            client.set_terminated(run.info.run_id, verdict(run.data.tags.get(TRIAL_TAG, "")))
        if lost_points:
            client.set_tag(parent, LOST_TAG, str(lost_points))
        client.set_terminated(parent, verdict(PARENT))

    def is_open(self, key: str) -> bool:
        """Whether this store knows the run of a key."""
        return key in self._run_ids

    def _connect(self) -> tuple[Any, str]:
        """The client and the experiment's id."""
        if self._connected is None:
            from mlflow import MlflowClient

            with _one_at_a_time(self._uri):
                client = MlflowClient(tracking_uri=self._uri)
                self._connected = client, self._experiment_id(client)
        return self._connected

    def _experiment_id(self, client: Any) -> str:
        from mlflow.exceptions import MlflowException

        experiment = client.get_experiment_by_name(self._experiment)
        if experiment is None:
            try:
                return str(client.create_experiment(self._experiment, _artifacts(self._uri)))
            except MlflowException:
                # Another app may have made it in the meantime.
                experiment = client.get_experiment_by_name(self._experiment)
                if experiment is None:
                    raise
        return str(experiment.experiment_id)

    def _identity(self, spec: RunSpec) -> dict[str, str]:
        """The tags that a new run is found by, and its user."""
        tags = {} if spec.key == PARENT else {TRIAL_TAG: spec.key, _PARENT_TAG: self._parent()}
        with contextlib.suppress(OSError, KeyError):
            tags[_USER_TAG] = getpass.getuser()
        return tags

    def _parent(self) -> str:
        return self._run_ids[PARENT]

    def _find(self, spec: RunSpec) -> Any:
        if spec.key == PARENT:
            wanted = {APP_TAG: spec.tags[APP_TAG], RUN_TAG: spec.tags[RUN_TAG]}
        else:
            wanted = {TRIAL_TAG: spec.key, _PARENT_TAG: self._parent()}
        # A quote in a name cannot be escaped in MLflow's filters; "_" stands for any character.
        likes = {tag: re.sub("['\"]", "_", value) for tag, value in wanted.items()}
        clauses = " and ".join(f"tags.`{tag}` LIKE '{value}'" for tag, value in likes.items())
        for run in self._search(clauses):
            tags = run.data.tags
            if all(tags.get(k) == v for k, v in wanted.items()) and (
                spec.key != PARENT or _PARENT_TAG not in tags
            ):
                return run
        return None

    def _search(self, filter_string: str) -> Iterator[Any]:
        client, experiment_id = self._connect()
        token = None
        while True:
            page = client.search_runs([experiment_id], filter_string, page_token=token)
            yield from page
            token = page.token
            if not token:
                return

    def _set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        from mlflow.entities import RunTag

        if tags:
            client, _ = self._connect()
            client.log_batch(run_id, tags=[RunTag(key, value) for key, value in tags.items()])

    def _log_params(self, run_id: str, params: Mapping[str, str]) -> None:
        from mlflow.entities import Param

        client, _ = self._connect()
        entries = [
            Param(metric_key(key), value[:_PARAM_VALUE_CHARACTERS]) for key, value in params.items()
        ]
        for start in range(0, len(entries), _PARAMS_PER_BATCH):
            client.log_batch(run_id, params=entries[start : start + _PARAMS_PER_BATCH])


def metric_key(name: str) -> str:
    """A name that MLflow accepts: letters, digits and ``_-. :/``, up to 250 characters."""
    return re.sub(r"[^\w\-. :/]", "_", name, flags=re.ASCII).strip("/")[:_KEY_CHARACTERS] or "_"


def sqlite_file(uri: str) -> Path | None:
    """The database file of a sqlite URI."""
    match = re.match(r"sqlite:///([^?]*)", uri)
    return Path(match[1]) if match else None


def _artifacts(uri: str) -> str | None:
    """Where artifacts go: beside a database file, or where the server says."""
    file = sqlite_file(uri)
    return None if file is None else (file.parent / "mlartifacts").as_uri()


@contextlib.contextmanager
def _one_at_a_time(uri: str) -> Iterator[None]:
    """Let one process at a time make the tables of a database file: MLflow takes no lock itself."""
    if sqlite_file(uri) is None:
        yield
        return
    import fcntl

    name = hashlib.sha256(uri.encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir()) / f"themis-mlflow-{os.getuid()}-{name}.lock"
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
