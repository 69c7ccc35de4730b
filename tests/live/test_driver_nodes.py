"""What the driver believes of nodes while Ray's figures lag behind its own changes.

The lag cannot be had from Ray at will, so its answers are given here; all else is the driver's own.
"""

from __future__ import annotations

import asyncio
import math
from types import SimpleNamespace

import pytest

from themis_ray.core import events as ev
from themis_ray.core.arbiter import Arbiter
from themis_ray.core.cluster import Allocation
from themis_ray.core.commands import Command, RequestReport
from themis_ray.core.policies import BestEffort
from themis_ray.live import driver as live
from themis_ray.live import placement
from themis_ray.live.cluster_watch import ClusterWatch, NodeView

GPUS = 2.0
WANTS_ONE = ev.AppReport(math.inf, math.inf, 100.0, 1)


class Ray:
    """Its answers: so many of the GPUs of the one node are in use."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.used = 0.0
        made = SimpleNamespace(id=b"\1", wait=lambda _: True)
        monkeypatch.setattr(placement, "create", lambda *_: made)
        monkeypatch.setattr(placement, "remove", lambda _: None)
        monkeypatch.setattr(placement, "occupied", lambda _: set())
        monkeypatch.setattr(live, "read_nodes", self.nodes)

    def nodes(self) -> list[NodeView]:
        return [NodeView("n" * 8, "host", "r0", {"GPU": GPUS}, {"GPU": GPUS - self.used})]


async def gpus_seen(driver: live.LiveDriver) -> int:
    await driver.look_at_nodes()
    return driver.core.state.cluster.gpus


async def settled(driver: live.LiveDriver) -> None:
    """All that the driver has begun is done."""
    while driver._tasks:
        await asyncio.gather(*driver._tasks)


async def with_a_group(ray: Ray) -> live.LiveDriver:
    """A driver with an app that has a group on one GPU, which Ray's figures show."""
    asked: list[Command] = []
    driver = live.LiveDriver(
        Arbiter(BestEffort()), ClusterWatch("GPU"), lambda _, command: asked.append(command)
    )
    assert await gpus_seen(driver) == GPUS
    driver.handle(ev.AppJoined("a", WANTS_ONE))
    [request] = [command for command in asked if isinstance(command, RequestReport)]
    driver.handle(ev.Reported("a", WANTS_ONE, request.round_id))
    driver.handle(ev.GroupRequested("a", "g", Allocation({ray.nodes()[0].machine: 1})))
    await settled(driver)
    ray.used = 1.0
    for _ in range(3):
        assert await gpus_seen(driver) == GPUS
    return driver


@pytest.mark.parametrize(
    ("used", "seen"),
    [
        # Ray counts the GPU as used for a while after the group has gone.
        ((1.0, 1.0, 0.0), [GPUS, GPUS, GPUS]),
        # What is still in use after that is other people's.
        ((1.0, 1.0, 1.0), [GPUS, GPUS, GPUS - 1]),
    ],
)
def test_a_group_that_goes_between_two_looks_is_not_taken_for_other_peoples(
    monkeypatch: pytest.MonkeyPatch, used: tuple[float, ...], seen: list[int]
) -> None:
    ray = Ray(monkeypatch)

    async def scenario() -> None:
        driver = await with_a_group(ray)
        driver.handle(ev.AppLeft("a", "finished"))
        await settled(driver)
        assert not driver.core.state.groups
        for ray.used, gpus in zip(used, seen, strict=True):
            assert await gpus_seen(driver) == gpus
        await driver.close()

    asyncio.run(scenario())


def test_a_group_that_comes_between_two_looks_does_not_hide_other_peoples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ray = Ray(monkeypatch)

    async def scenario() -> None:
        driver = await with_a_group(ray)
        ray.used = 2.0  # another job takes the second GPU
        assert await gpus_seen(driver) == GPUS - 1
        driver.handle(ev.GroupReleased("a", "g"))
        await settled(driver)
        gpu = Allocation({ray.nodes()[0].machine: 1})
        driver.handle(ev.GroupRequested("a", "h", gpu))
        await settled(driver)
        ray.used = 1.0  # the new group is not counted yet
        assert await gpus_seen(driver) == GPUS - 1
        ray.used = 2.0
        assert await gpus_seen(driver) == GPUS - 1
        assert await gpus_seen(driver) == GPUS - 1
        await driver.close()

    asyncio.run(scenario())
