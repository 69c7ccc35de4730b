from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from themis_ray.cli.auction import auction
from themis_ray.errors import InvalidInputError

MACHINES = [
    {"id": "m0", "gpus": 4, "rack": "r0"},
    {"id": "m1", "gpus": 2, "rack": "r0"},
    {"id": "m2", "gpus": 2, "rack": "r1"},
]


def vgg(app: str) -> dict[str, Any]:
    return {
        "id": app,
        "bids": [
            {"gpus": {}, "r": None},
            {"gpus": {"m0": 4}, "r": 1 / 103.6},
            {"gpus": {"m1": 2, "m2": 2}, "r": 1 / 80.4},
        ],
    }


TWO_VGG: dict[str, Any] = {"machines": MACHINES, "apps": [vgg("A"), vgg("B")], "payment": "time"}


def run(document: Any, *options: str) -> Result:
    app = typer.Typer()
    app.command()(auction)
    text = document if isinstance(document, str) else json.dumps(document)
    return CliRunner().invoke(app, ["-", *options], input=text)


def answer(document: Any, *options: str) -> dict[str, Any]:
    result = run(document, "--json", *options)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout, parse_constant=lambda name: pytest.fail(name))
    assert isinstance(found, dict)
    return found


def message(document: Any) -> str:
    result = run(document, "--json")
    assert isinstance(result.exception, InvalidInputError)
    assert result.stdout == ""
    return str(result.exception)


def changed(**changes: Any) -> dict[str, Any]:
    return {**TWO_VGG, **changes}


def with_bid(bid: dict[str, Any]) -> dict[str, Any]:
    return changed(apps=[vgg("A"), {"id": "C", "bids": [{"gpus": {"m1": 1}, "r": 1}, bid]}])


def test_prints_what_the_contract_says() -> None:
    found = answer(TWO_VGG)
    assert found.pop("seconds") > 0
    assert found == {
        "proportional_fair": {"A": {"m0": 4}, "B": {"m1": 2, "m2": 2}},
        "payment_factor": {"A": pytest.approx(201 / 259), "B": 1.0},
        "allocation": {"A": {"m0": 4}, "B": {"m1": 2, "m2": 2}},
        "lease_fraction": {"A": pytest.approx(201 / 259), "B": 1.0},
        "leftover": {"m0": 0, "m1": 0, "m2": 0},
        "log_nash_welfare": pytest.approx(math.log(103.6 * 80.4)),
        "gap": 0.0,
    }


def test_reads_a_file_too(tmp_path: Path) -> None:
    file = tmp_path / "auction.json"
    file.write_text(json.dumps(TWO_VGG))
    app = typer.Typer()
    app.command()(auction)
    result = CliRunner().invoke(app, [str(file), "--json"])
    assert json.loads(result.stdout)["payment_factor"]["B"] == 1


def test_compact_rows_mean_the_same_as_named_ones() -> None:
    bids = [
        {"parts": [4], "level": "machine", "r": 1 / 103.6},
        {"parts": [2, 2], "level": "cluster", "r": 1 / 80.4},
    ]
    apps = [{"id": "A", "bids": bids}, {"id": "B", "bids": bids}]
    found = answer(changed(apps=apps))
    assert found["payment_factor"] == {"A": pytest.approx(201 / 259), "B": 1.0}
    # m1 and m2 lie in two racks: within one rack, B finds no two parts of 2 beside A's 4.
    bids[1]["level"] = "rack"
    assert answer(changed(apps=apps))["proportional_fair"]["B"] == {}


def test_pinned_and_parts_go_together() -> None:
    bid = {"parts": [2], "pinned": {"m0": 2}, "level": "rack", "r": 1}
    found = answer(changed(apps=[{"id": "A", "bids": [bid]}]))
    assert sum(found["proportional_fair"]["A"].values()) == 4
    assert found["proportional_fair"]["A"]["m0"] >= 2
    assert "m2" not in found["proportional_fair"]["A"]


def test_payment_in_gpus_leaves_gpus_over_and_hangs_on_the_seed() -> None:
    draws = [answer(changed(payment="gpus", seed=seed)) for seed in range(12)]
    kept = {sum(found["allocation"]["A"].values()) for found in draws}
    # c = 201/259 of a gang of four: all of it, or (now and then) nothing.
    assert kept == {0, 4}
    for found in draws:
        assert found["leftover"]["m0"] == 4 - found["allocation"]["A"].get("m0", 0)
        assert found["lease_fraction"] == {"A": 1.0, "B": 1.0}
    again = answer(changed(payment="gpus", seed=3))
    assert again["allocation"] == draws[3]["allocation"]


