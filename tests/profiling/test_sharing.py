"""A measured slowdown, from a trial's report through the arbiter to another app's next bid."""

from __future__ import annotations

import math
from typing import Any

import pytest

from themis_ray.agent.agent import Agent, AgentSettings
from themis_ray.core.arbiter import Arbiter
from themis_ray.core.cluster import Allocation, Level, Machine
from themis_ray.core.commands import RequestReport, SendOffer
from themis_ray.core.events import AppJoined, AppReport, ClusterChanged, JobReport, Reported
from themis_ray.core.policies import make_policy
from themis_ray.core.settings import ArbiterConfig
from themis_ray.core.slowdown import (
    PRIORS,
    MeasuredSlowdown,
    Signature,
    SlowdownTable,
    skewed_priors,
)
from themis_ray.core.state import MODELS, PLACEMENTS, State
from themis_ray.errors import BidError, InvalidInputError
from themis_ray.rpc.convert import agent_message, arbiter_message, command_from, event_from

APART = Signature((1, 1), Level.RACK)
ENTRY = MeasuredSlowdown("vgg16", APART, 1.7)


def agent(app: str = "a", model: str = "vgg16") -> Agent:
    made = Agent(AgentSettings(app, trial_min=2, trial_max=2), started_s=0.0, cluster_gpus=4)
    made.add_trial(f"{app}-0", 100.0, model)
    made.shared.add(model)
    made.trial_waits(f"{app}-0", "group")
    return made


def run(app: Agent, gpus: dict[str, int], *steps_s: float, iter_s: float = 5.0) -> None:
    """Have the app's trial report from some GPUs; a step is only a part of an iteration."""
    (trial,) = app.trials.values()
    trial.allocation = Allocation(gpus)
    trial.reports_in_lease = 1
    for step_s in steps_s:
        app.trial_ran(trial.id, 10.0, trial.iterations_done + 1, iter_s, step_s=step_s)
    trial.allocation = Allocation()


def offer(app: str, *measured: MeasuredSlowdown) -> SendOffer:
    pool = Allocation({"m0": 2, "m1": 2})
    racks = dict.fromkeys(pool, "r0")
    return SendOffer(app, 1, pool, Allocation(), Allocation(), racks, 1.0, 4, 60.0, measured)


def rack_row(app: Agent, *measured: MeasuredSlowdown) -> float:
    """r in the app's bid for two GPUs on two machines of a rack, over r on one machine."""
    rows = app.bid(offer(app.settings.app, *measured), 20.0).table.rows
    by_level = {row.level: row.r for row in rows}
    near = min(row.r for row in rows)
    return by_level[Level.RACK] / near


def test_what_a_trial_measures_is_in_its_apps_next_bid() -> None:
    app = agent()
    before = rack_row(app)
    run(app, {"m0": 1}, 1.0, 1.0)
    run(app, {"m0": 1, "m1": 1}, 0.9, 0.9, 0.9)
    assert app.slowdowns["vgg16"].measured == {APART: pytest.approx(1.8)}
    assert rack_row(app) > before
    # Of iterations alone, evaluation included, it would have been 2.
    assert app.state_of_app(20.0).measured == (
        MeasuredSlowdown("vgg16", APART, pytest.approx(1.8)),
    )


def test_another_app_hears_of_it_and_trusts_itself_more() -> None:
    other = agent("b")
    before = rack_row(other)
    assert rack_row(other, ENTRY) > before
    assert other.slowdowns["vgg16"].s(APART) == 1.7
    assert other.state_of_app(20.0).measured == ()  # hearsay is not passed on
    run(other, {"m0": 1}, 1.0)
    run(other, {"m0": 1, "m1": 1}, 0.6)
    assert other.slowdowns["vgg16"].s(APART) == pytest.approx(1.2)


def test_an_app_of_another_model_or_of_a_private_name_does_not() -> None:
    for app in (agent("b", "resnet50"), agent("c")):
        app.shared.discard("vgg16")
        before = rack_row(app)
        assert rack_row(app, ENTRY) == before
        assert app.state_of_app(20.0).measured == ()


