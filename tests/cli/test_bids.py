import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from themis_ray.cli.bids import BidsIn, bid_document
from themis_ray.cli.inputs import read_model
from themis_ray.cli.main import app
from themis_ray.errors import InvalidInputError

WORKED: dict[str, Any] = {
    "tuner": "successive_halving",
    "cluster_gpus": 16,
    "n_avg": 4,
    "elapsed_s": 0,
    "job_demand_max": 8,
    "serial_iter_s": [80, 100, 100, 120],
    "phases": [
        {"jobs": 4, "iterations": 8},
        {"jobs": 2, "iterations": 16},
        {"jobs": 1, "iterations": 36},
    ],
    "ideal": "paper",
    "slowdown": {"machine": 1, "rack": 1.1, "cluster": 1.3},
    "gpus": [1, 2, 4, 8, 16],
}
SINGLE: dict[str, Any] = {
    "tuner": "single",
    "cluster_gpus": 8,
    "n_avg": 2,
    "job_demand_max": 8,
    "serial_iter_s": [10],
    "phases": [{"jobs": 1, "iterations": 80}],
}


def bid(**changes: Any) -> dict[str, Any]:
    document = bid_document(BidsIn.model_validate({**WORKED, **changes}))
    return json.loads(json.dumps(document))


def test_worked_example_through_the_command() -> None:
    result = CliRunner().invoke(app, ["bids", "-", "--json"], input=json.dumps(WORKED))
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["t_ideal_s"] == 2500
    assert [row["gpus"] for row in document["bids"]] == [1, 2, 4, 8, 16]
    assert [row["r"] for row in document["bids"]] == pytest.approx([4, 2, 1.064, 0.532, 0.356])
    assert document["bids"][1] == {"gpus": 2, "r": 2.0, "t_shared_s": 5000.0}


def test_the_table_is_for_people(tmp_path: Path) -> None:
    file = tmp_path / "app.json"
    file.write_text(json.dumps({**WORKED, "gpus": [0, 2]}))
    result = CliRunner().invoke(app, ["bids", str(file)])
    assert result.exit_code == 0
    assert "2,500" in result.stdout
    assert "5,000" in result.stdout
    assert "infinite" in result.stdout


def test_no_gpus_is_null_in_json() -> None:
    result = CliRunner().invoke(
        app, ["bids", "-", "--json"], input=json.dumps({**WORKED, "gpus": [0]})
    )
    assert json.loads(result.stdout)["bids"] == [{"gpus": 0, "r": None, "t_shared_s": None}]


def test_elapsed_time_counts() -> None:
    assert bid(elapsed_s=250)["bids"][1]["r"] == pytest.approx(2.1)


def test_a_given_budget_sets_the_ideal() -> None:
    assert bid(budget_gpu_s=20000)["t_ideal_s"] == 5000


def test_exclusive_ideal_counts_by_phase() -> None:
    # 16 GPUs / 4 apps = 4 GPUs; each phase can use them all.
    assert bid(ideal="exclusive")["t_ideal_s"] == pytest.approx(10000 / 4)
    # With one app the last phase uses 8 of 16 GPUs.
    assert bid(ideal="exclusive", n_avg=1)["t_ideal_s"] == pytest.approx(
        3200 / 16 + 3200 / 16 + 3600 / 8
    )


def test_slowdown_comes_from_the_level_of_the_machines() -> None:
    def t_shared_s(machines: list[dict[str, Any]], gpus: int) -> float:
        asked = BidsIn.model_validate({**SINGLE, "machines": machines, "gpus": [gpus]})
        document = json.loads(json.dumps(bid_document(asked)))
        return float(document["bids"][0]["t_shared_s"])

    one_rack = [{"id": "a", "gpus": 4}, {"id": "b", "gpus": 4}]
    two_racks = [{"id": "a", "gpus": 4}, {"id": "b", "gpus": 4, "rack": "r1"}]
    assert t_shared_s([{"id": "a", "gpus": 8}], 8) == 100
    assert t_shared_s(one_rack, 8) == pytest.approx(110)
    assert t_shared_s(two_racks, 8) == pytest.approx(130)
    assert t_shared_s(two_racks, 4) == 200


def test_gpus_default_to_powers_of_two() -> None:
    asked = BidsIn.model_validate({**SINGLE, "cluster_gpus": 12})
    assert asked.counts() == [1, 2, 4, 8]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"serial_iter_s": [80, 100, -1, 120]}, r"serial_iter_s\[2\].*greater than 0 \(got -1\)"),
        ({"phases": [{"jobs": 0, "iterations": 1}]}, r"phases\[0\]\.jobs.*\(got 0\)"),
        ({"phases": []}, "phases.*at least 1 item"),
        ({"tuner": "hyperband"}, "tuner.*'single' or 'successive_halving'.*\"hyperband\""),
        ({"tuner": "single"}, "one job in one phase"),
        ({"serial_iter_s": [80]}, r"phases\[0\]\.jobs is 4, but serial_iter_s lists 1"),
        ({"gpus": [1, 17]}, r"gpus\[1\] is 17, but only 16"),
        ({"gpus": [1.5]}, r"gpus\[0\].*\(got 1.5\)"),
        ({"n_avg": 0.5}, "n_avg.*greater than or equal to 1"),
        ({"slowdown": {"rack": 0.9}}, r"slowdown\.rack"),
        ({"machines": [{"id": "a", "gpus": 32}]}, "more than the 16 of cluster_gpus"),
        ({"machines": [{"id": "a", "gpus": 1}] * 2}, "the same id"),
        ({"machines": [{"id": "a", "gpus": 3, "slots": 2}]}, r"machines\[0\].*2 slots"),
        ({"gpu": [1]}, "gpu: no such field"),
    ],
)
def test_bad_fields_are_named(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    file = tmp_path / "app.json"
    file.write_text(json.dumps({**WORKED, **changes}))
    with pytest.raises(InvalidInputError, match=words):
        read_model(str(file), BidsIn)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"tuner":\n  "single",,}', "line 2, column 12: not JSON"),
        ("", "is empty"),
        ("[]", "the document: .*dictionary"),
        ('{"n_avg": NaN}', "NaN is not JSON"),
        ('{"n_avg": 1, "n_avg": 2}', "'n_avg' stands twice"),
        ("[" * 100_000, "not usable JSON: maximum recursion depth"),
        ('{"n_avg": ' + "9" * 5000 + "}", "not usable JSON: .*digits"),
    ],
)
def test_malformed_json_is_located(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "app.json"
    file.write_text(text)
    with pytest.raises(InvalidInputError, match=words):
        read_model(str(file), BidsIn)


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"absent\.json: no such file.*or -"):
        read_model(str(tmp_path / "absent.json"), BidsIn)
    with pytest.raises(InvalidInputError, match="is a directory"):
        read_model(str(tmp_path), BidsIn)
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInputError, match="use UTF-8"):
        read_model(str(binary), BidsIn)


def test_standard_input_that_is_no_text_is_named() -> None:
    result = CliRunner().invoke(app, ["bids", "-"], input=b"\xff\xfe")
    assert result.exit_code == 2
    assert "standard input: not a text file" in result.stderr


def test_bad_input_exits_2_with_a_message_and_no_traceback() -> None:
    result = CliRunner().invoke(app, ["bids", "-"], input='{"tuner": "single"}')
    assert result.exit_code == 2
    assert "standard input: cluster_gpus: is missing" in result.stderr
    assert "Traceback" not in result.output
