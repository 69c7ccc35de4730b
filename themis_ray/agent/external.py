"""A search that does not use Tune takes part in the auction: what its adapter is written with.

::

    with ExternalApp("my-search", jobs=20, iterations_per_job=30) as app:
        job = app.job("trial-0")
        saved = None
        while not job.done:
            with job.lease() as lease:            # waits until the arbiter has leased GPUs
                actor = Trainer.options(**lease.options()).remote(saved)
                while not (job.done or lease.should_leave):
                    ray.get(actor.step.remote())
                    lease.report()                # one iteration is done
                saved = ray.get(actor.save.remote())

One thread for each job that is to run at once is the simplest; all calls may come from any thread.
``docs/adapters.md`` tells the whole story.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from themis_ray.agent.agent import Agent, AgentSettings
from themis_ray.agent.shape import TrialShape, check_cluster, check_range
from themis_ray.core.fairness import Ideal
from themis_ray.errors import ConfigError, ProtocolError, ThemisError

if TYPE_CHECKING:
    from ray.util.placement_group import PlacementGroup

    from themis_ray.agent.session import Session
    from themis_ray.searchers.api import Search

logger = logging.getLogger(__name__)

# How often trials and leases are brought into line, when nothing else gives occasion to.
PUMP_EVERY_S = 0.5
# How often a thread that waits for a lease looks whether its app is still there.
LOOK_EVERY_S = 1.0


class ExternalApp:
    """An app of the arbiter, for a search without Tune. A context manager.

    Args:
        name: Its name, unique on the cluster.
        jobs: How many jobs (trials) the search will run in all, as far as known: those to come
            count as work left.
        iterations_per_job: Iterations of a job that runs to its end.
        at_once: The most jobs that run side by side; any number when None.
        per_gpu: Resources that go with each GPU, other than the GPU itself.
        min_gpus: The fewest GPUs of a job.
        max_gpus: The most GPUs of a job.
        search: Tells what GPUs are worth to the search (``themis_ray.searchers.api``); all jobs
            are taken to run to their ends when None.
        model: Jobs of one model share what is measured about placements.
        weight: Twice the weight is twice the fair share.
        ideal: Which T_id r is measured against, ``"paper"`` or ``"exclusive"``.
        **arbiter: Options for the arbiter, if none runs yet and one is started here; see
            :class:`themis_ray.config.ArbiterOptions`.

    Raises:
        ConfigError: An argument cannot be used; the message says how to mend it.
    """

    def __init__(
        self,
        name: str,
        *,
        jobs: int = 1,
        iterations_per_job: float = 100,
        at_once: int | None = None,
        per_gpu: Mapping[str, float] | None = None,
        min_gpus: int = 1,
        max_gpus: int = 1,
        search: Search | None = None,
        model: str = "",
        weight: float = 1.0,
        ideal: Ideal = "paper",
        **arbiter: Any,
    ) -> None:
        if jobs < 1 or iterations_per_job <= 0:
            raise ConfigError(
                f"jobs = {jobs} of {iterations_per_job} iterations; use 1 or more of each"
            )
        if "GPU" in (per_gpu or {}):
            raise ConfigError("leave GPU out of per_gpu: it says what goes with one GPU")
        self.name = name
        self.jobs = jobs
        self.iterations_per_job = float(iterations_per_job)
        self.at_once = float("inf") if at_once is None else float(at_once)
        self.per_gpu = {"CPU": 1.0} if per_gpu is None else dict(per_gpu)
        self.model = model
        self.search = search
        self._settings = AgentSettings(name, weight, min_gpus, max_gpus, ideal)
        self._arbiter = arbiter
        self._session: Session | None = None
        self._known: dict[str, ExternalJob] = {}
        self._closing = threading.Event()
        self._pump: threading.Thread | None = None

    def __enter__(self) -> ExternalApp:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close("finished" if error is None else f"ended by {kind and kind.__name__}")

    def open(self) -> ExternalApp:
        """Find the arbiter, or start one, and register.

        Raises:
            ConfigError: The jobs do not fit the cluster.
            DuplicateAppError: Another app has this name.
            ThemisError: The arbiter cannot be reached or refused the app.
        """
        from themis_ray.agent.session import Session
        from themis_ray.live import client as live

        smallest, largest = self._settings.trial_min, self._settings.trial_max
        check_range(smallest, largest, per="")
        unit = live.start(**self._arbiter)["unit"]
        self.bundle = {**self.per_gpu, "GPU": 1.0} if unit == "GPU" else dict(self.per_gpu)
        if unit == "CPU":
            self.bundle["CPU"] = self.bundle.get("CPU") or 1.0
        agent = Agent(self._settings, started_s=time.monotonic())
        agent.to_come, agent.concurrency = self.jobs, self.at_once
        if self.search is not None:
            agent.use(self.search)
        session = Session(agent, {k: v for k, v in self.bundle.items() if k != "GPU"})
        welcome = session.open()
        try:
            shape = TrialShape(self.bundle, smallest, largest)
            check_cluster(shape, welcome.unit, welcome.cluster_gpus, per="")
        except ConfigError:
            session.close("its jobs are larger than the cluster")
            raise
        self._session = session
        self._pump = threading.Thread(target=self._keep_in_line, name="themis-app", daemon=True)
        self._pump.start()
        return self

    def close(self, why: str = "finished") -> None:
        """Leave: whatever it still holds is given back. May be called again."""
        self._closing.set()
        if self._session is not None:
            self._session.close(why)

    def job(self, job_id: str, iterations: float | None = None) -> ExternalJob:
        """A job of this app; the same one when asked for again.

        Args:
            job_id: Its name within the app.
            iterations: Iterations until its end; ``iterations_per_job`` when None.
        """
        with self.session.using() as agent:
            if job_id not in self._known:
                total = self.iterations_per_job if iterations is None else float(iterations)
                agent.add_trial(job_id, total, self.model)
                self._known[job_id] = ExternalJob(self, job_id, total)
                agent.to_come = max(0, self.jobs - len(self._known))
            return self._known[job_id]

    def no_more_jobs(self) -> None:
        """The search will create no further job, whatever was announced."""
        with self.session.using() as agent:
            self.jobs, agent.to_come = len(self._known), 0

    @property
    def session(self) -> Session:
        """The session with the arbiter.

        Raises:
            ProtocolError: The app is not open, or has left.
            ConfigError: The arbiter has turned it away.
        """
        if self._session is None or self._session.closed:
            raise ProtocolError(f"app {self.name!r} is not open; use it in a with block")
        if self._session.failure:
            raise ConfigError(f"{self.name} lost its place at the arbiter: {self._session.failure}")
        return self._session

    def _keep_in_line(self) -> None:
        while not self._closing.wait(PUMP_EVERY_S):
            try:
                self.session.pump()
            except ThemisError as error:
                logger.error("%s", error)
                return


class ExternalJob:
    """One job (trial) of an :class:`ExternalApp`; made by :meth:`ExternalApp.job`.

    Attributes:
        id: Its name within the app.
        iterations: Iterations until its end.
        iterations_done: Those that have been reported, and not been lost since.
        done: It has done its iterations, or :meth:`finish` was called.
    """

    def __init__(self, app: ExternalApp, job_id: str, iterations: float) -> None:
        self.app = app
        self.id = job_id
        self.iterations = iterations
        self.iterations_done = 0.0
        self.done = False

    def lease(self) -> ExternalLease:
        """Wait until GPUs are leased to this job. Use it as a context manager.

        Raises:
            ThemisError: The app has left meanwhile, or was turned away.
        """
        import ray
        from ray._raylet import PlacementGroupID
        from ray.util.placement_group import PlacementGroup

        from themis_ray.agent.groups import group_name

        if self.done:
            raise ProtocolError(f"job {self.id!r} is over; it needs no lease")
        session = self.app.session
        waiting = session.await_lease(self.id, group_name(self.app.name, self.id))
        session.pump()
        while not ray.wait([waiting.ready()], timeout=LOOK_EVERY_S)[0]:
            session = self.app.session  # raises when there is nothing to wait for
        group = PlacementGroup(PlacementGroupID.from_hex(ray.get(waiting.ready())))
        with session.using() as agent:
            nodes = dict(agent.trials[self.id].allocation)
        return ExternalLease(self, group, nodes, self.app.bundle)

    def finish(self) -> None:
        """It ends here, whatever it had left to do: pruned, converged, or failed for good."""
        self.done = True


@dataclass
class ExternalLease:
    """GPUs that a job may use until it is told to leave.

    When the block ends the GPUs are given back. If they were taken by force (the job did not leave
    in time, or the node died), the error of the dead Ray worker is swallowed and ``lost`` is True:
    the job goes on from what it had saved. Any other exception ends the job and is passed on.

    Attributes:
        job: Whose.
        group: The placement group: one bundle for each GPU.
        nodes: GPUs on each machine.
        bundle: Resources of one bundle.
        lost: The placement group was removed while it was in use.
    """

    job: ExternalJob
    group: PlacementGroup
    nodes: dict[str, int]
    bundle: dict[str, float]
    lost: bool = False
    _began_s: float = 0.0
    _saved_at: float = 0.0

    @property
    def gpus(self) -> int:
        """How many GPUs (or leased units) it is."""
        return sum(self.nodes.values())

    def options(self, index: int = 0) -> dict[str, Any]:
        """What to pass to ``.options()`` of an actor or a task that is to run on this lease.

        Args:
            index: Which of its GPUs, 0 to ``gpus - 1``.
        """
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        other = {k: v for k, v in self.bundle.items() if k not in ("CPU", "GPU")}
        return {
            "num_cpus": self.bundle.get("CPU", 0.0),
            "num_gpus": self.bundle.get("GPU", 0.0),
            "resources": other,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(
                self.group,
                placement_group_bundle_index=index,
                placement_group_capture_child_tasks=True,
            ),
        }

    def report(self, iterations: float = 1.0, iter_s: float | None = None) -> bool:
        """Iterations were done.

        Args:
            iterations: How many since the last report.
            iter_s: Seconds of one, as measured where it ran; the time since the last report (or
                the lease's start) when None.

        Returns:
            Whether the job has to save and leave now.
        """
        now = time.monotonic()
        job, session = self.job, self.job.app.session
        job.iterations_done += iterations
        took = (now - self._began_s) / max(iterations, 1e-9) if iter_s is None else iter_s
        self._began_s = now
        with session.using() as agent:
            leave = agent.trial_ran(job.id, now, job.iterations_done, took)
        if job.iterations_done >= job.iterations:
            job.done = True
        session.pump()
        return leave

    def saved(self) -> None:
        """What was done so far is saved: it will not be lost with the lease."""
        self._saved_at = self.job.iterations_done

    @property
    def should_leave(self) -> bool:
        """Whether the job has to save and leave: its lease is not renewed, or it is to grow."""
        with self.job.app.session.using() as agent:
            return agent.trials[self.job.id].leave_by_s is not None

    @property
    def seconds_left(self) -> float:
        """Seconds until the GPUs are taken away; ``inf`` while nobody wants them."""
        with self.job.app.session.using() as agent:
            leave_by_s = agent.trials[self.job.id].leave_by_s
        return float("inf") if leave_by_s is None else max(0.0, leave_by_s - time.monotonic())

    def __enter__(self) -> ExternalLease:
        self._began_s = time.monotonic()
        self._saved_at = self.job.iterations_done
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        lost = error is not None and not self.job.done and self._was_removed(error)
        if lost:
            self.lost = True
            self.job.iterations_done = self._saved_at
        elif error is not None:
            self.job.done = True
        self._give_back()
        return lost

    def _was_removed(self, error: BaseException) -> bool:
        """Whether an error is that of a worker whose placement group, or node, is gone."""
        import ray
        from ray import exceptions as rex

        of_workers = (
            rex.RayActorError,
            rex.WorkerCrashedError,
            rex.TaskPlacementGroupRemoved,
            rex.ActorPlacementGroupRemoved,
        )
        if not isinstance(error, of_workers):
            return False
        return bool(ray.util.placement_group_table(self.group)["state"] != "CREATED")

    def _give_back(self) -> None:
        import ray

        ray.util.remove_placement_group(self.group)
        session = self.job.app._session
        if session is None or session.closed:
            return
        with session.using() as agent:
            agent.trials[self.job.id].iterations_done = self.job.iterations_done
            agent.trial_left(self.job.id, time.monotonic(), done=self.job.done)
        session.pump()
