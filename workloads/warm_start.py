"""Processes that start warm: forked from one that has imported PyTorch already.

A trial that gets a lease starts a process, which imports Ray and PyTorch: seconds in which the
leased GPU does nothing. With ::

    ray.init(runtime_env=themis_ray.workloads.warm_runtime_env())

Ray starts the worker processes of this driver through this module (by the ``py_executable`` field
of a runtime environment). The first one on a node starts as usual and leaves a *nursery* behind: a
process that does the imports and waits. Later ones are forked from it, which takes milliseconds and
shares the memory of what is imported. A nursery serves one driver on one node, in one environment;
it ends with its raylet, or when nobody has asked it for a while. Whatever goes wrong with it,
the worker starts as usual.

Only the standard library is imported here: this runs before every worker.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib
import json
import os
import runpy
import selectors
import shlex
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

PRELOAD = ("ray.tune", "torch", "torch._dynamo", "torchvision", "themis_ray.workloads.trainable")
"""What a nursery imports, if it is there. The first optimiser of a process imports the compiler,
``torch._dynamo``, which takes longer than ``torch`` itself."""

IDLE_S = 900.0
"""After how many seconds without a request a nursery without children ends."""

_FORKABLE_THREADS = ("jemalloc_bg_thd",)
"""pyarrow's allocator stops this one for a fork, and starts it again where it is wanted."""

_LOOK_S = 5.0
_ANSWER_S = 10.0
_SERVE = "--serve"
_NOT_OF_THE_KEY = ("_", "SHLVL", "OLDPWD")


def warm_runtime_env(modules: Iterable[str] = PRELOAD) -> dict[str, Any]:
    """A runtime environment, for ``ray.init(runtime_env=...)``, whose workers start warm.

    The interpreter must have the same path on every node.

    Args:
        modules: What to import ahead. It must not start threads or use a GPU on import.
    """
    command = [sys.executable, "-m", __spec__.name if __spec__ else __name__, ",".join(modules)]
    return {"py_executable": shlex.join(command)}


def main(arguments: list[str]) -> None:
    """Become a worker, or a nursery: see the module's text."""
    if arguments[:1] == [_SERVE]:
        _Nursery(Path(arguments[1]), arguments[2]).serve()
        return
    modules, worker = arguments[0], arguments[1:]
    # What fails here must not keep Ray from getting its worker.
    with contextlib.suppress(OSError, ValueError):
        home = _home()
        address = home / f"{_key(modules)}.sock"
        connection = _connect(address)
        if connection is not None:
            sys.exit(_have_forked(connection, worker))
        _leave_nursery(address, modules)
    os.execv(sys.executable, [sys.executable, *worker])


def _home() -> Path:
    """A folder that only this user can look into."""
    home = Path(tempfile.gettempdir()) / f"themis-warm-{os.getuid()}"
    home.mkdir(mode=0o700, exist_ok=True)
    status = home.stat(follow_symlinks=False)
    if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise OSError(f"{home} is not ours alone")
    return home


def _key(modules: str) -> str:
    """One nursery for each environment: imports may depend on it, and it names the raylet.

    It names the driver's job as well, which Ray reads when it is imported: a worker forked from
    another driver's nursery would register for that driver, and the trial would wait for ever.
    """
    environment = {k: v for k, v in os.environ.items() if k not in _NOT_OF_THE_KEY}
    text = json.dumps([sys.executable, modules, sorted(environment.items())])
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _connect(address: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(_ANSWER_S)
    try:
        connection.connect(str(address))
    except OSError:
        connection.close()
        return None
    return connection


def _have_forked(connection: socket.socket, worker: list[str]) -> int:
    """Ask the nursery for a child that becomes the worker; stand in for it until it ends."""
    given = {"worker": worker, "folder": os.getcwd(), "environment": dict(os.environ)}
    request = json.dumps(given).encode()
    socket.send_fds(connection, [len(request).to_bytes(4, "big")], [0, 1, 2])
    connection.sendall(request)
    pid = int.from_bytes(_receive(connection, 4), "big")
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda number, _: _send_signal(pid, number))
    connection.settimeout(None)
    return int.from_bytes(_receive(connection, 1), "big")


def _send_signal(pid: int, signum: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signum)


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the nursery is gone")
        data += part
    return data


