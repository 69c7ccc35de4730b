"""What every policy has to do, as a test suite: derive from it and name the policy.

::

    from themis_ray.testing.policy_contract import PolicyContract

    class TestMyPolicy(PolicyContract):
        policy = MyPolicy()

Plain ``assert`` and ``test_`` methods: pytest collects them; no plug-in is needed.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Mapping
from typing import ClassVar

from themis_ray.core import rounds
from themis_ray.core.arbiter import Arbiter
from themis_ray.core.bids import BidRow, BidTable
from themis_ray.core.cluster import NOTHING, Allocation, Cluster, Machine
from themis_ray.core.commands import LeasesChanged
from themis_ray.core.events import AppReport, JobReport
from themis_ray.core.policies.base import AppView, Outcome, Policy, RoundView
from themis_ray.core.settings import ArbiterConfig
from themis_ray.testing.agents import JobSpec, SimpleAgent
from themis_ray.testing.invariants import sum_up
from themis_ray.testing.loop import Loop


def random_view(rng: random.Random, round_id: int = 1) -> RoundView:
    """A round among up to six apps, elastic ones and gangs, on up to four machines."""
    cluster = Cluster(
        tuple(
            Machine(f"m{i}", rng.choice([1, 2, 4, 4, 8]), f"r{rng.randrange(2)}")
            for i in range(rng.randint(1, 4))
        )
    )
    free = dict(cluster.capacity)
    apps = {}
    for i in range(rng.randint(1, 6)):
        kept, expiring = _take(rng, free, most=2), _take(rng, free, most=3)
        apps[f"a{i}"] = _random_app(rng, f"a{i}", kept, expiring)
    pool = Allocation({m: rng.randint(0, c) for m, c in free.items()})
    pool = pool + sum_up(app.expiring for app in apps.values())
    return RoundView(1000.0, round_id, cluster, pool, apps, 600.0)


def honest_bids(view: RoundView, bidders: tuple[str, ...]) -> dict[str, BidTable]:
    """What apps of equal jobs without slowdown bid."""
    largest = max(view.pool.values(), default=0)
    out = {}
    for name in bidders:
        app = view.apps[name]
        gang, kept = app.report.gang, app.kept.size
        most = min(app.needs, view.pool.size) if gang <= largest else 0
        rows = tuple(
            BidRow(app.report.t_ideal_s / (kept + n), parts=(gang,) * (n // gang))
            for n in range(gang, most + 1, gang)
        )
        nothing = app.report.t_ideal_s / kept if kept else math.inf
        out[name] = BidTable(name, nothing, rows)
    return out


def decide(policy: Policy, view: RoundView) -> Outcome:
    """One round, with honest bids if the policy wants any."""
    bids: Mapping[str, BidTable] = {}
    if policy.wants_bids:
        bids = honest_bids(view, policy.bidders(view))
    return policy.allocate(view, bids)


class PolicyContract:
    """The contract; set ``policy`` in a subclass.

    Class attributes:
        policy: The policy under test.
        scenarios: How many random rounds are tried.
        work_conserving: It leaves no GPU idle that some app could use.
        reference_s: In the contention scenario, each app must have had GPUs by this time.
    """

    policy: ClassVar[Policy]
    scenarios: ClassVar[int] = 150
    work_conserving: ClassVar[bool] = True
    reference_s: ClassVar[float] = 6000.0

    def _rounds(self) -> list[tuple[RoundView, Outcome]]:
        policy = copy.deepcopy(self.policy)
        views = [random_view(random.Random(seed), seed) for seed in range(1, self.scenarios + 1)]
        return [(view, decide(policy, view)) for view in views]

    def test_bidders_have_answered_and_need_gpus(self) -> None:
        """Only apps that can use an offer are sent one, each once."""
        for seed in range(self.scenarios):
            view = random_view(random.Random(seed))
            bidders = self.policy.bidders(view)
            assert len(set(bidders)) == len(bidders)
            assert all(view.apps[b].answered and view.apps[b].needs for b in bidders)

    def test_awards_fit_into_the_pool(self) -> None:
        """No GPU is given twice, and none that was not put up."""
        for view, outcome in self._rounds():
            rounds.check(outcome, view.pool)
            assert set(outcome.awards) <= set(view.apps)

    def test_nobody_gets_more_than_it_can_use(self) -> None:
        """An award is no greater than the app's need."""
        for view, outcome in self._rounds():
            for name, award in outcome.awards.items():
                assert award.gpus.size <= view.apps[name].needs, (name, view)

    def test_gangs_get_whole_gangs(self) -> None:
        """An app of rigid gangs is given whole gangs, each on one machine, or nothing."""
        for view, outcome in self._rounds():
            for name, award in outcome.awards.items():
                gang = view.apps[name].report.gang
                whole = sum(count // gang for count in award.gpus.values()) * gang
                assert whole == award.gpus.size, f"{name} runs in gangs of {gang}: {award.gpus}"

    def test_the_same_round_is_decided_alike(self) -> None:
        """A decision depends on the round alone, not on the rounds before."""
        used = copy.deepcopy(self.policy)
        for seed in range(0, self.scenarios, 5):
            fresh = copy.deepcopy(self.policy)
            first, *others = (
                decide(policy, random_view(random.Random(seed))) for policy in (fresh, used, used)
            )
            for other in others:
                assert dict(first.awards) == dict(other.awards)
                assert dict(first.reasons) == dict(other.reasons)

    def test_every_app_is_told_why(self) -> None:
        """Each app of a round has a reason."""
        for view, outcome in self._rounds():
            assert set(outcome.reasons) == set(view.apps)
            assert all(str(reason) for reason in outcome.reasons.values())

    def test_no_gpu_idles_while_an_app_could_use_it(self) -> None:
        """What is left is of no use to any app that has answered."""
        if not self.work_conserving:
            return
        for view, outcome in self._rounds():
            left = view.pool - sum_up(a.gpus for a in outcome.awards.values())
            for app in view.apps.values():
                award = outcome.awards.get(app.id)
                more = app.needs - (award.gpus.size if award else 0)
                usable = max(left.values(), default=0)
                if app.answered and more >= app.report.gang:
                    assert usable < app.report.gang, f"{app.id} could use {left}: {view}"

    def test_the_last_app_is_not_starved(self) -> None:
        """Five apps that each want the whole cluster: all get GPUs, and all finish."""
        agents = [SimpleAgent(f"a{i}", [JobSpec(1200.0)] * 4, joins_s=float(i)) for i in range(4)]
        agents.append(SimpleAgent("last", [JobSpec(2400.0, gpus=4)], joins_s=5.0))
        config = ArbiterConfig(lease_s=300.0, notice_s=10.0)
        loop = Loop(
            Arbiter(copy.deepcopy(self.policy), config), agents, machines=[Machine("m0", 4)]
        )
        history = loop.run(self.reference_s)
        for agent in agents:
            granted = [c for _, c in history.of(LeasesChanged, agent.app) if c.leases]
            assert granted, f"{agent.app} never held a GPU"
        # In total there are 4 * 4800 + 2400 GPU-seconds of work, on 4 GPUs.
        loop.run(4 * self.reference_s)
        late = [agent.app for agent in agents if agent.left_s is None]
        assert not late, f"{late} did not finish"


def _take(rng: random.Random, free: dict[str, int], most: int) -> Allocation:
    """Some GPUs on one machine, taken out of ``free``."""
    machine = rng.choice(sorted(free))
    count = min(free[machine], rng.randint(0, most))
    free[machine] -= count
    return Allocation({machine: count})


def _random_app(rng: random.Random, name: str, kept: Allocation, expiring: Allocation) -> AppView:
    gang = rng.choice([1, 1, 1, 2, 4])
    if kept.size % gang or expiring.size % gang:
        gang = 1  # it holds what no app of gangs would hold
    jobs = rng.randint(0, 6)
    wants = max(kept.size, jobs * gang)
    t_ideal_s = rng.uniform(100, 1000)
    r = t_ideal_s / kept.size if kept else math.inf
    work = tuple(JobReport(f"j{i}", rng.uniform(1, 500), 1.0, gang, gang) for i in range(jobs))
    report = AppReport(r, r * t_ideal_s, t_ideal_s, wants, gang, work)
    return AppView(
        id=name,
        weight=1.0,
        joined_s=rng.uniform(0, 900),
        n_avg=rng.uniform(1, 6),
        report=report,
        answered=rng.random() < 0.9,
        kept=kept or NOTHING,
        expiring=expiring,
        attained_gpu_s=rng.uniform(0, 5000),
    )
