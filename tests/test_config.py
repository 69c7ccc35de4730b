from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from themis_ray.config import ENV_PREFIX, ArbiterOptions, load_options
from themis_ray.core.policies import ThemisPaper
from themis_ray.errors import ConfigError


def test_arguments_win_over_the_file_and_the_file_over_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "themis.yaml"
    file.write_text("lease_s: 200\ngrace_s: 2\n")
    env = {"THEMIS_LEASE_S": "100", "THEMIS_GRACE_S": "1", "THEMIS_SEED": "7", "OTHER": "x"}
    options = load_options(file, env, lease_s=300, grace_s=None)
    assert (options.lease_s, options.grace_s, options.seed) == (300, 2, 7)


def test_every_option_can_be_set_in_the_environment() -> None:
    defaults = ArbiterOptions()
    env = {
        ENV_PREFIX + name.upper(): str(value)
        for name, value in defaults.model_dump().items()
        if value is not None
    }
    assert load_options(environ=env) == defaults


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"lease_s": 0}, "option lease_s: .*greater than 0.*got 0"),
        ({"fairness_knob": 1.5}, "option fairness_knob: "),
        ({"payment": "cash"}, "option payment: .*'gpus' or 'time'"),
        ({"leese_s": 5}, "option leese_s: .*the options are: .*lease_s"),
        ({"policy": "fastest"}, "no policy 'fastest'; there are: .*themis-paper"),
        ({"lease_s": 10, "notice_s": 10}, "not shorter than lease_s"),
        ({"notice_s": float("inf")}, "notice_s"),
    ],
)
def test_bad_options_name_themselves(given: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_options(environ={}, **given)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lease_s: [", "not valid YAML"),
        ("- lease_s", "must hold a mapping"),
        ("lease_s: soon", "option lease_s"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "themis.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=says):
        load_options(file, {})


def test_no_file_and_an_empty_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*absent.yaml: No such file"):
        load_options(tmp_path / "absent.yaml", {})
    (tmp_path / "empty.yaml").write_text("")
    assert load_options(tmp_path / "empty.yaml", {}) == ArbiterOptions()


def test_times_left_out_follow_the_lease() -> None:
    short = load_options(environ={}, lease_s=20).core_config()
    assert (short.notice_s, short.min_lease_s) == (2, 2)
    long = load_options(environ={}, lease_s=6000, answer_timeout_s=3).core_config()
    assert (long.notice_s, long.min_lease_s) == (10, 600)
    assert (long.report_timeout_s, long.bid_timeout_s) == (3, 3)


def test_the_policy_gets_the_options_that_it_takes() -> None:
    policy = load_options(
        environ={}, policy="themis-paper", fairness_knob=0.7, min_bidders=2, seed=3
    ).make_policy()
    assert isinstance(policy, ThemisPaper)
    assert (policy.fairness_knob, policy.min_bidders, policy.seed) == (Fraction(7, 10), 2, 3)


def test_a_file_can_turn_recalls_off(tmp_path: Path) -> None:
    file = tmp_path / "arbiter.yaml"
    file.write_text("recall_factor: .inf\n")
    assert not load_options(file, environ={}).make_policy().recalls
    assert load_options(environ={}).make_policy().recalls
    assert load_options(environ={"THEMIS_RECALL_FACTOR": "2"}).make_policy().recalls
    with pytest.raises(ConfigError, match="recall_factor"):
        load_options(environ={}, recall_factor=0.9)


def test_a_journal_is_a_path_that_means_the_same_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert load_options(environ={}).journal == "auto"
    for given, path in (
        ("off", "off"),
        ("auto", "auto"),
        ("j.jsonl", str(tmp_path / "j.jsonl")),
        ("~/j", "/home/somebody/j"),
        ("/var/j", "/var/j"),
    ):
        assert load_options(environ={}, journal=given).journal == path
    with pytest.raises(ConfigError, match=r"journal: .*name a file, or use auto or off"):
        load_options(environ={}, journal=" ")
