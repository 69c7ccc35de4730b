"""Writes to MLflow in the background, so that a slow or dead server never holds up training.

Callers put reports into memory and go on. One thread sends them, and repeats what failed until it
is through; what does not fit into the memory set aside, or is not through at the end, is lost and
counted. One warning tells when sending first fails, and one at the end how many points were lost.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import os
import re
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from pathlib import Path

from themis_ray.errors import ConfigError, MissingExtraError
from themis_ray.reporting.mlflow_runs import PARENT, Points, RunSpec, RunStore

log = logging.getLogger(__name__)

DEFAULT_FILE = "mlflow.db"
MAX_WAITING_REPORTS = 20_000
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
# Repeating these cannot help: the request itself is refused.
_REFUSALS = frozenset(
    {
        "BAD_REQUEST",
        "INVALID_PARAMETER_VALUE",
        "INVALID_STATE",
        "PERMISSION_DENIED",
        "RESOURCE_DOES_NOT_EXIST",
    }
)
_DATABRICKS = ("databricks", "databricks-uc", "uc")


def require_mlflow() -> None:
    """Say what to install when MLflow is missing, without importing it (that takes seconds).

    Raises:
        MissingExtraError: MLflow is not installed.
    """
    if importlib.util.find_spec("mlflow") is None:
        raise MissingExtraError("mlflow", "mlflow")


def resolve_tracking_uri(uri: str | None) -> str:
    """The tracking URI that is meant, independent of the working directory.

    Args:
        uri: A tracking URI; None for ``MLFLOW_TRACKING_URI``, and without that for the sqlite file
            ``mlflow.db`` in the working directory.

    Raises:
        ConfigError: It is a folder (which MLflow 3 refuses to write to) or a database in memory.
    """
    uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{DEFAULT_FILE}"
    if uri in _DATABRICKS:
        return uri
    scheme = re.match(r"([a-zA-Z][\w+.\-]*):", uri)
    if scheme is None or scheme[1].lower() == "file":
        raise ConfigError(
            f"MLflow tracking URI {uri!r} is a folder, which MLflow no longer writes to; use a "
            f"file such as sqlite:///{DEFAULT_FILE}, or a server such as http://127.0.0.1:5000"
        )
    if scheme[1].lower() != "sqlite":
        return uri
    match = re.fullmatch(r"sqlite:///([^?]+)(\?.*)?", uri)
    if match is None or match[1] == ":memory:":
        raise ConfigError(
            f"MLflow tracking URI {uri!r} names no file; use one such as sqlite:///{DEFAULT_FILE}"
        )
    return f"sqlite:///{Path(match[1]).absolute()}{match[2] or ''}"


class Tracker:
    """Sends an app's runs and points to MLflow from a thread of its own.

    Args:
        uri: A resolved tracking URI.
        experiment: The MLflow experiment's name.
        max_waiting: Reports kept in memory while the store does not answer; when there are more,
            the oldest are lost.
        store: Where to write; made from ``uri`` when None.
    """

    def __init__(
        self,
        uri: str,
        experiment: str,
        *,
        max_waiting: int = MAX_WAITING_REPORTS,
        store: RunStore | None = None,
    ) -> None:
        # Not the whole URI: it may have a password.
        self._where = f"MLflow at {re.sub('//[^/@]*@', '//', uri)}"
        self._store = store or RunStore(uri, experiment)
        self._max_waiting = max_waiting
        self._told: set[str] = set()
        self._wake = threading.Condition()
        # All below is guarded by _wake. In _specs the parent comes first: children refer to it.
        self._specs: OrderedDict[str, RunSpec] = OrderedDict()
        self._points: deque[Points] = deque()
        self._sending: list[Points] = []
        self._ends: dict[str, str] = {}
        self._verdict: Callable[[str], str] | None = None
        self._deadline_s: float | None = None
        self._lost = 0
        self._thread = threading.Thread(target=self._run, name="themis-mlflow", daemon=True)
        self._thread.start()

    # -- the caller's side: none of these waits for MLflow, except finish ---------------------

    def open(self, spec: RunSpec) -> None:
        """Have a run opened, or opened again."""
        with self._wake:
            self._specs[spec.key] = spec
            if spec.key == PARENT:
                self._specs.move_to_end(PARENT, last=False)
            self._ends.pop(spec.key, None)
            self._wake.notify_all()

    def add(self, points: Points) -> None:
        """Have a report written."""
        with self._wake:
            self._points.append(points)
            self._drop_overflow()
            self._wake.notify_all()

    def end(self, key: str, status: str) -> None:
        """Have a run closed when all its points are written."""
        with self._wake:
            self._ends[key] = status
            self._wake.notify_all()

    def drain(self, timeout_s: float) -> bool:
        """Wait until everything so far is written; False when it is not within ``timeout_s``."""
        with self._wake:
            return self._wake.wait_for(self._idle, timeout_s)

    def _idle(self) -> bool:
        return not (self._specs or self._points or self._sending or self._ends)

    def finish(self, verdict: Callable[[str], str], timeout_s: float) -> int:
        """Write what waits, close the runs that are still open, and stop.

        Args:
            verdict: The status of each open run, by its key.
            timeout_s: How long to wait for all that.

        Returns:
            How many metric values were lost.
        """
        with self._wake:
            if self._deadline_s is not None:
                return self._lost
            self._verdict = verdict
            self._deadline_s = time.monotonic() + timeout_s
            self._wake.notify_all()
        self._thread.join(timeout_s)
        with self._wake:
            unsettled = self._verdict is not None
            for points in [*self._sending, *self._points]:
                self._lost += len(points.metrics)
            self._sending = []
            self._points.clear()
            lost = self._lost
        if lost or unsettled:
            log.warning(
                "%s: %d metric values were lost%s; training was not affected",
                self._where,
                lost,
                " and runs may still look open" if unsettled else "",
            )
        return lost

    def _drop_overflow(self) -> None:
        while len(self._points) > self._max_waiting:
            self._lost += len(self._points.popleft().metrics)

    # -- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while self._wait_for_work():
            try:
                self._write_all()
                pause_s = _FIRST_PAUSE_S
            except Exception as error:
                self._warn_once("does not take data", error, "it is kept and sent later")
                self._rest(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _wait_for_work(self) -> bool:
        """Wait until there is something to write; False when all is done or the time is up."""
        with self._wake:
            self._wake.wait_for(lambda: not self._idle() or self._deadline_s is not None)
            return self._deadline_s is None or (
                self._verdict is not None and time.monotonic() < self._deadline_s
            )

    def _rest(self, pause_s: float) -> None:
        """Wait before trying again; :meth:`finish` cuts a long pause short, once."""
        with self._wake:
            if self._deadline_s is None:
                self._wake.wait_for(lambda: self._deadline_s is not None, pause_s)
            else:
                left_s = self._deadline_s - time.monotonic()
                self._wake.wait(max(0.0, min(pause_s, left_s)))

    def _write_all(self) -> None:
        """Write everything that waits; what fails stays, or is put back."""
        self._open_runs()
        while self._write_points():
            self._open_runs()
        self._close_runs()
        with self._wake:
            verdict, lost = self._verdict, self._lost
            idle = self._idle()
            if idle:
                self._wake.notify_all()
        if verdict is not None and idle:
            self._store.settle(verdict, lost)
            with self._wake:
                self._verdict = None

    def _open_runs(self) -> None:
        while True:
            with self._wake:
                spec = next(iter(self._specs.values()), None)
            if spec is None:
                return
            # Without the parent, which MLflow has refused then, there is nothing to belong to.
            if spec.key == PARENT or self._store.is_open(PARENT):
                self._refused(functools.partial(self._store.open, spec))
            with self._wake:
                if self._specs.get(spec.key) is spec:
                    del self._specs[spec.key]

    def _write_points(self) -> bool:
        """Write the points of one run; False when none wait.

        A run that was asked for since the last look is opened before its points are written.
        """
        with self._wake:
            key = next((p.key for p in self._points if p.key not in self._specs), None)
            if key is None:
                return bool(self._points)
            self._sending = [points for points in self._points if points.key == key]
            self._points = deque(points for points in self._points if points.key != key)
            sending = self._sending
        try:
            refused = not self._store.is_open(key) or self._refused(
                functools.partial(self._store.log, key, sending)
            )
        except Exception:
            with self._wake:
                # At the end of the queue, so that a run in trouble does not hold up the others.
                self._points.extend(self._sending)
                self._sending = []
                self._drop_overflow()
            raise
        with self._wake:
            if refused:
                self._lost += sum(len(points.metrics) for points in self._sending)
            self._sending = []
        return True

    def _close_runs(self) -> None:
        while True:
            with self._wake:
                busy = {points.key for points in self._points}.union(self._specs)
                key = next((key for key in self._ends if key not in busy), None)
                if key is None:
                    return
                status = self._ends[key]
            if self._store.is_open(key):
                self._refused(functools.partial(self._store.close, key, status))
            with self._wake:
                if self._ends.get(key) == status:
                    del self._ends[key]

    def _refused(self, call: Callable[[], None]) -> bool:
        """Call; True when MLflow refuses for good. Errors that are worth a repeat are raised."""
        try:
            call()
        except Exception as error:
            if getattr(error, "error_code", None) not in _REFUSALS:
                raise
            self._warn_once("refuses data", error, "that data is lost")
            return True
        return False

    def _warn_once(self, what: str, error: Exception, so: str) -> None:
        if what in self._told:
            return
        self._told.add(what)
        first_line = next(iter(str(error).splitlines()), "") or type(error).__name__
        log.warning("%s %s (%s); training goes on, and %s", self._where, what, first_line, so)
