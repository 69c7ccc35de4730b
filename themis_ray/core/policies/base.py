"""What a policy sees of a round, and what it must answer.

A policy is a pure function of a :class:`RoundView` (and of the bids, when it holds an auction).
The live arbiter and the simulator use the same policies.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from themis_ray.core.bids import BidTable
from themis_ray.core.cluster import NOTHING, Allocation, Cluster
from themis_ray.core.events import AppReport
from themis_ray.core.explain import Reason


class Present(Protocol):
    """What is known of any app, whether a round concerns it or not; see :class:`AppView`."""

    @property
    def id(self) -> str:
        """The app's name."""
        ...

    @property
    def weight(self) -> float:
        """Its share relative to the others."""
        ...

    @property
    def joined_s(self) -> float:
        """When it joined."""
        ...

    @property
    def report(self) -> AppReport:
        """Its newest report."""
        ...


@dataclass(frozen=True, slots=True)
class AppView:
    """An app in a round.

    Attributes:
        id: The app's name.
        weight: Its share relative to the others.
        joined_s: When it joined, on the arbiter's clock.
        n_avg: Mean number of apps during its life, itself included.
        report: Its newest report.
        answered: Whether the report is of this round.
        kept: GPUs that it keeps whatever the round decides (pending ones included).
        expiring: GPUs of the pool that it holds now.
        attained_gpu_s: GPU-seconds it was entitled to so far.
        kept_until_s: When the first of the leases on what it keeps ends; infinite without any.
    """

    id: str
    weight: float
    joined_s: float
    n_avg: float
    report: AppReport
    answered: bool
    kept: Allocation
    expiring: Allocation
    attained_gpu_s: float
    kept_until_s: float = math.inf

    @property
    def needs(self) -> int:
        """How many GPUs of the pool it could use."""
        return max(0, self.report.wants - self.kept.size)


@dataclass(frozen=True, slots=True)
class RoundView:
    """A round: the GPUs to be had and the apps.

    Attributes:
        now_s: Time on the arbiter's clock.
        round_id: Counts up; also seeds what is random.
        cluster: All machines.
        pool: GPUs to be given out.
        apps: The apps by id: all of them, or, when GPUs are enough and the policy ``spares``,
            those that hold GPUs of the pool or may want some.
        lease_s: The length of a full lease.
        memory: What the policy noted in the outcome of the round before, under names of its own;
            empty at first, and after the arbiter was restarted.
        present: All apps, when ``apps`` is not that; not to be kept beyond the round.
    """

    now_s: float
    round_id: int
    cluster: Cluster
    pool: Allocation
    apps: Mapping[str, AppView]
    lease_s: float
    memory: Mapping[str, Any] = field(default_factory=dict)
    present: Mapping[str, Present] | None = None

    @property
    def everybody(self) -> Mapping[str, Present]:
        """All apps by id."""
        return self.apps if self.present is None else self.present


@dataclass(frozen=True, slots=True)
class Award:
    """What an app gets in a round.

    Attributes:
        gpus: GPUs of the pool.
        lease_fraction: Part of a full lease for which it gets them, in (0, 1].
    """

    gpus: Allocation = NOTHING
    lease_fraction: float = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """A policy's decision: who gets what, and why; each app has a reason.

    Attributes:
        awards: What each app gets.
        reasons: Why, for each app of the round.
        memory: What the policy wants to see in the next round's view: values, which are not
            changed any more. Policies are pure, so this is all that they can remember.
    """

    awards: Mapping[str, Award] = field(default_factory=dict)
    reasons: Mapping[str, Reason] = field(default_factory=dict)
    memory: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recall:
    """GPUs that are put up before the lease on them ends.

    Attributes:
        gpus: The GPUs, all of one app.
        reason: Why, as that app is told when it loses them.
    """

    gpus: Allocation
    reason: Reason


class Policy(ABC):
    """Decides rounds.

    Class attributes:
        name: Its name on the command line.
        wants_bids: Whether :meth:`bidders` are sent an offer before :meth:`allocate`.
        preempts: Whether a round puts up *all* leases, not only those about to end; a lease that
            is not won again then ends after the notice period.
        keeps: Whether leases are renewed without a round for as long as their app can use them
            (no preemption at all).
        renews: Whether, as long as nobody wants more than it has, a gang that has all its GPUs is
            given the same again: then it need not be asked.
        spares: Whether that is so, too, while others want more and there are GPUs for all of
            them, and what these get does not hang on it. Then it is shown only those whom the
            round concerns. Only with ``renews``.
        remembers_spared: Whether what it remembers comes from :attr:`RoundView.everybody`, also
            those whose leases are renewed without a question.
        recalls: Whether it is asked, when somebody has come to want more GPUs than there are,
            what to put up before its lease ends. Only with ``wants_bids``.
    """

    name: ClassVar[str]
    wants_bids: ClassVar[bool] = False
    preempts: ClassVar[bool] = False
    keeps: ClassVar[bool] = False
    renews: ClassVar[bool] = False
    spares: ClassVar[bool] = False
    remembers_spared: ClassVar[bool] = False
    recalls: ClassVar[bool] = False

    def bidders(self, view: RoundView) -> tuple[str, ...]:
        """The apps to be offered the pool; only called when ``wants_bids``."""
        return tuple(a.id for a in view.apps.values() if a.answered and a.needs)

    def recall(self, view: RoundView) -> Mapping[str, Recall]:
        """What to put up before its lease ends; only called when ``recalls``.

        Args:
            view: The round, with what there is to be had without; all apps have been asked.

        Returns:
            GPUs that apps keep otherwise, by app.
        """
        return {}

    @abstractmethod
    def allocate(self, view: RoundView, bids: Mapping[str, BidTable]) -> Outcome:
        """Divide the pool.

        Args:
            view: The round.
            bids: The valid bids that came in time; empty unless ``wants_bids``.

        Returns:
            Awards that together fit into ``view.pool``; apps without one get nothing.
        """
