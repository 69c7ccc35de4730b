"""Start, find, ask and stop the arbiter of a Ray cluster."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from themis_ray.config import ArbiterOptions, load_options
from themis_ray.errors import ArbiterUnavailableError
from themis_ray.live.ray_version import check_ray_version
from themis_ray.rpc.messages import Endpoint

logger = logging.getLogger(__name__)

ACTOR_NAME = "arbiter"
NAMESPACE = "themis"
START_TIMEOUT_S = 60.0


def connect_to_ray(num_gpus: int | None = None, address: str | None = None) -> None:
    """Join the running Ray cluster, or start one on this machine.

    Args:
        num_gpus: Logical GPUs for a cluster that is started here.
        address: The cluster's address; Ray looks for one when None.

    Raises:
        UnsupportedRayError: The installed Ray is too old.
        ArbiterUnavailableError: There is no cluster at ``address``, or it refused us.
    """
    check_ray_version()
    import ray

    if ray.is_initialized():
        return
    try:
        if address is not None or a_cluster_runs():
            ray.init(address=address or "auto", log_to_driver=False)
        else:
            ray.init(num_gpus=num_gpus, include_dashboard=False, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ArbiterUnavailableError(
            f"cannot join the Ray cluster at {address or 'auto'}: {error}. If the cluster uses "
            "token authentication, set RAY_AUTH_MODE=token here too and copy the token file "
            "(~/.ray/auth_token, or RAY_AUTH_TOKEN_PATH) from the head node"
        ) from error


def a_cluster_runs() -> bool:
    """Whether a Ray cluster runs on this machine, or RAY_ADDRESS names one."""
    import os

    from ray._private import services

    return bool(os.environ.get("RAY_ADDRESS")) or bool(services.find_gcs_addresses())


def find_actor() -> Any | None:
    """The handle of the running arbiter; None when none runs, or this process has left Ray."""
    import ray

    # Ray would start a cluster of its own for the question, and an AGENT asks from its own thread,
    # also when Ray has been shut down under it.
    if not ray.is_initialized():
        return None
    with contextlib.suppress(ValueError):
        return ray.get_actor(ACTOR_NAME, namespace=NAMESPACE)
    return None


def start(
    *,
    config: str | Path | None = None,
    num_gpus: int | None = None,
    address: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Start the arbiter in the Ray cluster, or find the one that runs.

    Args:
        config: A YAML file of options.
        num_gpus: Logical GPUs, when no Ray cluster runs and one is started on this machine.
        address: The Ray cluster's address.
        **options: See :class:`themis_ray.config.ArbiterOptions`.

    Returns:
        ``address`` of the gRPC server, ``policy``, ``unit``, ``lease_s``, ``journal``: its file on
        the arbiter's node (or why there is none), and ``started``: whether the arbiter is new.

    Raises:
        ConfigError: An option is wrong.
        ArbiterUnavailableError: Ray cannot be reached, or the arbiter did not start.
    """
    chosen = load_options(Path(config) if config is not None else None, **options)
    connect_to_ray(num_gpus, address)
    actor = find_actor()
    started = actor is None
    if actor is None:
        actor = _create(chosen)
    elif options:
        logger.warning("an arbiter runs already: the options given are not used")
    where = _endpoint(actor)
    document = status()
    return {
        "address": where.address,
        "policy": document["policy"],
        "unit": document["unit"],
        "lease_s": document["lease_s"],
        "journal": _journal(document.get("journal")),
        "started": started,
    }


def _journal(document: dict[str, Any] | None) -> str:
    if document is None:
        return "off"
    if document["error"]:
        return f"off: {document['path']} cannot be written ({document['error']})"
    return str(document["path"])


def _create(options: ArbiterOptions) -> Any:
    import ray

    from themis_ray.live.arbiter_actor import ArbiterActor

    # Waiting calls (one for each staged trial) must not take the places of the others.
    return (
        ray.remote(concurrency_groups={"waiting": 20_000, "control": 100})(ArbiterActor)
        .options(
            name=ACTOR_NAME,
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            max_restarts=-1,
            max_task_retries=-1,
        )
        .remote(options)
    )


def endpoint() -> Endpoint:
    """Where the running arbiter answers; asked anew after each restart of it.

    Raises:
        ArbiterUnavailableError: None runs.
    """
    actor = find_actor()
    if actor is None:
        raise ArbiterUnavailableError(
            "no arbiter runs in this Ray cluster; start one with `themis start`"
        )
    return _endpoint(actor)


def _endpoint(actor: Any) -> Endpoint:
    import ray

    try:
        where = ray.get(
            actor.endpoint.options(concurrency_group="control").remote(), timeout=START_TIMEOUT_S
        )
    except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError) as error:
        raise ArbiterUnavailableError(f"the arbiter does not answer: {error}") from error
    return Endpoint(where["address"], where["token"])


def status() -> dict[str, Any]:
    """Who holds which GPUs, until when, and why.

    Raises:
        ArbiterUnavailableError: No arbiter runs, or no Ray cluster.
    """
    from themis_ray.rpc.client import fetch_status

    with joined():
        return dict(fetch_status(endpoint()))


def explain(app: str) -> dict[str, Any]:
    """Why an app has what it has, and what would change it.

    Raises:
        UnknownAppError: There is no such app.
        ArbiterUnavailableError: No arbiter runs, or no Ray cluster.
    """
    from themis_ray.rpc.client import fetch_explain

    with joined():
        return dict(fetch_explain(endpoint(), app))


def stop(timeout_s: float = 30.0) -> dict[str, Any]:
    """Stop the arbiter: all leases end, no placement group and no actor of ours is left.

    Args:
        timeout_s: How long it may take.

    Returns:
        ``stopped``: whether one ran; ``apps_ended`` and ``groups_left``.

    Raises:
        ArbiterUnavailableError: No Ray cluster runs.
    """
    import ray

    with joined():
        actor = find_actor()
        if actor is None:
            return {"stopped": False, "apps_ended": [], "groups_left": []}
        try:
            document = ray.get(
                actor.shutdown.options(concurrency_group="control").remote(), timeout=timeout_s
            )
        finally:
            ray.kill(actor, no_restart=True)
        return {"stopped": True, **document}


@contextlib.contextmanager
def joined(address: str | None = None) -> Iterator[None]:
    """Be connected to a *running* Ray cluster; starts none.

    Raises:
        ArbiterUnavailableError: There is none.
    """
    import ray

    check_ray_version()
    if ray.is_initialized():
        yield
        return
    if address is None and not a_cluster_runs():
        raise ArbiterUnavailableError(
            "no Ray cluster runs on this machine; start one with `ray start --head` or "
            "`themis start`, or name one with --address"
        )
    connect_to_ray(address=address)
    try:
        yield
    finally:
        ray.shutdown()
