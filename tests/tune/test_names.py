"""Two apps of one process whose trainables share a name."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from ray.tune.registry import TRAINABLE_CLASS, _global_registry

from themis_ray.errors import ConfigError
from themis_ray.tune import names


@pytest.fixture(autouse=True)
def _free() -> Iterator[None]:
    yield
    for app in ("a", "b"):
        names.release(app)


def test_other_code_under_a_name_in_use_is_refused_and_put_right() -> None:
    trial = SimpleNamespace(trainable_name="names_test")
    _global_registry.register(TRAINABLE_CLASS, "names_test", int)
    names.claim(trial, "a")
    names.claim(trial, "a")
    _global_registry.register(TRAINABLE_CLASS, "names_test", str)
    with pytest.raises(ConfigError, match="names_test"):
        names.claim(trial, "b")
    # a's trials go on with a's code when they resume.
    assert _global_registry.get(TRAINABLE_CLASS, "names_test") is int


def test_the_same_code_may_be_shared_and_a_name_is_free_again() -> None:
    trial = SimpleNamespace(trainable_name="names_test")
    _global_registry.register(TRAINABLE_CLASS, "names_test", int)
    names.claim(trial, "a")
    names.claim(trial, "b")
    names.release("a")
    _global_registry.register(TRAINABLE_CLASS, "names_test", str)
    names.claim(trial, "b")
