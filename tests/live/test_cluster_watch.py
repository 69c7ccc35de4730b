"""What Ray's nodes have to lease."""

from __future__ import annotations

from typing import Any

from themis_ray.live.cluster_watch import ClusterWatch, NodeView, leased_unit


def node(total: dict[str, float], used: dict[str, float] | None = None, **more: Any) -> NodeView:
    used = used or {}
    free = {k: v - used.get(k, 0.0) for k, v in total.items()}
    return NodeView("n" * 8, "host", more.get("rack", "r0"), total, free)


def gpus(watch: ClusterWatch, view: NodeView, **given: Any) -> int:
    ours = {view.machine: given.get("ours", {})}
    leased = {view.machine: given.get("leased", 0)}
    [machine] = watch.machines([view], ours, given.get("moving", []), leased)
    return machine.gpus


def test_gpus_where_there_are_some_cpus_otherwise() -> None:
    assert leased_unit([node({"CPU": 8.0}), node({"CPU": 8.0, "GPU": 2.0})]) == "GPU"
    assert leased_unit([node({"CPU": 8.0})]) == "CPU"


def test_gpus_of_other_jobs_are_left_alone() -> None:
    watch = ClusterWatch("GPU")
    view = node({"CPU": 8.0, "GPU": 4.0}, {"GPU": 1.0})
    assert gpus(watch, view) == 3
    assert watch.foreign(view.machine) == 1


def test_our_own_groups_are_not_foreign() -> None:
    watch = ClusterWatch("GPU")
    view = node({"CPU": 8.0, "GPU": 4.0}, {"GPU": 3.0})
    assert gpus(watch, view, ours={"GPU": 2.0}) == 3


def test_a_node_in_motion_keeps_its_last_figures() -> None:
    watch = ClusterWatch("GPU")
    total = {"CPU": 8.0, "GPU": 4.0}
    assert gpus(watch, node(total)) == 4
    changing = node(total, {"GPU": 2.0})
    assert gpus(watch, changing, moving=[changing.machine]) == 4
    assert gpus(watch, changing) == 2


def test_a_node_is_offered_as_far_as_it_has_the_cpus() -> None:
    watch = ClusterWatch("GPU", {"a": {"CPU": 2.0}, "b": {"CPU": 3.0}})
    assert gpus(watch, node({"CPU": 8.0, "GPU": 4.0})) == 2
    assert gpus(watch, node({"CPU": 2.0, "GPU": 4.0})) == 0
    assert gpus(watch, node({"CPU": 8.0, "GPU": 4.0}, {"CPU": 4.0})) == 1


def test_a_more_demanding_app_does_not_shrink_what_is_leased() -> None:
    watch = ClusterWatch("GPU", {"a": {"CPU": 1.0}})
    view = node({"CPU": 4.0, "GPU": 4.0})
    assert gpus(watch, view) == 4
    watch.bundles["b"] = {"CPU": 4.0}
    assert gpus(watch, view, leased=3) == 3
    assert gpus(watch, view) == 1
