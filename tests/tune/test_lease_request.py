"""A trial's request for a placement group."""

from __future__ import annotations

import ray.cloudpickle as pickle

from themis_ray.tune.lease_request import LeaseRequest

BUNDLE = {"CPU": 0.5, "GPU": 1.0}


def test_each_request_is_its_own() -> None:
    one, other = (LeaseRequest("app", BUNDLE, "t1") for _ in range(2))
    assert one != other
    assert hash(one) != hash(other)
    assert one.group.startswith("app/t1/")


def test_tune_sees_the_resources_of_one_unit() -> None:
    request = LeaseRequest("app", BUNDLE, "t1")
    assert request.bundles == [BUNDLE]
    assert request.required_resources == BUNDLE


def test_it_survives_the_experiment_checkpoint() -> None:
    request = LeaseRequest("app", BUNDLE, "t1")
    again = pickle.loads(pickle.dumps(request))
    assert again == request
    assert (again.app, again.group, again.trial_id) == ("app", request.group, "t1")