def test_a_skew_that_was_watched_raises_the_prior() -> None:
    app = agent()
    app.trial_ran("a-0", 10.0, 1, 5.0, skew=0.743)
    assert app.slowdowns["vgg16"].priors == skewed_priors(0.743)
    assert app.state_of_app(20.0).jobs[0].skew == 0.743


def test_the_nearest_of_what_was_measured_and_heard_counts() -> None:
    four, like_it = Signature((2, 2), Level.RACK), Signature((3, 1), Level.RACK)
    table = SlowdownTable(heard={like_it: 1.5})
    assert table.s(four) == 1.5
    table.record(like_it, 1.2)
    assert table.s(four) == 1.2
    table.heard[four] = 1.4  # the placement itself, from others, before a similar one of one's own
    assert table.s(four) == 1.4
    assert table.s(APART) == PRIORS[Level.RACK]


def test_the_arbiter_passes_on_what_others_have_measured() -> None:
    policy = make_policy("themis-paper", min_bidders=3)
    arbiter = Arbiter(policy, ArbiterConfig(lease_s=100, notice_s=10, grace_s=4))
    models = {"a": "vgg16", "b": "vgg16", "c": "resnet50"}
    reports = {
        app: AppReport(
            r=math.inf,
            t_shared_s=math.inf,
            t_ideal_s=100.0,
            wants=4,
            jobs=(JobReport("j", 10.0, 1.0, max_gpus=2, model=model),),
            measured=(ENTRY,) if app == "a" else (),
        )
        for app, model in models.items()
    }
    for app, told in reports.items():
        arbiter.handle(AppJoined(app, told), 0.0)
    commands = arbiter.handle(ClusterChanged((Machine("m0", 2), Machine("m1", 2))), 0.0)
    asked = [c for c in commands if isinstance(c, RequestReport)]
    assert {c.app for c in asked} == set(models)
    said = [arbiter.handle(Reported(c.app, reports[c.app], c.round_id), 0.0) for c in asked]
    offers = {c.app: c.measured for c in said[-1] if isinstance(c, SendOffer)}
    assert offers == {"a": (), "b": (ENTRY,), "c": ()}


def test_the_arbiter_remembers_the_newest_of_not_too_many() -> None:
    state = State()
    for i in range(PLACEMENTS + 5):
        state.learn([MeasuredSlowdown("m", Signature((i + 1, 1), Level.RACK), 1.5)])
    state.learn([MeasuredSlowdown("m", Signature((9, 1), Level.RACK), 1.6)])
    assert len(state.slowdowns["m"]) == PLACEMENTS
    assert state.slowdowns["m"][Signature((9, 1), Level.RACK)] == 1.6
    for i in range(MODELS + 5):
        state.learn([MeasuredSlowdown(f"m{i}", APART, 1.5)])
    assert len(state.slowdowns) == MODELS


def test_measurements_travel() -> None:
    app = agent()
    run(app, {"m0": 1}, 1.0)
    run(app, {"m0": 1, "m1": 1}, 0.9)
    told = Reported("a", app.state_of_app(20.0), None)
    assert event_from(agent_message(told), "a") == told
    sent = offer("a", ENTRY, MeasuredSlowdown("resnet50", Signature((4,), Level.SLOT), 1.0))
    assert command_from(arbiter_message(sent, 0.0), "a", 0.0) == sent


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("s", 0.5, "of 1 or more"),
        ("s", float("nan"), "a finite number"),
        ("level", 0, "one of the four levels"),
        ("parts", [1, 2], "largest first"),
        ("parts", [1, 0], "largest first"),
        ("model", "", "is empty"),
    ],
)
def test_what_cannot_be_is_refused_by_name(field: str, value: Any, words: str) -> None:
    app = agent()
    run(app, {"m0": 1}, 1.0)
    run(app, {"m0": 1, "m1": 1}, 0.9)
    message = agent_message(Reported("a", app.state_of_app(20.0), None))
    entry = message.report.report.measured[0]
    if field == "parts":
        entry.parts[:] = value
    else:
        setattr(entry, field, value)
    with pytest.raises(BidError, match=words) as caught:
        event_from(message, "a")
    assert "report.measured[0]" in str(caught.value)
    assert isinstance(caught.value, InvalidInputError)
