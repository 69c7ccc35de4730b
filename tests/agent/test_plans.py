"""What the AGENT does with its leases: who starts, who leaves, what is asked for and given back."""

from __future__ import annotations

import math

from tests.agent.apps import agent_with, gpus, lease, requests, run_all, tell
from themis_ray.agent.agent import AWAIT_MORE_S, IDLE_BEFORE_RETURN_S, Agent
from themis_ray.agent.trials import TrialPhase
from themis_ray.core import events as ev
from themis_ray.core.cluster import NOTHING
from themis_ray.core.commands import GroupRefused, LeaseView
from themis_ray.core.explain import NotHeld


def test_waiting_trials_start_in_order_on_what_is_held() -> None:
    agent = agent_with("t0", "t1", "t2")
    tell(agent, lease(gpus(m0=2)))
    assert requests(agent.plan(0)) == {"t0-1": gpus(m0=1), "t1-1": gpus(m0=1)}
    assert requests(agent.plan(0)) == {}
    assert agent.trials["t2"].phase is TrialPhase.WAITING


def test_demand_is_told_when_it_changes_only() -> None:
    agent = agent_with("t0")
    reports = [e for e in agent.plan(0) if isinstance(e, ev.Reported)]
    assert [r.report.wants for r in reports] == [1]
    assert not [e for e in agent.plan(0.1) if isinstance(e, ev.Reported)]
    agent.add_trial("t1", 100)
    agent.trial_waits("t1", "t1-1")
    reports = [e for e in agent.plan(0.2) if isinstance(e, ev.Reported)]
    assert [r.report.wants for r in reports] == [2]


def test_the_last_trials_leave_when_gpus_are_lost() -> None:
    agent = agent_with("t0", "t1", "t2")
    tell(agent, lease(gpus(m0=3)))
    agent.plan(0)
    run_all(agent)
    tell(agent, lease(gpus(m0=1), 200, name="L2"), lease(gpus(m0=2), 100, final=True))
    agent.plan(90)
    assert {t.id: t.leave_by_s for t in agent.trials.values()} == {
        "t0": None,
        "t1": 100,
        "t2": 100,
    }
    assert agent.trial_ran("t1", 91, 2, 1.0)  # its next report is the time to pause
    assert not agent.trial_ran("t0", 91, 2, 1.0)
    assert agent.overdue(99.9) == []
    assert agent.overdue(100) == ["t1", "t2"]


def test_a_trial_leaves_by_the_end_of_its_own_lease() -> None:
    """Of two lost leases the one that ends sooner takes one trial sooner."""
    agent = agent_with("t0", "t1", "t2")
    tell(agent, lease(gpus(m0=3)))
    agent.plan(0)
    run_all(agent)
    tell(
        agent,
        lease(gpus(m0=1), 200, name="L2"),
        lease(gpus(m0=1), 100, final=True, name="L3"),
        lease(gpus(m0=1), 108, final=True, name="L4"),
    )
    agent.plan(90)
    assert [agent.trials[t].leave_by_s for t in ("t0", "t1", "t2")] == [None, 108, 100]


def test_a_trial_that_gets_its_gpus_back_stays() -> None:
    agent = agent_with("t0")
    tell(agent, lease(gpus(m0=1)))
    agent.plan(0)
    run_all(agent)
    tell(agent, lease(gpus(m0=1), final=True))
    agent.plan(90)
    assert agent.trials["t0"].leave_by_s == 100
    tell(agent, lease(gpus(m0=1), 200, name="L2"))
    agent.plan(91)
    assert agent.trials["t0"].leave_by_s is None


def test_trials_that_cannot_be_preempted_are_pinned_and_leave_last() -> None:
    agent = agent_with("t0", "t1")
    agent.trials["t1"].preemptible = False
    tell(agent, lease(gpus(m0=2)))
    agent.plan(0)
    run_all(agent)
    assert agent.state_of_app(1).pinned == gpus(m0=1)
    tell(agent, lease(gpus(m0=1), 200, name="L2"), lease(gpus(m0=1), final=True))
    agent.plan(90)
    assert agent.trials["t0"].leave_by_s == 100
    assert agent.trials["t1"].leave_by_s is None


