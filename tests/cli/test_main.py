import contextlib
import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

import themis_ray.live
from themis_ray import errors
from themis_ray.cli import start as start_module
from themis_ray.cli import status as status_module
from themis_ray.cli.durations import seconds
from themis_ray.cli.main import COMMANDS, app, main

STATUS: dict[str, Any] = {
    "policy": "themis-paper",
    "lease_s": 600.0,
    "unit": "GPU",
    "round": 3,
    "uptime_s": 90.0,
    "max_r": 1.25,
    "nodes": [{"id": "n0", "name": "node-0", "rack": "r0", "gpus": 4, "free": 2, "foreign": 0}],
    "apps": [
        {
            "id": "vgg",
            "r": 1.25,
            "wants": 4,
            "held": 2,
            "leases": [{"id": "l1", "gpus": {"n0": 2}, "expires_in_s": 61.0}],
            "reason": {"kind": "Won", "text": "won n0:2", "remedy": ""},
        }
    ],
}


class FakeClient(ModuleType):
    """Stands in for ``themis_ray.live.client``: records the calls and answers as told."""

    def __init__(self) -> None:
        super().__init__("themis_ray.live.client")
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.answers: dict[str, Any] = {}
        self.cluster = True
        self.joined_to: list[str | None] = []
        for name in ("start", "stop", "status", "explain"):
            setattr(self, name, self._function(name))

    def a_cluster_runs(self) -> bool:
        return self.cluster

    @contextlib.contextmanager
    def joined(self, address: str | None = None) -> Iterator[None]:
        self.joined_to.append(address)
        if not self.cluster:
            raise errors.ArbiterUnavailableError("no Ray cluster runs on this machine")
        yield

    def _function(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, args, kwargs))
            answer = self.answers[name]
            if isinstance(answer, BaseException):
                raise answer
            return answer

        return call


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    fake = FakeClient()
    monkeypatch.setitem(sys.modules, "themis_ray.live.client", fake)
    monkeypatch.setattr(themis_ray.live, "client", fake, raising=False)
    return fake


def run(*args: str, stdin: str = "") -> Any:
    return CliRunner().invoke(app, list(args), input=stdin)


def test_help_lists_every_command() -> None:
    result = run("--help")
    assert result.exit_code == 0
    for name in COMMANDS:
        assert name in result.stdout


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from themis_ray.cli.main import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'ray', 'pydantic', 'numpy', 'grpc', 'mlflow', 'torch'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_takes_json_and_debug(name: str) -> None:
    pytest.importorskip(f"themis_ray.cli.{COMMANDS[name].module}", exc_type=ImportError)
    result = run(name, "--help")
    assert result.exit_code == 0
    assert "--json" in result.stdout
    assert "--debug" in result.stdout


def test_python_dash_m() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "themis_ray", "--version"], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert done.stdout.startswith("themis_ray 0.")


@pytest.mark.parametrize("args", [["nonsense"], ["bids"], ["bids", "-", "--nonsense"]])
def test_wrong_usage_exits_2(args: list[str]) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError("lease_s = 0; use a positive number"), 2),
        (errors.UnknownAppError("no app 'x'; registered are: vgg"), 2),
        (errors.ArbiterUnavailableError("no arbiter answers; run themis start"), 1),
        (errors.MissingExtraError("plotly", "plot"), 1),
        (KeyError("surprise"), 1),
    ],
)
def test_errors_become_a_message_and_an_exit_code(
    client: FakeClient, error: Exception, code: int
) -> None:
    client.answers["status"] = error
    result = run("status", "--json")
    assert result.exit_code == code
    assert str(error) in result.stderr
    assert "Traceback" not in result.output
    told = json.loads(result.stdout)["error"]
    assert told["kind"] == type(error).__name__
    assert told["exit_code"] == code
    assert run("status").stdout == ""


@pytest.mark.parametrize("args", [["--debug", "status"], ["status", "--debug"]])
def test_debug_shows_the_traceback(client: FakeClient, args: list[str]) -> None:
    client.answers["status"] = errors.ArbiterUnavailableError("no arbiter answers")
    result = run(*args)
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    # The next command starts afresh.
    assert "Traceback" not in run("status").output


