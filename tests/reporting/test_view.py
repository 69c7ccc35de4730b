import io
import math
from typing import Any

import pytest
from rich.console import Console

from themis_ray.reporting.render import duration, explanation, status_table
from themis_ray.reporting.view import app_view, status_view

DOCUMENT: dict[str, Any] = {
    "policy": "themis-paper",
    "lease_s": 600.0,
    "unit": "GPU",
    "now_s": 1000.0,
    "uptime_s": 7500.0,
    "round": 12,
    "max_r": None,
    "nodes": [
        {"id": "aaaa1111", "name": "node-b", "rack": "r1", "gpus": 4, "free": 1, "foreign": 1},
        {"id": "bbbb2222", "name": "node-a", "rack": "r0", "gpus": 4, "free": 0, "foreign": 0},
    ],
    "apps": [
        {
            "id": "resnet",
            "r": 0.8,
            "t_shared_s": 800.0,
            "t_ideal_s": 1000.0,
            "wants": 8,
            "held": 6,
            "leases": [
                {
                    "id": "l1",
                    "gpus": {"bbbb2222": 4},
                    "expires_in_s": 300.0,
                    "final": False,
                    "pending": {},
                },
                {
                    "id": "l2",
                    "gpus": {"aaaa1111": 2},
                    "expires_in_s": 42.0,
                    "final": True,
                    "pending": {"aaaa1111": 1},
                },
            ],
            "groups": [{"id": "g1", "state": "live", "gpus": {"bbbb2222": 4}, "label": "trial_0"}],
            "reason": {"kind": "Won", "text": "won bbbb2222:4 for 600 s", "remedy": ""},
            "attained_gpu_s": 5000.0,
            "joined_ago_s": 900.0,
            "weight": 2.0,
        },
        {
            "id": "vgg[bold]",
            "r": None,
            "wants": 2,
            "held": 0,
            "leases": [],
            "groups": [],
            "reason": {"kind": "Waiting", "text": "waits for GPUs", "remedy": "wait"},
        },
    ],
}


def text_of(drawn: Any) -> str:
    console = Console(file=io.StringIO(), width=160, color_system=None)
    console.print(drawn)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_view_sorts_and_adds_up() -> None:
    view = status_view(DOCUMENT)
    assert [app.id for app in view.apps] == ["vgg[bold]", "resnet"]
    assert [node.name for node in view.nodes] == ["node-a", "node-b"]
    assert (view.total, view.free, view.foreign) == (8, 1, 1)
    assert view.max_r == math.inf
    waiting, running = view.apps
    assert waiting.r == math.inf
    assert waiting.next_expiry is None
    assert running.gpus == {"bbbb2222": 4, "aaaa1111": 2}
    assert running.next_expiry is not None
    assert running.next_expiry.id == "l2"
    assert running.weight == 2
    assert running.groups[0].label == "trial_0"
    assert view.holders(view.nodes[1]) == {"resnet": 2}


def test_status_says_who_holds_what_until_when_and_why() -> None:
    shown = text_of(status_table(status_view(DOCUMENT)))
    for words in (
        "policy themis-paper",
        "lease 10 min",
        "round 12",
        "8 GPUs: 7 taken, 1 free (and 1 used by other Ray jobs)",
        "max r infinite",
        "up 2 h 5 min",
        "6 of 8",
        "node-b:2, node-a:4; to come: node-b:1",
        "42 s (last)",
        "won bbbb2222:4 for 600 s",
        "resnet:4",
    ):
        assert words in shown
    # Names are shown as they are, never taken for markup.
    assert "vgg[bold]" in shown


def test_an_empty_cluster_says_so() -> None:
    shown = text_of(status_table(status_view({"policy": "p", "unit": "CPU"})))
    assert "no apps; one joins with" in shown
    assert "no node has a CPU" in shown
    assert "max r -" in shown


def test_a_node_may_be_named_by_its_name() -> None:
    document = {
        "nodes": [{"id": "aaaa1111", "name": "node-a", "gpus": 2}],
        "apps": [{"id": "x", "r": 1.0, "leases": [{"id": "l", "gpus": {"node-a": 2}}]}],
    }
    view = status_view(document)
    assert view.holders(view.nodes[0]) == {"x": 2}
    assert view.apps[0].held == 2
    assert view.node_name("gone0000ffff") == "gone0000"


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (
            {
                "app": "x",
                "r": 1.5,
                "wants": 4,
                "held": 1,
                "reason": {"text": "was not offered GPUs", "remedy": "waiting raises r"},
            },
            [
                "x was not offered GPUs",
                "what would change it: waiting raises r",
                "r 1.50, holds 1 of the 4",
            ],
        ),
        ({"id": "y"}, ["y has no decision yet"]),
    ],
)
def test_explanation(document: dict[str, Any], words: list[str]) -> None:
    shown = text_of(explanation(app_view(document)))
    for expected in words:
        assert expected in shown


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-1, "0 s"),
        (0.4, "0 s"),
        (59.6, "1 min"),
        (90, "1 min 30 s"),
        (7200, "2 h"),
        (7500, "2 h 5 min"),
        (90000, "1 d 1 h"),
        (math.inf, "for ever"),
    ],
)
def test_durations(seconds: float, said: str) -> None:
    assert duration(seconds) == said