def test_a_refused_group_is_asked_for_again() -> None:
    agent = agent_with("t0")
    tell(agent, lease(gpus(m0=1)))
    agent.plan(0)
    agent.refused(GroupRefused("a", "t0-1", NotHeld(gpus(m0=1), NOTHING)))
    assert agent.trials["t0"].phase is TrialPhase.WAITING
    assert requests(agent.plan(1)) == {"t0-1": gpus(m0=1)}


def test_idle_gpus_go_back_after_a_while_and_are_not_asked_for_again() -> None:
    agent = agent_with("t0", "t1")
    tell(agent, lease(gpus(m0=2)))
    agent.plan(0)
    run_all(agent)
    agent.trial_left("t1", 10, done=True)
    assert not [e for e in agent.plan(10) if isinstance(e, ev.GpusReturned)]
    events = agent.plan(10 + IDLE_BEFORE_RETURN_S)
    assert [type(e) for e in events] == [ev.Reported, ev.GpusReturned]
    assert isinstance(events[0], ev.Reported)
    assert events[0].report.wants == 1
    assert events[1] == ev.GpusReturned("a", gpus(m0=1))
    assert agent.held() == gpus(m0=1)
    assert agent.plan(20) == [] or all(isinstance(e, ev.Reported) for e in agent.plan(20))
    assert agent.wants() == 1


def test_an_elastic_trial_grows_by_pausing_once_a_lease() -> None:
    agent = agent_with("t0", most=4, total=1000)
    agent.plan(0)
    tell(agent, lease(gpus(m0=2), 600))
    agent.plan(0)
    for i in range(3):
        agent.trial_ran("t0", 10.0 * (i + 1), i + 1, 10.0)
    tell(agent, lease(gpus(m0=2), 600), lease(gpus(m0=2), 600, name="L2"))
    agent.plan(40)
    assert agent.trials["t0"].leave_by_s == math.inf
    assert agent.overdue(1e9) == []  # it pauses at its next report; it is never stopped hard
    assert agent.trial_ran("t0", 50, 4, 10.0)
    agent.trial_leaves("t0")
    agent.trial_left("t0", 51, done=False)
    agent.trial_waits("t0", "t0-2")
    assert requests(agent.plan(52)) == {"t0-2": gpus(m0=4)}


def short_agent() -> Agent:
    """Its trial could use four GPUs of eight, and one is at hand."""
    agent = agent_with("t0", most=4, total=1000)
    tell(agent, lease(gpus(m0=1)))
    events = agent.plan(0)
    assert requests(events) == {}
    assert [e.report.wants for e in events if isinstance(e, ev.Reported)] == [4]
    return agent


def test_a_trial_that_would_start_small_waits_for_the_rest_of_its_gpus() -> None:
    agent = short_agent()
    tell(agent, lease(gpus(m0=1)), lease(gpus(m0=3), name="L2"))
    assert requests(agent.plan(0.3)) == {"t0-1": gpus(m0=4)}


def test_it_starts_small_when_that_is_the_answer() -> None:
    agent = short_agent()
    tell(agent, lease(gpus(m0=1)), lease(gpus(m0=1), name="L2"))
    assert requests(agent.plan(0.3)) == {"t0-1": gpus(m0=2)}


def test_it_waits_on_while_a_part_of_the_answer_is_on_its_way() -> None:
    agent = short_agent()
    coming = LeaseView("L2", gpus(m0=1), gpus(m1=2), 100, False)
    tell(agent, lease(gpus(m0=1)), coming)
    assert requests(agent.plan(0.3)) == {}
    assert requests(agent.plan(AWAIT_MORE_S)) == {"t0-1": gpus(m0=2)}


def test_it_does_not_wait_longer_than_a_restart_takes() -> None:
    assert requests(short_agent().plan(AWAIT_MORE_S - 0.1)) == {}
    assert requests(short_agent().plan(AWAIT_MORE_S)) == {"t0-1": gpus(m0=1)}
    agent = short_agent()
    agent.trials["t0"].timer.restart_s = 0.5
    assert requests(agent.plan(0.5)) == {"t0-1": gpus(m0=1)}


def test_nobody_waits_for_what_cannot_come() -> None:
    agent = agent_with("t0", most=4, total=1000)
    agent.cluster_gpus = 1
    tell(agent, lease(gpus(m0=1)))
    assert requests(agent.plan(0)) == {"t0-1": gpus(m0=1)}