def _leave_nursery(address: Path, modules: str) -> None:
    """Start a nursery that nobody waits for and that does not end with this process."""
    program = [sys.executable, "-m", "themis_ray.workloads.warm_start"]
    # Through a shell that ends at once: a worker ends its own children when it ends.
    command = shlex.join([*program, _SERVE, str(address), modules])
    with address.with_suffix(".log").open("ab") as log:
        subprocess.Popen(
            ["/bin/sh", "-c", f"{command} &"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        ).wait()


class _Nursery:
    """Forks workers.

    Args:
        address: The socket to listen on.
        modules: What to import, separated by commas.
    """

    def __init__(self, address: Path, modules: str) -> None:
        self._address, self._modules = address, modules.split(",")
        self._children: dict[int, socket.socket] = {}
        self._raylet = int(os.environ.get("RAY_RAYLET_PID") or 0)

    def serve(self) -> None:
        """Import, listen, fork; returns when there is nothing more to do."""
        with self._address.with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return
            self._preload()
            self._listen()
            self._address.unlink(missing_ok=True)
        for suffix in (".lock", ".log"):
            self._address.with_suffix(suffix).unlink(missing_ok=True)

    def _preload(self) -> None:
        # Threads would not be there in a child. This is also the number that a child computes with
        # unless it calls torch.set_num_threads, as the elastic trainer does.
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
            os.environ.setdefault(name, "1")
        for name in ("ray._private.workers.default_worker", *self._modules):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        strangers = _threads()[1:]
        if strangers:
            raise SystemExit(f"imports started the threads {strangers}, which a fork would lose")

    def _listen(self) -> None:
        import gc

        self._address.unlink(missing_ok=True)
        # What is imported stays: children need not copy its pages to look at them.
        gc.collect()
        gc.freeze()
        wakes, woken = socket.socketpair()
        for end in (wakes, woken):
            end.setblocking(False)
        signal.set_wakeup_fd(woken.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as selector:
            listener.bind(str(self._address))
            listener.listen(64)
            selector.register(listener, selectors.EVENT_READ)
            selector.register(wakes, selectors.EVENT_READ)
            asked_s = time.monotonic()
            while self._wanted(asked_s):
                for key, _ in selector.select(_LOOK_S):
                    if key.fileobj is listener:
                        asked_s = time.monotonic()
                        self._admit(listener.accept()[0], [listener, wakes, woken])
                    else:
                        wakes.recv(4096)
                self._reap()

    def _wanted(self, asked_s: float) -> bool:
        if self._raylet and not Path(f"/proc/{self._raylet}").exists():
            return False
        return bool(self._children) or time.monotonic() - asked_s < IDLE_S

    def _admit(self, connection: socket.socket, ours: list[socket.socket]) -> None:
        """Fork a child for one request; it never returns in the child."""
        connection.settimeout(_ANSWER_S)
        try:
            size, files, _, _ = socket.recv_fds(connection, 4, 3)
            request = json.loads(_receive(connection, int.from_bytes(size, "big")))
        except (OSError, ValueError):
            connection.close()
            return
        pid = os.fork()
        if pid == 0:
            for end in [*ours, *self._children.values()]:
                end.close()
            _become_worker(request, files, connection)
        for file in files:
            os.close(file)
        self._children[pid] = connection
        with contextlib.suppress(OSError):
            connection.sendall(pid.to_bytes(4, "big"))

    def _reap(self) -> None:
        """Tell those who wait for ended children."""
        for pid in list(self._children):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                connection = self._children.pop(pid)
                with contextlib.suppress(OSError):
                    connection.sendall((code % 256).to_bytes(1, "big"))
                connection.close()


def _threads() -> list[str]:
    """Names of this process's threads, the first one first; those that survive a fork left out."""
    names = [Path(task, "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    return [name for name in names if name not in _FORKABLE_THREADS]


def _become_worker(request: Any, files: list[int], connection: socket.socket) -> None:
    """In a child: take on what the process that stands in was given, and run Ray's worker."""
    code = 1
    try:
        # Ray kills the process groups of the workers that it ends.
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for target, file in enumerate(files):
            os.dup2(file, target)
            os.close(file)
        os.chdir(request["folder"])
        sys.argv = list(request["worker"])
        sys.path[0] = os.path.dirname(sys.argv[0])
        _refresh(request["environment"])
        threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
        runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _refresh(environment: dict[str, str]) -> None:
    """What a fresh process would have of its own."""
    os.environ.clear()
    os.environ.update(environment)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()


def _end_with(connection: socket.socket) -> None:
    """End at once with the process that stands in for this one: Ray may know that one only."""
    connection.settimeout(None)
    with contextlib.suppress(OSError):
        while connection.recv(64):
            pass
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
