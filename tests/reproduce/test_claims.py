import pytest

from themis_ray.reproduce import claims
from themis_ray.reproduce.claims import Check

VALUES = {
    "a": {"x": 1.0, "y": 3.0, "z": 2.0},
    "b": {"x": 1.01, "y": 2.0, "z": 4.0},
    "c": {"x": 5.0, "y": 1.0, "z": 0.5},
    "d": {"x": 1.0005},
}


@pytest.mark.parametrize(
    ("check", "holds", "evidence"),
    [
        (claims.least("d", "x", ("a",)), None, "level: d 1, the best other is a 1"),
        (claims.greatest("d", "x", ("a",)), None, "level"),
        (claims.below(("a", "x"), ("d", "x")), None, "level"),
        (claims.least("d", "x", ("a",), slack=0.001), True, ""),
        (claims.least("a", "x", ("b", "c")), True, "a 1, the best other is b 1.01"),
        (claims.least("b", "x"), False, "b 1.01, the best other is a 1"),
        (claims.least("b", "x", ("c",)), True, "c 5"),
        (claims.least("b", "x", slack=0.02), True, "a 1"),
        (claims.greatest("c", "x"), True, "c 5, the best other is b 1.01"),
        (claims.greatest("a", "z", ("b",)), False, "b 4"),
        (claims.below(("a", "x"), ("a", "y")), True, "a (x) 1, a (y) 3"),
        (claims.below(("a", "x"), ("a", "y"), 4.0), False, ""),
        (claims.alike("x", ("a", "b"), 0.05), True, "from 1 to 1.01"),
        (claims.alike("x", ("a", "b", "c"), 0.05), False, "to 5"),
        (claims.at_most("a", "y", 3.0), True, "a (y) 3"),
        (claims.at_most("a", "y", 2.9), False, ""),
        (claims.changes_by("a", "x", "z", 1.0), True, "1 becomes 2 (+100.0 %)"),
        (claims.changes_by("c", "x", "z", 0.5), False, "(-90.0 %)"),
        (claims.peaks_inside("a"), True, "3, is at y"),
        (claims.peaks_inside("b"), False, "4, is at z"),
        (claims.bottom_at("b", ("x",)), True, "1.01, is at x"),
        (claims.bottom_at("a", ("y", "z")), False, "1, is at x"),
    ],
)
def test_a_check_judges_and_shows_the_values(
    check: Check, holds: bool | None, evidence: str
) -> None:
    verdict = check(VALUES)
    assert verdict.holds is holds
    assert evidence in verdict.evidence


def test_a_missing_value_is_told_from_a_false_claim() -> None:
    with pytest.raises(KeyError):
        claims.least("a", "w")(VALUES)