def test_leftovers_go_to_bidders_that_can_use_them_when_asked() -> None:
    one = {"id": "A", "bids": [{"gpus": {"m0": 1}, "r": 1}, {"parts": [3], "r": 0.9}]}
    two = {"id": "B", "bids": [{"gpus": {"m0": 1}, "r": 1}]}
    asked = changed(apps=[one, two], payment="gpus", leftover="placed", seed=1)
    found = answer(asked)
    given = found["leftover_given"]
    for app, bids in (("A", 3), ("B", 1)):
        has = sum(found["allocation"][app].values()) + sum(given[app].values())
        assert has == bids
    assert sum(found["leftover"].values()) == 8 - 4
    assert "leftover_given" not in answer(TWO_VGG)


def test_weights_count() -> None:
    bids = [{"gpus": {"m0": n}, "r": 1 / n} for n in (1, 2, 3, 4)]
    apps = [{"id": "A", "bids": bids}, {"id": "B", "bids": bids, "weight": 3}]
    found = answer({"machines": MACHINES[:1], "apps": apps})
    assert found["proportional_fair"] == {"A": {"m0": 1}, "B": {"m0": 3}}


def test_explains_who_harms_whom_and_what_was_missing() -> None:
    explained = answer(TWO_VGG, "--explain")["explain"]
    assert explained["A"]["harm"] == {"B": pytest.approx(math.log(259 / 201))}
    assert explained["A"]["next_better"] is None
    assert explained["A"]["r_before"] is None
    assert explained["B"]["harm"] == {}
    assert explained["B"]["next_better"]["bundle"] == "m0:4"
    assert explained["B"]["next_better"]["r_needed"] <= 1 / 103.6


def test_people_get_tables() -> None:
    result = run(changed(leftover="random", payment="gpus"), "--explain")
    assert result.exit_code == 0
    for expected in ("proportionally fair", "m1:2 + m2:2", "0.776", "proved optimal"):
        assert expected in result.stdout
    assert "pays for B, whose 1/r is 22.4% lower" in result.stdout
    assert "has the best bundle that it bid for" in result.stdout
    assert "next better: m0:4" in result.stdout


def test_an_empty_auction_is_valid_json_too() -> None:
    found = answer({"machines": [], "apps": []})
    assert found["leftover"] == {}
    assert found["gap"] == 0
    assert answer({"machines": MACHINES, "apps": [{"id": "A", "bids": []}]})["gap"] == 0


def test_out_of_time_the_gap_is_still_json() -> None:
    found = answer(changed(time_budget_s=0))
    assert found["gap"] is None or found["gap"] >= 0


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ('{"machines": [}', "line 1, column 15: not JSON"),
        ("", "is empty"),
        ('{"machines": [], "apps": [{"id": "A", "bids": [{"gpus": {}, "r": NaN}]}]}', "NaN"),
        (with_bid({"gpus": {"m9": 1}, "r": 1}), "app 'C', bids[1]: there is no machine 'm9'"),
        (with_bid({"gpus": {"m1": 3}, "r": 1}), "asks for 3 GPUs of 'm1', which has 2"),
        (with_bid({"gpus": {"m1": 2}, "r": -1}), "apps[1].bids[1]: r is -1.0; use a number above"),
        (with_bid({"gpus": {"m1": 2}, "r": 0}), "r is 0.0; use a number above 0, or null"),
        (with_bid({"gpus": {"m1": -2}, "r": 1}), "apps[1].bids[1].gpus.m1"),
        (with_bid({"gpus": {"m1": 1.5}, "r": 1}), "apps[1].bids[1].gpus.m1"),
        (with_bid({"r": 1}), 'give either "gpus" (named machines) or "parts"'),
        (with_bid({"gpus": {"m1": 1}, "parts": [1], "r": 1}), "either"),
        (with_bid({"parts": [5], "r": 1}), "app 'C' bids for 5, which does not fit"),
        (with_bid({"parts": [0], "r": 1}), "apps[1].bids[1].parts[0]"),
        (with_bid({"parts": [1], "level": "planet", "r": 1}), "apps[1].bids[1].level"),
        (with_bid({"gpus": {"m1": 1}}), "apps[1].bids[1].r: is missing"),
        (with_bid({"gpus": {"m1": 1}, "r": 1, "price": 2}), "price: no such field"),
        (
            with_bid({"gpus": {"m0": 1, "m1": 1}, "level": "machine", "r": 1}),
            "app 'C', bids[1]: m0:1 + m1:1 cannot lie on one machine",
        ),
        (changed(apps=[vgg("A"), vgg("A")]), "two apps have the id 'A'"),
        (changed(machines=[*MACHINES, MACHINES[0]]), "two machines have the id 'm0'"),
        (changed(apps=[{**vgg("A"), "weight": 0}]), "apps[0].weight"),
        (changed(payment="cash"), "payment"),
        (
            changed(apps=[{"id": "A", "bids": [{"gpus": {}, "r": 1}, {"gpus": {}, "r": 2}]}]),
            "gives r for nothing 2 times",
        ),
    ],
)
def test_bad_input_is_refused_with_the_place_and_the_remedy(document: Any, expected: str) -> None:
    assert expected in message(document)
