import inspect
import pickle

import pytest

from themis_ray import errors
from themis_ray.errors import MissingExtraError, ThemisError

CLASSES = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if cls.__module__ == errors.__name__
]


def drawn_tree() -> dict[str, str]:
    """Each error's parent, as the module's docstring draws it."""
    parents: dict[str, str] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        name = line.strip("│├└─ ").split(" ")[0]
        if not name.endswith("Error"):
            continue
        depth = (len(line) - len(line.lstrip("│├└─ "))) // 4 - 1
        path[depth:] = [name]
        parents[name] = path[depth - 1] if depth else ""
    return parents


def test_the_drawn_tree_is_the_tree() -> None:
    drawn = drawn_tree()
    assert set(drawn) == {cls.__name__ for cls in CLASSES}
    for cls in CLASSES:
        if cls is not ThemisError:
            assert drawn[cls.__name__] == cls.__bases__[0].__name__


@pytest.mark.parametrize("cls", CLASSES)
def test_errors_survive_the_way_between_processes(cls: type[Exception]) -> None:
    error = cls("x", "y") if cls is MissingExtraError else cls("what is wrong")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    assert str(again) == str(error)


def test_a_missing_extra_says_how_to_mend_it() -> None:
    error = MissingExtraError("mlflow", "mlflow")
    assert str(error) == ("mlflow is not installed; mend it with: pip install 'themis_ray[mlflow]'")
    assert (error.package, error.extra) == ("mlflow", "mlflow")