def test_debug_logs_go_to_stderr(client: FakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    import logging

    def status() -> dict[str, Any]:
        logging.getLogger("themis_ray.live").debug("asking the arbiter")
        return STATUS

    monkeypatch.setattr(client, "status", status)
    result = run("status", "--json", "--debug")
    assert json.loads(result.stdout) == STATUS
    assert "asking the arbiter" in result.stderr
    assert "asking" not in run("status", "--json").output


def test_start_passes_on_only_what_was_asked(client: FakeClient) -> None:
    client.answers["start"] = {"address": "127.0.0.1:1", "policy": "themis-paper"}
    assert run("start", "--lease", "10m", "--num-gpus", "4").exit_code == 0
    result = run("start", "--json", "--policy", "themis-paper", "--fairness-knob", "0.8")
    assert json.loads(result.stdout)["policy"] == "themis-paper"
    assert [kwargs for _, _, kwargs in client.calls] == [
        {"lease_s": 600.0, "num_gpus": 4},
        {"policy": "themis-paper", "fairness_knob": 0.8},
    ]


def test_start_without_a_cluster_starts_a_head(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.answers["start"] = {"policy": "themis-paper"}
    client.cluster = False
    commands: list[list[str]] = []

    def run_ray(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        client.cluster = True
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(start_module.subprocess, "run", run_ray)
    document = json.loads(run("start", "--json", "--num-gpus", "2").stdout)
    assert document == {"policy": "themis-paper", "ray_started": True}
    assert commands[0][3:] == ["start", "--head", "--include-dashboard=false", "--num-gpus=2"]
    assert json.loads(run("start", "--json").stdout)["ray_started"] is False
    assert len(commands) == 1


def test_a_head_that_does_not_start_is_a_message(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.cluster = False

    def run_ray(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "Usage\nport 6379 is taken\n")

    monkeypatch.setattr(start_module.subprocess, "run", run_ray)
    result = run("start")
    assert result.exit_code == 1
    assert "port 6379 is taken" in result.stderr


def test_an_address_is_joined_and_never_started(client: FakeClient) -> None:
    client.cluster = False
    assert run("start", "--address", "10.0.0.1:6379").exit_code == 1
    client.cluster = True
    client.answers |= {"status": STATUS, "stop": {}, "explain": {"app": "vgg"}}
    for args in (["status"], ["stop"], ["why", "vgg"]):
        assert run(*args, "--address", "10.0.0.1:6379").exit_code == 0
    assert client.joined_to == ["10.0.0.1:6379"] * 4


def test_stop(client: FakeClient) -> None:
    client.answers["stop"] = {"stopped": True, "apps_ended": ["vgg"], "groups_left": []}
    assert "apps ended: vgg" in run("stop", "--timeout", "5").stdout
    assert json.loads(run("stop", "--json").stdout) == client.answers["stop"]
    assert [kwargs for _, _, kwargs in client.calls] == [{"timeout_s": 5.0}, {"timeout_s": 30.0}]
    client.answers["stop"] = {"stopped": True, "apps_ended": [], "groups_left": ["g1"]}
    assert "groups left: g1" in run("stop").stdout
    client.answers["stop"] = {"stopped": False, "apps_ended": [], "groups_left": []}
    assert "no arbiter was running" in run("stop").stdout


def test_a_wrong_time_is_bad_input(client: FakeClient) -> None:
    result = run("stop", "--timeout", "soon")
    assert result.exit_code == 2
    assert "--timeout: 'soon' is not a time" in result.stderr
    assert client.calls == []


@pytest.mark.parametrize(
    ("text", "expected_s"), [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400), ("2 D", 172800)]
)
def test_times(text: str, expected_s: float) -> None:
    assert seconds(text, "--lease") == expected_s


@pytest.mark.parametrize("text", ["0", "0m", "0.0 h"])
def test_no_time_at_all_is_a_time_where_it_may_be(text: str) -> None:
    assert seconds(text, "--grace", or_zero=True) == 0


@pytest.mark.parametrize("text", ["", "0", "-5s", "5w", "m", "1e3", "nan", "inf", "9" * 400])
def test_wrong_times(text: str) -> None:
    with pytest.raises(errors.InvalidInputError, match="such as 10m"):
        seconds(text, "--lease")


def test_status_shows_apps_and_nodes(client: FakeClient) -> None:
    client.answers["status"] = STATUS
    result = run("status")
    assert result.exit_code == 0
    for words in ("themis-paper", "vgg", "1.25", "node-0:2", "1 min 1 s"):
        assert words in result.stdout


def test_infinite_figures_are_null_in_json(client: FakeClient) -> None:
    client.answers["status"] = {**STATUS, "max_r": float("inf")}
    assert json.loads(run("status", "--json").stdout)["max_r"] is None


@pytest.mark.parametrize("as_json", [True, False])
def test_watch_repeats_until_interrupted(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    client.answers["status"] = STATUS
    waits: list[float] = []

    def wait(period_s: float) -> None:
        waits.append(period_s)
        if len(waits) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(status_module.time, "sleep", wait)
    result = run("status", "--watch", *(["--json"] if as_json else []))
    assert result.exit_code == 0
    assert waits == [1.0] * 3
    assert len(client.calls) == 3
    if as_json:
        assert [json.loads(line) for line in result.stdout.splitlines()] == [STATUS] * 3


def test_why_gives_the_reason_and_the_remedy(client: FakeClient) -> None:
    client.answers["explain"] = {
        "id": "vgg",
        "reason": {"kind": "Outbid", "text": "bid and won nothing", "remedy": "its r grows"},
    }
    result = run("why", "vgg")
    assert "bid and won nothing" in result.stdout
    assert "its r grows" in result.stdout
    assert json.loads(run("why", "vgg", "--json").stdout) == client.answers["explain"]
    assert client.calls[0] == ("explain", ("vgg",), {})


def test_main_is_the_script(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["themis", "--version"])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 0
    assert "themis_ray" in capsys.readouterr().out


def test_summaries_say_what_the_commands_say() -> None:
    for name, entry in COMMANDS.items():
        module = pytest.importorskip(f"themis_ray.cli.{entry.module}", exc_type=ImportError)
        assert importlib.import_module(module.__name__)
        assert getattr(module, entry.function).__doc__, name


def test_what_c_libraries_print_does_not_get_into_the_json():
    """HiGHS prints a remark now and then, whatever it is told."""
    code = (
        "import os, sys; from themis_ray.cli import main;"
        "main.app = lambda prog_name: (os.write(1, b'noise\\n'), print('{}'));"
        "main.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "{}\n"
    assert done.stderr == "noise\n"
